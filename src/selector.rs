//! A driver and the memory that saves most calls to it.

use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    backend::Backend,
    descriptor::Descriptor,
    driver::{Driver, Operations, Wake},
    event::{Events, Ready},
    interest::Interest,
    registry::{Attempt, DescriptorReadiness, OwnerId, Registry, Statistics, Wait, WaitId},
    token::Token,
};

/// Waits for descriptors to become ready.
///
/// A selector is told what its callers want, and, by [`Selector::attempted`], what they saw; it remembers both per
/// descriptor and direction. A wait costs a system call only where that memory is silent.
///
/// Every wait has a number, its [`WaitId`], from [`Selector::wait`] to [`Selector::end`]. It is answered at most once: by
/// an event with the waiter's token.
///
/// Used by one thread at a time, and by one process: a child of fork(2) must not use its parent's selector, because the
/// kernel's queue is shared between them.
///
/// ```
/// use std::{net::UdpSocket, time::{Duration, Instant}};
///
/// use reactor::{AsDescriptor, Events, OwnerId, Interest, Ready, Selector, Token, Wait};
///
/// let mut selector = Selector::open(None)?;
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// let (token, now) = (Token::new(1, 0), Instant::now());
/// let wait = selector.wait(socket.as_descriptor(), OwnerId(1), Interest::WRITABLE, token, now)?;
/// let mut events = Events::new();
/// selector.poll(&mut events, Some(Duration::from_secs(1)), now)?;
/// assert_eq!(events[0].token, token);
/// let Wait::Pending(wait) = wait else { unreachable!("a socket can be waited for") };
/// assert!(selector.end(wait).contains(Ready::WRITABLE));
/// selector.deregister(socket.as_descriptor());
/// # std::io::Result::Ok(())
/// ```
pub struct Selector {
    driver: Box<dyn Driver>,
    registry: Registry,
    /// What the driver reported; kept for its room.
    reported: Events,
    backend: Option<Backend>,
}

impl Selector {
    /// Opens a selector on the chosen backend, or on the best there is.
    ///
    /// # Errors
    ///
    /// As [`Backend::open`].
    pub fn open(choice: Option<Backend>) -> io::Result<Self> {
        let (backend, driver) = Backend::open(choice)?;
        Ok(Self {
            backend: Some(backend),
            ..Self::with_driver(driver)
        })
    }

    /// A selector on a driver of the caller's.
    pub fn with_driver(driver: Box<dyn Driver>) -> Self {
        Self {
            driver,
            registry: Registry::new(),
            reported: Events::new(),
            backend: None,
        }
    }

    /// The backend; None if the driver is the caller's own.
    pub fn backend(&self) -> Option<Backend> {
        self.backend
    }

    /// Starts to wait until the descriptor is ready for some of `interest`; events will carry `token`.
    ///
    /// Any number of waits may be for one descriptor and direction: an event answers all of them. Several waits may carry
    /// one token. `now` is when the wait begins, for [`Selector::rearm`].
    ///
    /// [`Wait::Pending`] is to be ended exactly once by [`Selector::end`], whatever happens.
    ///
    /// # Errors
    ///
    /// `EBADF` if the descriptor is not open, `ENOSPC` at the user's limit of watches, `ENOMEM`: see epoll_ctl(2),
    /// kevent(2). [`io::ErrorKind::Unsupported`] for [`Interest::PRIORITY`] on platforms other than Linux. After an error
    /// there is no wait, and whoever else was waiting for the descriptor is answered with [`Ready::ERROR`].
    pub fn wait(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        token: Token,
        now: Instant,
    ) -> io::Result<Wait> {
        let driver = self.driver.as_mut();
        self.registry
            .wait(driver, descriptor, owner, interest, token, now)
    }

    /// Ends a wait, answered or not, and returns its answer: [`Ready::EMPTY`] if there was none, or if the wait had ended
    /// already. Never a system call.
    pub fn end(&mut self, wait: WaitId) -> Ready {
        self.registry.end(wait)
    }

    /// What is known about a descriptor: nothing, unless it is registered by the same owner.
    ///
    /// [`CachedReadiness::Drained`](crate::CachedReadiness::Drained) means that an attempt can be left out.
    pub fn cached_readiness(&self, descriptor: Descriptor, owner: OwnerId) -> DescriptorReadiness {
        self.registry.cached_readiness(descriptor, owner)
    }

