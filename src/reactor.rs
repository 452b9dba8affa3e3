//! One turn: what the kernel, the timers and other threads have for us.

mod sleep;

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    backend::Backend,
    deadline::Deadline,
    descriptor::Descriptor,
    driver::{Driver, Operations},
    event::{Events, Ready},
    handle::Handle,
    interest::Interest,
    registry::{Attempt, DescriptorReadiness, OwnerId, Statistics, Wait, WaitId},
    selector::Selector,
    timers::{TimerId, Timers},
    token::Token,
};

#[cfg(unix)]
use crate::descriptor::duplicate;

#[cfg(feature = "pool")]
use crate::pool::Pool;

pub use sleep::Sleep;

/// After so long the kernel is asked again to take operations it had no room for.
const BUSY: Duration = Duration::from_millis(1);

/// A selector, timers, an inbox for other threads, and threads for work that may block, turned together.
///
/// A turn has two halves. [`Reactor::collect`] never blocks and needs the reactor; [`Sleep::block`] blocks and needs
/// nothing of it, so an embedder can release its own lock in between. [`Reactor::turn`] is both, for everyone else.
///
/// Used by one thread at a time; other threads hold a [`Handle`].
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
#[derive(Debug)]
pub struct Reactor {
    selector: Selector,
    timers: Timers,
    handle: Handle,
    #[cfg(feature = "pool")]
    pool: Pool,
    clock: Instant,
    /// What the timers' clock shows while it is frozen.
    frozen_at: Option<Instant>,
}

impl Reactor {
    /// Opens a reactor on the chosen backend, or on the best there is.
    ///
    /// # Errors
    ///
    /// As [`Backend::open`].
    pub fn open(choice: Option<Backend>) -> io::Result<Self> {
        Ok(Self::with_selector(Selector::open(choice)?))
    }

    /// A reactor on a driver of the caller's.
    pub fn with_driver(driver: Box<dyn Driver>) -> Self {
        Self::with_selector(Selector::with_driver(driver))
    }

    fn with_selector(selector: Selector) -> Self {
        let handle = Handle::new(selector.waker());
        Self {
            selector,
            timers: Timers::new(),
            #[cfg(feature = "pool")]
            pool: Pool::new(handle.clone()),
            handle,
            clock: Instant::now(),
            frozen_at: None,
        }
    }

    /// The backend; None if the driver is the caller's own.
    pub fn backend(&self) -> Option<Backend> {
        self.selector.backend()
    }

    /// The time of the last [`Reactor::collect`]: good enough for everything that happens in one turn, and free.
    pub fn clock(&self) -> Instant {
        self.clock
    }

    /// What the timers' clock shows: the monotonic clock, unless it was frozen.
    pub fn now(&self) -> Instant {
        self.frozen_at.unwrap_or_else(Instant::now)
    }

    /// The point `duration` from now on the timers' clock.
    pub fn deadline(&self, duration: Duration) -> Deadline {
        Deadline::after_from(self.now(), duration)
    }

    /// Freezes the timers' clock, for good: from here on it moves by [`Reactor::advance_to_next_timer`] alone, and no timer ends a
    /// [`Reactor::sleep`]. Time is then what the embedder makes it, for tests. Descriptors are waited for as ever.
    pub fn freeze_clock(&mut self) {
        self.frozen_at.get_or_insert_with(Instant::now);
    }

    /// Has the timers' clock been frozen?
    pub fn is_clock_frozen(&self) -> bool {
        self.frozen_at.is_some()
    }

    /// Moves a frozen clock to the next timer's deadline; the next [`Reactor::collect`] reports what is due then. False
    /// if there is no timer, or if the clock is not frozen.
    pub fn advance_to_next_timer(&mut self) -> bool {
        match (&mut self.frozen_at, self.timers.next()) {
            (Some(clock), Some(next)) => {
                *clock = next.instant().max(*clock);
                true
            }
            _ => false,
        }
    }

    /// Starts to wait for a descriptor; see [`Selector::wait`].
    ///
    /// # Errors
    ///
    /// As [`Selector::wait`].
    pub fn wait(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        token: Token,
    ) -> io::Result<Wait> {
        self.selector
            .wait(descriptor, owner, interest, token, self.clock)
    }

    /// Ends a wait and returns its answer; see [`Selector::end`].
    pub fn end(&mut self, wait: WaitId) -> Ready {
        self.selector.end(wait)
    }

    /// What is known about a descriptor; see [`Selector::cached_readiness`].
    pub fn cached_readiness(&self, descriptor: Descriptor, owner: OwnerId) -> DescriptorReadiness {
        self.selector.cached_readiness(descriptor, owner)
    }

    /// Notes what a system call of the caller's has just seen; see [`Selector::attempted`].
    pub fn attempted(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        attempt: Attempt,
    ) {
        self.selector
            .attempted(descriptor, owner, interest, attempt);
    }

    /// The tokens of all unanswered waits for the descriptor; see [`Selector::waiters`].
    pub fn waiters(&self, descriptor: Descriptor) -> Vec<Token> {
        self.selector.waiters(descriptor)
    }

    /// The descriptor is about to be closed by its owner; see [`Selector::note_close`].
    pub fn note_close(&mut self, descriptor: Descriptor, owner: OwnerId) {
        self.selector.note_close(descriptor, owner);
    }

