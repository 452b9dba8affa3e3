//! One turn: events from the kernel, from timers and from other threads.

mod sleep;
mod turn_times;
#[cfg(feature = "unstable")]
mod unstable;
mod waits;

use std::{
    collections::BTreeMap,
    fmt, io,
    time::{Duration, Instant},
};

use crate::{
    backend::{Backend, KnownDriver},
    deadline::Deadline,
    descriptor::Descriptor,
    event::{Event, Events},
    handle::Handle,
    registry::{Registry, Statistics},
    timers::{TimerId, Timers},
    token::Token,
};

#[cfg(unix)]
use crate::descriptor::duplicate;

#[cfg(feature = "pool")]
use crate::pool::Pool;

pub use sleep::Sleep;
pub use turn_times::TurnTimes;

use waits::IdleRepair;

/// Waits for descriptors, timers, an inbox for other threads, and a pool for blocking work, in one loop.
///
/// For each descriptor and direction it caches whether it is registered, what the kernel has reported, and what the
/// caller's own system calls have found ([`Reactor::attempted`]). A wait makes a system call only when the cache has no
/// answer. The wait ends with its one event, which carries its token, or by [`Reactor::end`].
///
/// A turn has two halves. [`Reactor::collect`] needs the reactor and never blocks. [`Sleep::block`] blocks but borrows
/// nothing from the reactor, so an embedder can release its own lock meanwhile. [`Reactor::turn`] does both.
///
/// Only one thread at a time may use it, in one process: a child of fork(2) must not use its parent's reactor, because
/// both share the kernel's queue. Other threads hold a [`Handle`].
///
/// ```
/// use std::time::Duration;
///
/// use reactor::{Deadline, Events, Reactor, Ready, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// reactor.timer(Deadline::after(Duration::from_millis(5)), Token::new(1, 0));
/// let never = reactor.timer(Deadline::after(Duration::from_secs(60)), Token::new(2, 0));
/// let mut events = Events::new();
/// while events.is_empty() {
///     reactor.turn(&mut events, None)?;
/// }
/// assert_eq!((events[0].token, events[0].ready), (Token::new(1, 0), Ready::ELAPSED));
/// assert!(reactor.cancel(never));
/// # std::io::Result::Ok(())
/// ```
pub struct Reactor {
    driver: KnownDriver,
    backend: Option<Backend>,
    registry: Registry,
    idle_repair: IdleRepair,
    /// Waits answered outside an event, by their ids as numbers, for the next poll to report.
    answered: BTreeMap<u64, Event>,
    /// The events of the last poll, except those applied at once. Kept to reuse its memory.
    reported: Events,
    statistics: Statistics,
    timers: Timers,
    handle: Handle,
    #[cfg(feature = "pool")]
    pool: Pool,
    clock: Instant,
    times: TurnTimes,
    /// The timers' clock while it is frozen.
    frozen_at: Option<Instant>,
    /// The kernel may have events that the last collect did not report: it skipped them, or reported a large batch.
    may_have_more: bool,
}

impl Reactor {
    /// Opens a reactor on the chosen backend. Without a choice, the [native](Backend::native) one.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] with the reason if the chosen backend is not available; there is no silent
    /// fallback. Otherwise the kernel's error: `EMFILE`, `ENFILE`, `ENOMEM` ([`Backend::availability`] tells of what
    /// there is too little: `RLIMIT_MEMLOCK` limits io_uring).
    pub fn open(choice: Option<Backend>) -> io::Result<Self> {
        let (backend, driver) = Backend::open_known(choice)?;
        Ok(Self::new(driver, Some(backend)))
    }

    fn new(driver: KnownDriver, backend: Option<Backend>) -> Self {
        let handle = Handle::new(driver.get().waker());
        let now = Instant::now();
        Self {
            driver,
            backend,
            registry: Registry::default(),
            idle_repair: IdleRepair::default(),
            answered: BTreeMap::new(),
            reported: Events::new(),
            statistics: Statistics::default(),
            timers: Timers::new(),
            #[cfg(feature = "pool")]
            pool: Pool::new(handle.clone()),
            handle,
            clock: now,
            times: TurnTimes::new(now),
            frozen_at: None,
            may_have_more: false,
        }
    }