    /// Notes what a non-blocking system call of the caller's has just seen in the directions of `interest`.
    ///
    /// To be called right after the system call: a poll in between would be forgotten. Nothing is noted for a descriptor
    /// that is not registered, or not by this owner.
    pub fn attempted(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        attempt: Attempt,
    ) {
        self.registry
            .attempted(descriptor, owner, interest, attempt);
    }

    /// The tokens of all unanswered waits for the descriptor, first come first: for telling just some of them something
    /// the kernel does not know, such as that their owner is about to close it.
    pub fn waiters(&self, descriptor: Descriptor) -> Vec<Token> {
        self.registry.waiters(descriptor)
    }

    /// The descriptor is about to be closed by the object with this owner: what is registered for it is forgotten
    /// without a system call, if nobody waits for it. Cheaper than [`Selector::deregister`], and enough for an owner that
    /// knows of all its own waits. Should the close not take place, or a duplicate keep the file alive, nothing is lost:
    /// the next wait registers again.
    pub fn note_close(&mut self, descriptor: Descriptor, owner: OwnerId) {
        self.registry.note_close(descriptor, owner);
    }

    /// The descriptor is about to be closed: ends its registration, and answers whoever waits for it with
    /// [`Ready::ERROR`]; the next poll has their events.
    pub fn deregister(&mut self, descriptor: Descriptor) {
        self.registry.deregister(self.driver.as_mut(), descriptor);
    }

    /// Waits for events, for at most `timeout` (None: until there is something; zero: not at all), and appends one for
    /// each wait that is answered.
    ///
    /// It returns early, possibly without an event, after a signal, after a wake, and when a re-arm falls due
    /// ([`Selector::next_rearm`]; `now` tells how far off that is).
    ///
    /// # Errors
    ///
    /// Those of the driver; none is known to occur as long as it lives.
    pub fn poll(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
        now: Instant,
    ) -> io::Result<()> {
        let timeout = if timeout == Some(Duration::ZERO) || self.has_answers() {
            Some(Duration::ZERO)
        } else {
            self.until_rearm(timeout, now)
        };
        self.driver.poll(&mut self.reported, timeout)?;
        self.registry.statistics.polls += 1;
        for event in &self.reported {
            if event.ready == Ready::COMPLETED {
                events.push(*event);
            } else {
                self.registry.event(self.driver.as_mut(), *event, events);
            }
        }
        self.registry.deliver(events);
        Ok(())
    }

    /// When [`Selector::rearm`] next has something to do; None if every wait was armed again already.
    pub fn next_rearm(&self) -> Option<Instant> {
        self.registry.next_rearm()
    }

    /// Arms every wait that has been idle for 100 ms at `now` again, once in its life.
    ///
    /// This heals what happened behind the selector's back: descriptors closed, reopened or replaced without a word. Waits
    /// of descriptors that turn out to be closed are answered with [`Ready::ERROR`], appended to `events`.
    pub fn rearm(&mut self, now: Instant, events: &mut Events) {
        self.registry.rearm(self.driver.as_mut(), now, events);
    }

    /// What has been done so far.
    pub fn statistics(&self) -> &Statistics {
        &self.registry.statistics
    }

    /// The driver's own descriptor, for sleeping on; see [`Driver::descriptor`].
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.driver.descriptor()
    }

    /// What the driver can carry out by itself; None if it knows readiness only.
    pub fn operations(&mut self) -> Option<&mut dyn Operations> {
        self.driver.operations()
    }

    /// What other threads end a poll with.
    pub fn waker(&self) -> Arc<dyn Wake> {
        self.driver.waker()
    }

    /// Are there answers that no event of the kernel's will announce?
    pub(crate) fn has_answers(&self) -> bool {
        self.registry.has_answers()
    }

    /// The shorter of `limit` and the time left until a re-arm is due.
    pub(crate) fn until_rearm(&self, limit: Option<Duration>, now: Instant) -> Option<Duration> {
        let due = self.next_rearm();
        let left = due.map(|due| due.saturating_duration_since(now));
        limit.into_iter().chain(left).min()
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Selector")
            .field("backend", &self.backend)
            .field("statistics", self.statistics())
            .finish_non_exhaustive()
    }
}
