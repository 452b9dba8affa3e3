//! Unix: the queue has a descriptor, on which a thread sleeps without the driver.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    sync::Arc,
    time::Duration,
};

use mio::{Registry, event::Event};

use crate::driver::Block;

/// mio's `Poll`, and the memory for its events.
pub(super) struct Queue {
    poll: mio::Poll,
    events: mio::Events,
}

impl Queue {
    pub(super) fn open(room: usize) -> io::Result<Self> {
        Ok(Self {
            poll: mio::Poll::new()?,
            events: mio::Events::with_capacity(room),
        })
    }

    #[inline(always)] // in each turn
    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Polls for at most `timeout`, and calls `each` with the events.
    #[inline(always)] // in each turn
    pub(super) fn poll(
        &mut self,
        timeout: Option<Duration>,
        each: impl FnMut(&Event),
    ) -> io::Result<()> {
        match timeout {
            // The poll of every turn: of a constant, mio computes no milliseconds.
            Some(Duration::ZERO) => self.poll.poll(&mut self.events, Some(Duration::ZERO)),
            _ => self.poll.poll(&mut self.events, timeout),
        }?;
        self.events.iter().for_each(each);
        Ok(())
    }

    pub(super) fn descriptor(&self) -> Option<RawFd> {
        Some(self.poll.as_raw_fd())
    }

    /// None: the descriptor is enough.
    pub(super) fn blocker(&self) -> Option<Arc<dyn Block>> {
        None
    }
}
