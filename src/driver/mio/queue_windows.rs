//! Windows: a completion port has no handle to wait for, so a thread that sleeps without the driver polls it.
//!
//! mio's `Selector` (1.2.5, src/sys/windows/selector.rs) is polled by one thread at a time: `select2` asserts it. Other threads may
//! register meanwhile. They queue the socket under a lock, and hand it to the kernel themselves while a thread polls
//! (`update_sockets_events_if_polling`). So registrations go through a clone of the registry, and the poll itself is in the
//! [`Port`], from which one thread takes it.

use std::{
    io, mem,
    os::windows::io::RawSocket,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mio::{Registry, event::Event};

use crate::driver::Block;

/// The longest timeout that is one to mio: the next millisecond, 2^32 - 1, is no limit. After these 49 days a sleep ends early.
const LONGEST: Duration = Duration::from_millis(u32::MAX as u64 - 1);

/// The port, and the registry beside it.
pub(super) struct Queue {
    registry: Registry,
    port: Arc<Port>,
}

/// None while a thread polls. The lock is held only to take the poll and to put it back.
#[derive(Debug)]
struct Port {
    poll: Mutex<Option<Poll>>,
    is_back: Condvar,
}

#[derive(Debug)]
struct Poll {
    poll: mio::Poll,
    events: mio::Events,
    /// A sleep has ended with `events`, and the driver has not reported them.
    is_unreported: bool,
}

impl Queue {
    pub(super) fn open(room: usize) -> io::Result<Self> {
        let poll = mio::Poll::new()?;
        Ok(Self {
            registry: poll.registry().try_clone()?,
            port: Arc::new(Port {
                poll: Mutex::new(Some(Poll {
                    poll,
                    // Half of them: the other half is for what a sleep has left.
                    events: mio::Events::with_capacity(room / 2),
                    is_unreported: false,
                })),
                is_back: Condvar::new(),
            }),
        })
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Calls `each` with the events that a sleep has left, and with those of a poll. Of both there is none while a thread sleeps.
    pub(super) fn poll(
        &mut self,
        timeout: Option<Duration>,
        mut each: impl FnMut(&Event),
    ) -> io::Result<()> {
        let Some(mut poll) = self.port.lock().take() else {
            return Ok(());
        };
        let is_left = mem::take(&mut poll.is_unreported);
        let timeout = if is_left {
            poll.events.iter().for_each(&mut each);
            Some(Duration::ZERO)
        } else {
            timeout
        };
        // After an error there are no events.
        let polled = poll.poll(timeout);
        poll.events.iter().for_each(each);
        self.port.put_back(poll);
        // An event is reported once. An error that lasts comes again with the next poll.
        if is_left { Ok(()) } else { polled }
    }

    pub(super) fn descriptor(&self) -> Option<RawSocket> {
        None
    }

    pub(super) fn blocker(&self) -> Option<Arc<dyn Block>> {
        Some(Arc::clone(&self.port) as Arc<dyn Block>)
    }
}

impl Poll {
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(|timeout| timeout.min(LONGEST));
        self.poll.poll(&mut self.events, timeout)
    }
}

impl Port {
    fn lock(&self) -> MutexGuard<'_, Option<Poll>> {
        self.poll.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_back(&self, poll: Poll) {
        *self.lock() = Some(poll);
        self.is_back.notify_all();
    }
}

impl Block for Port {
    fn block(&self, timeout: Option<Duration>) -> io::Result<()> {
        let mut place = self.lock();
        let Some(mut poll) = place.take() else {
            // Another thread sleeps: the end of its sleep is that of this one.
            _ = self.is_back.wait_timeout(place, timeout.unwrap_or(LONGEST));
            return Ok(());
        };
        drop(place);
        let mut polled = Ok(());
        if !poll.is_unreported {
            polled = poll.poll(timeout);
            poll.is_unreported = !poll.events.is_empty();
        }
        self.put_back(poll);
        polled
    }
}
