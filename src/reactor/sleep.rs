//! The half of a turn that blocks.

use std::{
    io,
    time::{Duration, Instant},
};

use super::Reactor;
use crate::{
    deadline::Deadline,
    descriptor::{Descriptor, sleep_on},
    handle::Handle,
};

/// How long to sleep before retrying operations that the kernel refused (`EAGAIN`, `EBUSY`).
const BUSY: Duration = Duration::from_millis(1);

impl Reactor {
    /// Prepares the half of a turn that blocks. The sleep ends with an event from the kernel, a notification from
    /// another thread, the next timer, the next re-arm, or after `limit` (None: no limit). This submits the operations
    /// started since the last [`Reactor::collect`]; if one completes at once, the sleep does not block.
    ///
    /// Until the [`Sleep`] is dropped, notifications from other threads wake the driver, and so does what begins in the
    /// reactor meanwhile, a [timer](Reactor::timer) or an operation, and what [answers](Reactor::deregister) a wait.
    pub fn sleep(&mut self, limit: Option<Duration>) -> Sleep {
        let limit = self.flush(limit);
        let idle = self.handle.prepare_sleep() && !self.has_answers() && !self.may_have_more;
        let due = if idle {
            self.next_due(limit)
        } else {
            Some(self.clock.into())
        };
        Sleep {
            descriptor: self.driver.get_mut().prepare_sleep(),
            due,
            handle: self.handle.clone(),
        }
    }

    /// Submits all queued operations before the sleep. If the kernel accepts only some, the sleep is limited to
    /// [`BUSY`]. If there is an outcome, the sleep does not block, because no kernel event would end it.
    fn flush(&mut self, limit: Option<Duration>) -> Option<Duration> {
        let Some(operations) = self.driver.get_mut().operations() else {
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

    /// The first of the end of `limit`, the next timer, and the next re-arm.
    fn next_due(&mut self, limit: Option<Duration>) -> Option<Deadline> {
        let now = Instant::now();
        self.times.begin_sleep(self.clock, now);
        let limit = limit.map(|limit| Deadline::after_from(now, limit));
        let next = self.timers.next().filter(|_| self.frozen_at.is_none());
        let rearm = self.idle_repair.next.map(Deadline::from);
        limit.into_iter().chain(next).chain(rearm).min()
    }
}

/// A prepared sleep: where to block, and for how long. It borrows nothing from the reactor.
///
/// Another thread may block in it while the reactor is in use; waits and timers that begin meanwhile take effect at once. Collect
/// only after the block: a collect during it consumes the events that would have ended it, or finds no event from the
/// kernel (Windows).
///
/// - If it is dropped without blocking, nothing is lost: events and wakes end the next sleep.
/// - Use one at a time. With more, a wake ends the blocks of all sleeps, but once the first sleep is dropped,
///   [`Handle::notify`] no longer ends the blocks of the others; only [`Handle::wake`] does.
/// - It may outlive its reactor. A block in progress then lasts until [`Handle::wake`] or the timeout. A later block
///   does so too for drivers without a descriptor; for others it fails with `EBADF`, or sleeps on whatever file then
///   has the descriptor's number.
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
    due: Option<Deadline>,
    /// Dropping the sleep calls `Handle::finish_sleep`, to match `Handle::prepare_sleep`.
    handle: Handle,
}

impl Sleep {
    /// The driver's own descriptor, readable when [`Reactor::collect`](crate::Reactor::collect) would find an event.
    /// None on Windows and for poll(2): a thread sleeps in [`Sleep::block`] there.
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.descriptor
    }

    /// How long a sleep that begins now may last; None: no limit. It ends at the same time however late it begins.
    pub fn timeout(&self) -> Option<Duration> {
        self.due.map(|due| due.remaining(Instant::now()))
    }

    /// Blocks until [`Reactor::collect`](crate::Reactor::collect) would find an event, a signal arrives (Unix), or the
    /// timeout elapses; the timeout never ends early.
    ///
    /// On Linux, Android and FreeBSD the timeout has nanosecond resolution (ppoll(2)). Elsewhere it is rounded up to
    /// milliseconds. On Windows the block ends on a tick of the system clock, like all waits there. Ticks come every
    /// 15.6 ms, or as set by `timeBeginPeriod`.
    ///
    /// It collects no events: the next [`Reactor::collect`](crate::Reactor::collect) does.
    ///
    /// # Errors
    ///
    /// `EBADF` if the driver's descriptor was closed; without a descriptor, the errors of poll(2).
    pub fn block(&self) -> io::Result<()> {
        match self.descriptor {
            Some(descriptor) => sleep_on(descriptor, self.timeout()),
            None => self.handle.block(self.timeout()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.handle.finish_sleep();
    }
}
