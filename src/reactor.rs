//! One turn: what the kernel, the clock and other threads have for us.

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    backend::Backend,
    deadline::Deadline,
    driver::{Descriptor, Driver, poll::sleep_on},
    event::{Events, Ready},
    handle::Handle,
    identity::Identity,
    interest::Interest,
    registry::{Attempt, Known, Statistics, Wait},
    selector::Selector,
    timers::{TimerId, Timers},
    token::Token,
    waiters::WaitId,
};

/// Selector, timers and handle: all that an event loop needs but the loop.
///
/// Belongs to one thread at a time (`Send`, used through `&mut`); other threads use its [`Handle`].
#[derive(Debug)]
pub struct Reactor {
    selector: Selector,
    timers: Timers,
    handle: Handle,
    /// The time of the last turn: near enough for everything that is not a deadline.
    clock: Instant,
}

impl Reactor {
    /// A reactor on this backend, or on the native one.
    ///
    /// # Errors
    ///
    /// Of [`Backend::open`].
    pub fn open(choice: Option<Backend>) -> io::Result<Self> {
        Selector::open(choice).map(Self::with_selector)
    }

    /// A reactor on a driver of one's own.
    pub fn with_driver(driver: Box<dyn Driver>) -> Self {
        Self::with_selector(Selector::with_driver(driver))
    }

    fn with_selector(selector: Selector) -> Self {
        let handle = Handle::new(selector.waker());
        Self {
            selector,
            timers: Timers::default(),
            handle,
            clock: Instant::now(),
        }
    }

    /// As [`Selector::backend`].
    pub fn backend(&self) -> Option<Backend> {
        self.selector.backend()
    }

    /// As [`Selector::wait`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait(
        &mut self,
        descriptor: Descriptor,
        identity: Identity,
        interest: Interest,
        token: Token,
    ) -> io::Result<Wait> {
        self.selector
            .wait(descriptor, identity, interest, token, self.clock)
    }

    /// As [`Selector::end`].
    pub fn end(&mut self, wait: WaitId) -> Ready {
        self.selector.end(wait)
    }

    /// As [`Selector::known`].
    pub fn known(&self, descriptor: Descriptor, identity: Identity) -> Known {
        self.selector.known(descriptor, identity)
    }

    /// As [`Selector::attempted`].
    pub fn attempted(
        &mut self,
        descriptor: Descriptor,
        identity: Identity,
        interest: Interest,
        attempt: Attempt,
    ) {
        self.selector
            .attempted(descriptor, identity, interest, attempt);
    }

    /// As [`Selector::forget`].
    pub fn forget(&mut self, descriptor: Descriptor) {
        self.selector.forget(descriptor);
    }

    /// Sets a timer, which reports `token` with [`Ready::ELAPSED`] at the first turn after `deadline`.
    pub fn timer(&mut self, deadline: Deadline, token: Token) -> TimerId {
        self.timers.insert(deadline, token)
    }

    /// Takes a timer back. False if it has fired or been cancelled before.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        self.timers.cancel(timer)
    }

    /// The remote for other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// The time of the last turn.
    pub fn clock(&self) -> Instant {
        self.clock
    }

    /// What happened so far.
    pub fn statistics(&self) -> &Statistics {
        self.selector.statistics()
    }

    /// The half of a turn that never blocks: appends what has come from the kernel, from other threads and from the
    /// timers, and re-arms the waits that are due for it. One system call.
    ///
    /// # Errors
    ///
    /// What makes the driver unusable.
    pub fn collect(&mut self, events: &mut Events) -> io::Result<()> {
        self.poll(events, Some(Duration::ZERO))
    }

    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let polled = self.selector.poll(events, timeout);
        self.handle.awaken();
        self.handle.collect(events);
        self.clock = Instant::now();
        self.selector.rearm(self.clock, events);
        self.timers.expire(self.clock, events);
        polled
    }

    /// The half of a turn that blocks, as an object of its own: it borrows nothing, so the reactor's thread may sleep
    /// while others (a global lock released) look at what the reactor is part of.
    ///
    /// From here on until the object is dropped, notifications wake the kernel. `limit` bounds the sleep; so do the next
    /// timer and the next wait to be re-armed.
    pub fn sleep(&self, limit: Option<Duration>) -> Sleep {
        let asleep = self.handle.fall_asleep() && !self.selector.has_answers();
        Sleep {
            descriptor: self.selector.descriptor(),
            timeout: if asleep {
                self.patience(limit)
            } else {
                Some(Duration::ZERO)
            },
            handle: self.handle.clone(),
        }
    }

    /// How long nothing has to be done but wait for the kernel.
    fn patience(&self, limit: Option<Duration>) -> Option<Duration> {
        let now = Instant::now();
        let timer = self.timers.next().map(|deadline| deadline.remaining(now));
        let rearm = self.selector.next_rearm();
        let rearm = rearm.map(|at| at.saturating_duration_since(now));
        [limit, timer, rearm].into_iter().flatten().min()
    }

    /// A whole turn: appends what has come; if that is nothing, sleeps until something comes, at most so long (`None`: for
    /// ever).
    ///
    /// May come back with nothing before the limit, after a signal or a [`Handle::wake`].
    ///
    /// # Errors
    ///
    /// What makes the driver unusable.
    pub fn turn(&mut self, events: &mut Events, limit: Option<Duration>) -> io::Result<()> {
        let before = events.len();
        self.collect(events)?;
        let deadline = limit.map(|limit| Deadline::after_from(self.clock, limit));
        while events.len() == before {
            let left = deadline.map(|deadline| deadline.remaining(self.clock));
            if left == Some(Duration::ZERO) {
                break;
            }
            let sleep = self.sleep(left);
            let woken_for_rearm = sleep.timeout != left;
            if sleep.descriptor.is_some() {
                sleep.block()?;
                drop(sleep);
                self.collect(events)?;
            } else {
                let timeout = sleep.timeout;
                self.poll(events, timeout)?;
            }
            if !woken_for_rearm {
                break;
            }
        }
        Ok(())
    }
}

/// A sleep that is about to begin. While it exists, the reactor counts as asleep.
#[derive(Debug)]
pub struct Sleep {
    descriptor: Option<Descriptor>,
    timeout: Option<Duration>,
    handle: Handle,
}

impl Sleep {
    /// Blocks until there is something for the reactor to collect: an event, a timer, a notification. May come back
    /// early. One system call: ppoll(2).
    ///
    /// # Errors
    ///
    /// `Unsupported` where a driver cannot be slept on (Windows); otherwise what ppoll(2) says.
    pub fn block(&self) -> io::Result<()> {
        match self.descriptor {
            Some(descriptor) => sleep_on(descriptor, self.timeout),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// How long it will be at most.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.handle.awaken();
    }
}
