//! The half of a turn that blocks.

use std::{
    io,
    time::{Duration, Instant},
};

use super::Reactor;
use crate::{
    descriptor::{Descriptor, sleep_on},
    handle::Handle,
};

/// How long to sleep before the kernel is asked again to take operations that it refused (`EAGAIN`, `EBUSY`).
const BUSY: Duration = Duration::from_millis(1);

impl Reactor {
    /// Prepares the half of a turn that blocks. It ends with an event of the kernel, a notification of another thread, the
    /// next timer, the next re-arm, or after `limit` (None: no limit). It submits the operations that were
    /// started since the last [`Reactor::collect`], and does not block if one of them is over at once.
    ///
    /// Until the [`Sleep`] is dropped, a notification of another thread wakes the driver.
    pub fn sleep(&mut self, limit: Option<Duration>) -> Sleep {
        let limit = self.flush(limit);
        let idle =
            self.handle.prepare_sleep() && !self.selector.has_answers() && !self.has_skipped_kernel;
        let timeout = if idle {
            self.until_due(limit)
        } else {
            Some(Duration::ZERO)
        };
        Sleep {
            descriptor: self.selector.prepare_sleep(),
            timeout,
            handle: self.handle.clone(),
        }
    }

    /// Submits all queued operations before the sleep. If the kernel takes only a part, the sleep is limited to [`BUSY`]. If an outcome
    /// is there, the sleep does not block, because no event of the kernel would end it.
    fn flush(&mut self, limit: Option<Duration>) -> Option<Duration> {
        let Some(operations) = self.selector.operations() else {
            return limit;
        };
        let mut limit = limit;
        if operations.queued() > 0 && (operations.submit().is_err() || operations.queued() > 0) {
            limit = limit.into_iter().chain([BUSY]).min();
        }
        match operations.has_unreported() {
            true => Some(Duration::ZERO),
            false => limit,
        }
    }

    /// The shortest of `limit`, the time until the next timer, and the time until the next re-arm.
    fn until_due(&mut self, limit: Option<Duration>) -> Option<Duration> {
        let now = Instant::now();
        self.times.begin_sleep(self.clock, now);
        let next = self.timers.next().filter(|_| !self.is_clock_frozen());
        let timer = next.map(|deadline| deadline.remaining(now));
        let limit = limit.into_iter().chain(timer).min();
        self.selector.until_rearm(limit, now)
    }
}

/// A prepared sleep: where to block, and for how long. It borrows nothing of the reactor.
///
/// Another thread than the reactor's may block in it, and the reactor may be used meanwhile. Waits that begin then count at once.
/// Collect after the block: a collect during it takes the events that would have ended it, or finds none of the kernel's (Windows).
///
/// - If it is dropped without a block, nothing is lost: events and wakes end the next one.
/// - There is one at a time. If there are more, a wake ends the blocks of all, but the first one that is dropped ends the time in
///   which [`Handle::notify`] does: then only [`Handle::wake`] ends the others.
/// - It may outlive its reactor. A block that began before lasts until [`Handle::wake`] or the timeout. A later one does so on
///   Windows. On Unix it fails with `EBADF`, or sleeps on the file that has the number of the descriptor by then.
///
/// ```
/// use std::time::Duration;
///
/// use reactor::{Events, Reactor};
///
/// let mut reactor = Reactor::open(None)?;
/// let sleep = reactor.sleep(Some(Duration::from_millis(5)));
/// assert!(sleep.timeout() <= Some(Duration::from_millis(5)));
/// sleep.block()?;
/// drop(sleep);
/// reactor.collect(&mut Events::new())?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "other threads' notifications make system calls until this is dropped"]
pub struct Sleep {
    descriptor: Option<Descriptor>,
    timeout: Option<Duration>,
    /// Dropping the sleep calls `Handle::finish_sleep`, after `Handle::prepare_sleep`.
    handle: Handle,
}

impl Sleep {
    /// The driver's own descriptor, readable when [`Reactor::collect`](crate::Reactor::collect) would find an event. None
    /// where the platform has none; see [`Driver::descriptor`](crate::Driver::descriptor).
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.descriptor
    }

    /// How long to sleep at most, counted from the preparation; None: without limit.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Blocks until [`Reactor::collect`](crate::Reactor::collect) would find an event, until a signal arrives (Unix), or for the
    /// timeout, never less.
    ///
    /// On Linux, Android and FreeBSD the timeout counts nanoseconds (ppoll(2)). Elsewhere it is rounded up to milliseconds. On Windows
    /// it is over with a tick of the system's clock, as all waits there: each 15.6 ms, or as often as `timeBeginPeriod` has set.
    ///
    /// It collects no events: the next [`Reactor::collect`](crate::Reactor::collect) does.
    ///
    /// # Errors
    ///
    /// `EBADF` if the driver's descriptor was closed; those of [`Wake::block`](crate::Wake::block), where it has none.
    pub fn block(&self) -> io::Result<()> {
        match self.descriptor {
            Some(descriptor) => sleep_on(descriptor, self.timeout),
            None => self.handle.block(self.timeout),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.handle.finish_sleep();
    }
}