    /// The backend; None for a caller's driver.
    pub fn backend(&self) -> Option<Backend> {
        self.backend
    }

    /// The time of the last [`Reactor::collect`]. It makes no system call and does not read the clock.
    pub fn clock(&self) -> Instant {
        self.clock
    }

    /// The time on the timers' clock: the monotonic clock, unless it was frozen.
    pub fn now(&self) -> Instant {
        self.frozen_at.unwrap_or_else(Instant::now)
    }

    /// The deadline `duration` after [`Reactor::now`].
    pub fn deadline(&self, duration: Duration) -> Deadline {
        Deadline::after_from(self.now(), duration)
    }

    /// Starts a timer: once `deadline` has passed, `token` is reported with [`Ready::ELAPSED`](crate::Ready::ELAPSED).
    pub fn timer(&mut self, deadline: Deadline, token: Token) -> TimerId {
        self.wake_sleeper();
        self.timers.insert(deadline, token)
    }

    /// Ends the sleep of another thread, which does not know what begins now.
    #[inline]
    fn wake_sleeper(&self) {
        if self.handle.is_sleeping() {
            _ = self.handle.wake(); // an error recurs at the next poll
        }
    }

    /// Stops a timer. False if it has been reported as elapsed, or been stopped.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        self.timers.cancel(timer)
    }

    /// Gives a timer another deadline, earlier or later. False if it has been reported as elapsed, or been stopped.
    ///
    /// Its event may be in the same batch as that of the sign of life for which it is reset. Then this is false: start a new timer
    /// with another generation of the token, and drop the event of the old one.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use reactor::{Deadline, Events, Reactor, Token};
    ///
    /// let mut reactor = Reactor::open(None)?;
    /// let idle = reactor.timer(Deadline::after(Duration::from_secs(60)), Token::new(1, 0));
    /// assert!(reactor.reset(idle, Deadline::after(Duration::from_millis(1)))); // at each sign of life
    /// let mut events = Events::new();
    /// while events.is_empty() {
    ///     reactor.turn(&mut events, None)?;
    /// }
    /// assert!(!reactor.reset(idle, Deadline::after(Duration::from_secs(60))), "it has elapsed");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn reset(&mut self, timer: TimerId, deadline: Deadline) -> bool {
        self.wake_sleeper();
        self.timers.reset(timer, deadline)
    }

    /// The number of active timers.
    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    /// The driver's own descriptor, for another loop to poll. It is readable while [`Reactor::collect`] would find an
    /// event from the kernel. None on Windows and for poll(2): see [`Sleep::block`].
    ///
    /// Timers do not make the descriptor readable, and notifications from other threads do so only during a [`Sleep`].
    /// A thread that sleeps in another loop therefore holds a [`Reactor::sleep`] meanwhile, and sleeps for at most
    /// [`Sleep::timeout`].
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.driver.get().descriptor()
    }

    /// A duplicate of [`Reactor::descriptor`], owned by the caller, for another loop to poll. That loop holds a
    /// [`Reactor::sleep`] meanwhile, and polls for at most [`Sleep::timeout`], as in `examples/loops`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if the driver has no descriptor. Otherwise the errors of fcntl(2),
    /// `F_DUPFD_CLOEXEC`: `EMFILE`.
    ///
    /// ```
    /// use reactor::{Interest, Reactor};
    ///
    /// let reactor = Reactor::open(None)?;
    /// let queue = reactor.queue()?;
    /// let readable = reactor::poll_now(std::os::fd::AsRawFd::as_raw_fd(&queue), Interest::READABLE)?;
    /// assert_eq!(readable, None);
    /// # std::io::Result::Ok(())
    /// ```
    #[cfg(unix)]
    pub fn queue(&self) -> io::Result<std::os::fd::OwnedFd> {
        let descriptor = self.descriptor();
        duplicate(descriptor.ok_or(io::ErrorKind::Unsupported)?)
    }

    /// A handle for other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Whether a token notified by another thread, or by a job that ended, awaits the next turn.
    ///
    /// ```
    /// use reactor::{Reactor, Token};
    ///
    /// let reactor = Reactor::open(None)?;
    /// assert!(!reactor.has_notifications());
    /// reactor.handle().notify(Token::new(1, 0))?;
    /// assert!(reactor.has_notifications());
    /// # std::io::Result::Ok(())
    /// ```
    pub fn has_notifications(&self) -> bool {
        self.handle.has_notifications()
    }

    /// The pool for blocking work.
    #[cfg(feature = "pool")]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The pool for blocking work, for submitting jobs.
    #[cfg(feature = "pool")]
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// The half of a turn that does not block: sets [`Reactor::clock`] and appends events in this order: from the
    /// kernel, from other threads, from timers, from re-armed idle waits. So if a wait is answered in the same turn in
    /// which its timeout elapses, the answer comes first.
    ///
    /// If another thread ended a sleep, no timer is due and no wait was answered meanwhile, only events from other threads are
    /// reported, and no system call is made. The next call reports the kernel's events, and a sleep before that call does not block.
    ///
    /// # Errors
    ///
    /// Those of epoll_wait(2), kevent(2), ppoll(2) or io_uring_enter(2). On error nothing is appended, and the next call reports the events.
    pub fn collect(&mut self, events: &mut Events) -> io::Result<()> {
        self.collect_at(Instant::now(), events)
    }

    /// Like [`Reactor::collect`], for callers that have just read the clock.
    ///
    /// # Errors
    ///
    /// Those of [`Reactor::collect`].
    pub fn collect_at(&mut self, now: Instant, events: &mut Events) -> io::Result<()> {
        let before = events.len();
        let has_slept = self.times.is_asleep();
        self.times.on_collect(self.clock, now);
        self.clock = now;
        self.may_have_more = has_slept
            && self.handle.has_ended_sleep()
            && !self.has_due_timer(now)
            && !self.has_answers();
        if self.may_have_more {
            self.handle.collect(events);
            return Ok(());
        }
        self.poll(events)?;
        self.handle.collect(events);
        let lateness = &mut self.times.lateness;
        self.timers
            .expire_late(self.frozen_at.unwrap_or(now), events, |late| {
                lateness.record(late);
            });
        let rearmed = self.rearm(events);
        // An event is reported only once. A persistent error recurs at the next poll.
        if events.len() == before {
            rearmed
        } else {
            Ok(())
        }
    }

    fn has_due_timer(&self, now: Instant) -> bool {
        let clock = self.frozen_at.unwrap_or(now);
        self.timers.next().is_some_and(|next| next.is_due(clock))
    }

    /// One turn: collects events and appends them. If it has found none, sleeps for at most `limit` (None: no limit) and collects
    /// again. Clear `events` before.
    ///
    /// No timer is reported before its deadline. How late it may be depends on the platform; see [`Sleep::block`].
    ///
    /// It may return without events: after `limit`, a signal, [`Handle::wake`], or re-arming idle waits.
    ///
    /// # Errors
    ///
    /// The errors of [`Reactor::collect`] and [`Sleep::block`].
    pub fn turn(&mut self, events: &mut Events, limit: Option<Duration>) -> io::Result<()> {
        let before = events.len();
        self.collect(events)?;
        if events.len() > before {
            return Ok(());
        }
        let sleep = self.sleep(limit);
        sleep.block()?;
        drop(sleep);
        self.collect(events)
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        self.handle.close();
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Reactor")
            .field("backend", &self.backend)
            .field("statistics", &self.statistics)
            .finish_non_exhaustive()
    }
}
