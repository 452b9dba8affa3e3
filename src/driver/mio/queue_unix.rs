//! Unix: the queue has a descriptor, on which a thread can sleep without borrowing the driver.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

use mio::{Registry, event::Event};

use super::Sources;
use crate::driver::Wake;

/// mio's `Poll` and its event buffer.
pub(super) struct Queue {
    poll: mio::Poll,
    events: mio::Events,
}

impl Queue {
    pub(super) fn open(capacity: usize) -> io::Result<Self> {
        Ok(Self {
            poll: mio::Poll::new()?,
            events: mio::Events::with_capacity(capacity),
        })
    }

    #[inline(always)] // runs every turn
    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Polls for at most `timeout`.
    #[inline(always)] // runs every turn
    pub(super) fn poll(
        &mut self,
        _sources: &mut Sources,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.poll.poll(&mut self.events, timeout)
    }

    /// The events of the last poll.
    #[inline(always)] // runs every turn
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    pub(super) fn descriptor(&self) -> Option<RawFd> {
        Some(self.poll.as_raw_fd())
    }

    /// The descriptor to sleep on. Nothing needs arming: registrations stay armed after an event.
    pub(super) fn prepare_sleep(&mut self, _sources: &mut Sources) -> Option<RawFd> {
        self.descriptor()
    }

    pub(super) fn waker(&self, token: mio::Token) -> io::Result<Waker> {
        mio::Waker::new(self.registry(), token).map(Waker)
    }
}

/// eventfd(2) or `EVFILT_USER`.
pub(super) struct Waker(mio::Waker);

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        loop {
            match self.0.wake() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}
