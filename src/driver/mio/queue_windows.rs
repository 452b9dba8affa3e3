//! Windows: a completion port has no handle to wait on, so a thread that sleeps without borrowing the driver polls the
//! port.
//!
//! Only one thread at a time may poll mio's `Selector` (1.2.5, src/sys/windows/selector.rs): `select2` asserts that.
//! Other threads may register meanwhile: they queue the socket under a lock, and pass it to the kernel themselves if a
//! thread is polling (`update_sockets_events_if_polling`). So registrations go through a clone of the registry, and the
//! poll itself is in the [`Port`], from which one thread takes it.

use std::{
    io, mem,
    os::windows::io::RawSocket,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use mio::{Registry, event::Event};

use super::Sources;
use crate::driver::Wake;

/// The longest finite timeout for mio, 49 days: mio takes 2^32 - 1 ms as no limit.
const LONGEST: Duration = Duration::from_millis(u32::MAX as u64 - 1);

/// The port and its registry.
pub(super) struct Queue {
    registry: Registry,
    port: Arc<Port>,
    events: Vec<Event>,
}

/// None while a thread polls. The lock is held only to take `Poll` out and put it back.
///
/// tests/model does not cover this: all shared state is under one lock, and a sleep may end spuriously.
struct Port {
    poll: Mutex<Option<Poll>>,
    is_back: Condvar,
}

struct Poll {
    poll: mio::Poll,
    events: mio::Events,
    /// A sleep ended with `events` that the driver has not reported yet.
    is_unreported: bool,
}

impl Queue {
    pub(super) fn open(capacity: usize) -> io::Result<Self> {
        let poll = mio::Poll::new()?;
        Ok(Self {
            registry: poll.registry().try_clone()?,
            port: Arc::new(Port {
                poll: Mutex::new(Some(Poll {
                    poll,
                    // Half of the batch; the other half is for events left by a sleep.
                    events: mio::Events::with_capacity(capacity / 2),
                    is_unreported: false,
                })),
                is_back: Condvar::new(),
            }),
            events: Vec::with_capacity(capacity),
        })
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Collects the events left by a sleep, then polls for at most `timeout`. While a thread sleeps, this does neither.
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
        let polled = poll.poll(timeout); // no events after an error
        self.take_events(&poll, sources);
        self.port.put_back(poll);
        // An event is reported only once. A persistent error recurs at the next poll.
        if is_left { Ok(()) } else { polled }
    }

    fn take_events(&mut self, poll: &Poll, sources: &mut Sources) {
        for event in &poll.events {
            sources.fired(event.token());
            self.events.push(event.clone());
        }
    }

    /// The events of the last poll.
    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }

    pub(super) fn descriptor(&self) -> Option<RawSocket> {
        None
    }

    /// None: a thread sleeps in the waker. The sleep polls the sockets armed here.
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
    /// Polls until there is an event or `timeout` elapses. mio's poll may return early: when a cancelled operation
    /// completes, or, like other waits on Windows, up to one tick of the system clock too soon.
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

/// Wakes a sleep by posting a completion packet, and sleeps in the poll.
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
            // Another thread is already sleeping; return when it does.
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
