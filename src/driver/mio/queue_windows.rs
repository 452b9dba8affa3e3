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
    time::{Duration, Instant},
};

use mio::{Registry, event::Event};

use super::Sources;
use crate::driver::Wake;

/// The longest timeout that is one to mio, 49 days: 2^32 - 1 ms are no limit.
const LONGEST: Duration = Duration::from_millis(u32::MAX as u64 - 1);

/// The port, and the registry beside it.
pub(super) struct Queue {
    registry: Registry,
    port: Arc<Port>,
    events: Vec<Event>,
}

/// None while a thread polls. The lock is held only to take the poll and to put it back.
///
/// tests/model does not run this: all that threads share is under the one lock, and a sleep may end for no reason.
struct Port {
    poll: Mutex<Option<Poll>>,
    is_back: Condvar,
}

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
            events: Vec::with_capacity(room),
        })
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Takes the events that a sleep has left, and polls for at most `timeout`. While a thread sleeps, it does neither.
    pub(super) fn poll(
        &mut self,
        sources: &mut Sources,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        sources.arm_fired(&self.registry);
        self.events.clear();
        let Some(mut poll) = self.port.lock().take() else {
            return Ok(());
        };
        let is_left = mem::take(&mut poll.is_unreported);
        let mut timeout = timeout;
        if is_left {
            self.take_events(&poll, sources);
            timeout = Some(Duration::ZERO);
        }
        let polled = poll.poll(timeout); // after an error there are no events
        self.take_events(&poll, sources);
        self.port.put_back(poll);
        // An event is reported once. An error that lasts comes again with the next poll.
        if is_left { Ok(()) } else { polled }
    }

    fn take_events(&mut self, poll: &Poll, sources: &mut Sources) {
        for event in &poll.events {
            sources.fired(event.token());
            self.events.push(event.clone());
        }
    }

    /// What the last poll has found.
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    pub(super) fn descriptor(&self) -> Option<RawSocket> {
        None
    }

    /// None: a thread sleeps in the waker. A sleep polls the sockets that are armed now.
    pub(super) fn prepare_sleep(&mut self, sources: &mut Sources) -> Option<RawSocket> {
        sources.arm_fired(&self.registry);
        None
    }

    pub(super) fn waker(&self, token: mio::Token) -> io::Result<Waker> {
        Ok(Waker {
            waker: mio::Waker::new(&self.registry, token)?,
            port: Arc::clone(&self.port),
        })
    }
}

impl Poll {
    /// Polls until there is an event, or for `timeout`. mio's poll may end before that: with the end of an operation that was
    /// cancelled, and, as other waits of Windows do, up to a tick of the system's clock too early.
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = timeout;
        loop {
            let limit = left.map(|left| left.min(LONGEST));
            self.poll.poll(&mut self.events, limit)?;
            left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if !self.events.is_empty() || left == Some(Duration::ZERO) {
                return Ok(());
            }
        }
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

/// A completion packet wakes. What sleeps is the poll.
pub(super) struct Waker {
    waker: mio::Waker,
    port: Arc<Port>,
}

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        self.waker.wake()
    }

    fn block(&self, timeout: Option<Duration>) -> io::Result<()> {
        let mut place = self.port.lock();
        let Some(mut poll) = place.take() else {
            // Another thread sleeps: the end of its sleep is that of this one.
            let limit = timeout.unwrap_or(LONGEST);
            _ = self.port.is_back.wait_timeout(place, limit);
            return Ok(());
        };
        drop(place);
        let mut polled = Ok(());
        if !poll.is_unreported {
            polled = poll.poll(timeout);
            poll.is_unreported = !poll.events.is_empty();
        }
        self.port.put_back(poll);
        polled
    }
}