    /// The descriptor is about to be closed; see [`Selector::deregister`].
    pub fn deregister(&mut self, descriptor: Descriptor) {
        self.selector.deregister(descriptor);
    }

    /// What the driver can carry out by itself; None if it knows readiness only.
    ///
    /// What is started here reaches the kernel with the next [`Reactor::collect`], and its outcome is announced by an
    /// event with [`Ready::COMPLETED`].
    pub fn operations(&mut self) -> Option<&mut dyn Operations> {
        self.selector.operations()
    }

    /// Starts a timer: `token` will be reported with [`Ready::ELAPSED`] once `deadline` has come.
    pub fn timer(&mut self, deadline: Deadline, token: Token) -> TimerId {
        self.timers.insert(deadline, token)
    }

    /// Stops a timer. False if it has elapsed or was stopped already.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        self.timers.cancel(timer)
    }

    /// How many timers are set.
    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    /// The driver's own descriptor, for having this reactor watched by another loop: it is readable as long as
    /// [`Reactor::collect`] would find something of the kernel's. None where the platform has none; see
    /// [`Driver::descriptor`].
    ///
    /// Timers and other threads' notifications do not make it readable by themselves. Who sleeps elsewhere takes
    /// [`Reactor::sleep`] for as long as that lasts, and its [`Sleep::timeout`] as the limit.
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.selector.descriptor()
    }

    /// A descriptor of the caller's own for the driver's queue, for another loop's poll: readable under the same
    /// conditions as [`Reactor::descriptor`]. `examples/in_tokio.rs` and `examples/in_epoll.rs` show its use.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if the driver has no descriptor; otherwise those of fcntl(2): `EMFILE`.
    ///
    /// ```
    /// use reactor::{Backend, Interest, Reactor};
    ///
    /// let reactor = Reactor::open(None)?;
    /// # if reactor.backend() == Some(Backend::Poll) { return Ok(()); }
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

    /// What other threads reach this reactor by.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Whether other threads have sent something, or ended a job, that the next turn will report.
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

    /// The threads for work that may block: for asking about them.
    #[cfg(feature = "pool")]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The threads for work that may block: for giving them some.
    #[cfg(feature = "pool")]
    pub fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// The half of a turn that does not block: sets the clock, and appends to `events` what the kernel has, what other
    /// threads have sent, which timers have elapsed, and what arming idle waits again has found, in this order: a wait
    /// that is answered in the same turn in which its timeout elapses is answered first.
    ///
    /// # Errors
    ///
    /// As [`Selector::poll`]. Timers and notifications are then left for the next time.
    pub fn collect(&mut self, events: &mut Events) -> io::Result<()> {
        self.clock = Instant::now();
        self.selector
            .poll(events, Some(Duration::ZERO), self.clock)?;
        self.handle.collect(events);
        self.timers
            .expire(self.frozen_at.unwrap_or(self.clock), events);
        self.selector.rearm(self.clock, events);
        Ok(())
    }

    /// Prepares the half of a turn that blocks: until the kernel or another thread has something, the next timer or
    /// re-arm is due, or `limit` has passed (None: no limit of the caller's).
    ///
    /// From here until the [`Sleep`] is dropped, other threads' notifications wake the kernel.
    pub fn sleep(&mut self, limit: Option<Duration>) -> Sleep {
        let limit = self.flush(limit);
        let idle = self.handle.prepare_sleep() && !self.selector.has_answers();
        let timeout = if idle {
            self.until_due(limit)
        } else {
            Some(Duration::ZERO)
        };
        Sleep::new(self.selector.descriptor(), timeout, self.handle.clone())
    }

    /// Nothing may lie in a queue of ours while we sleep. If the kernel takes nothing more now, we ask it again soon.
    fn flush(&mut self, limit: Option<Duration>) -> Option<Duration> {
        let Some(operations) = self.selector.operations() else {
            return limit;
        };
        if operations.queued() == 0 {
            return limit;
        }
        match operations.submit() {
            Ok(()) if operations.queued() == 0 => limit,
            _ => limit.into_iter().chain([BUSY]).min(),
        }
    }

    /// One turn: collects; if nothing came, sleeps for at most `limit` and collects again.
    ///
    /// It may return without an event: after `limit`, after a signal, after [`Handle::wake`], and after housekeeping.
    ///
    /// # Errors
    ///
    /// Those of [`Reactor::collect`] and [`Sleep::block`].
    pub fn turn(&mut self, events: &mut Events, limit: Option<Duration>) -> io::Result<()> {
        let before = events.len();
        self.collect(events)?;
        if events.len() > before {
            return Ok(());
        }
        let sleep = self.sleep(limit);
        match sleep.descriptor() {
            Some(_) => sleep.block()?,
            // The platform can only sleep in the poll itself.
            None => self.selector.poll(events, sleep.timeout(), self.clock)?,
        }
        drop(sleep);
        self.collect(events)
    }

    /// What the selector has done so far.
    pub fn statistics(&self) -> &Statistics {
        self.selector.statistics()
    }

    /// The shortest of `limit` and the times left until the next timer and the next re-arm.
    fn until_due(&self, limit: Option<Duration>) -> Option<Duration> {
        let now = Instant::now();
        let next = self.timers.next().filter(|_| !self.is_clock_frozen());
        let timer = next.map(|deadline| deadline.remaining(now));
        let limit = limit.into_iter().chain(timer).min();
        self.selector.until_rearm(limit, now)
    }
}
