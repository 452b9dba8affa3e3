//! A driver, and the registry that makes most calls to it unnecessary.

mod rearming;
mod registration;

use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    backend::{Backend, KnownDriver},
    descriptor::{Descriptor, bad_descriptor},
    driver::{Driver, Operations, Wake},
    event::{Events, Ready},
    interest::Interest,
    registry::{Attempt, DescriptorReadiness, Entry, OwnerId, Registry, Statistics, Wait, WaitId},
    token::Token,
};

use rearming::Rearming;

/// Waits for descriptors to become ready.
///
/// For each descriptor and direction, a selector caches whether it is registered, what the kernel has reported, and
/// what the caller's own system calls have found ([`Selector::attempted`]). A wait makes a system call only when the
/// cache has no answer.
///
/// Each wait has an id, its [`WaitId`], from [`Selector::wait`] to [`Selector::end`]. It is answered at most once, by
/// an event with its token.
///
/// Only one thread at a time may use it, in one process: a child of fork(2) must not use its parent's selector, because
/// both share the kernel's queue.
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
    driver: KnownDriver,
    registry: Registry,
    rearming: Rearming,
    /// Waits answered outside an event, for the next poll to report.
    answered: Vec<WaitId>,
    statistics: Statistics,
    /// The events of the last poll, except those applied at once. Kept to reuse its memory.
    reported: Events,
    backend: Option<Backend>,
}

impl Selector {
    /// Opens a selector on the chosen backend. Without a choice, see [`Backend::open`].
    ///
    /// # Errors
    ///
    /// See [`Backend::open`].
    pub fn open(choice: Option<Backend>) -> io::Result<Self> {
        let (backend, driver) = Backend::open_known(choice)?;
        Ok(Self::new(driver, Some(backend)))
    }

    /// Creates a selector on a caller's driver.
    pub fn with_driver(driver: Box<dyn Driver>) -> Self {
        Self::new(KnownDriver::Other(driver), None)
    }

    fn new(driver: KnownDriver, backend: Option<Backend>) -> Self {
        Self {
            driver,
            registry: Registry::default(),
            rearming: Rearming::default(),
            answered: Vec::new(),
            statistics: Statistics::default(),
            reported: Events::new(),
            backend,
        }
    }

    /// The backend; None for a caller's driver.
    pub fn backend(&self) -> Option<Backend> {
        self.backend
    }

    /// Starts to wait until the descriptor is ready for at least one direction of `interest`. The event will carry `token`.
    ///
    /// Each descriptor and direction may have any number of waits: an event answers all of them. Several waits may
    /// share a token. `now` is the start of the wait, for [`Selector::rearm`].
    ///
    /// End a [`Wait::Pending`] exactly once with [`Selector::end`], whether it was answered or not.
    ///
    /// # Errors
    ///
    /// `EBADF` if the descriptor is not open, `ENOSPC` at the user's limit of watches, `ENOMEM`: see epoll_ctl(2) and
    /// kevent(2). [`io::ErrorKind::Unsupported`] for [`Interest::PRIORITY`] with kqueue and IOCP. On error
    /// this wait does not exist, and the descriptor's other waits are answered with [`Ready::ERROR`].
    #[inline(always)] // only the usual wait remains, which makes no call
    pub fn wait(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        token: Token,
        now: Instant,
    ) -> io::Result<Wait> {
        let slot = Registry::slot(descriptor).ok_or_else(bad_descriptor)?;
        self.statistics.waits += 1;
        // Drained directions are never marked spurious: an attempt removes the mark, and an event ends the drained
        // state.
        let entry = self.registry.get_mut(slot);
        let Some(entry) = entry.filter(|entry| entry.cache.is_drained(owner, interest)) else {
            return self.arm(descriptor, slot, owner, interest, token, now);
        };
        self.statistics.skipped += 1;
        self.rearming.begin(now);
        Ok(Wait::Pending(entry.begin(slot, token, interest, now)))
    }

    /// Ends a wait and returns its answer: [`Ready::EMPTY`] if it had none, or has already ended. Makes no system call.
    #[inline]
    pub fn end(&mut self, wait: WaitId) -> Ready {
        let entry = self.registry.get_mut(wait.slot);
        entry.map_or(Ready::EMPTY, |entry| entry.waits.end(wait.generation))
    }

    /// The cached readiness of a descriptor: empty unless the same owner registered it.
    ///
    /// If a direction is [`CachedReadiness::Drained`](crate::CachedReadiness::Drained), skip the attempt: the attempt
    /// would fail with `EAGAIN`.
    pub fn cached_readiness(&self, descriptor: Descriptor, owner: OwnerId) -> DescriptorReadiness {
        match self.entry(descriptor) {
            Some(entry) if entry.cache.is_owner(owner) => entry.cache.readiness(),
            _ => DescriptorReadiness::default(),
        }
    }

    /// Reports the outcome of a caller's non-blocking system call in the directions of `interest`.
    ///
    /// Call it right after the system call: otherwise it would overwrite the result of a poll in between. No effect if
    /// the descriptor is not registered by this owner.
    #[inline]
    pub fn attempted(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        attempt: Attempt,
    ) {
        if let Some(entry) = self.entry_of(descriptor, owner) {
            entry.cache.attempted(interest, attempt);
        }
    }

    /// The tokens of all unanswered waits for the descriptor, oldest first. With them a caller can notify waits of
    /// something that the kernel does not report, for example that the owner is about to close the descriptor.
    pub fn waiters(&self, descriptor: Descriptor) -> Vec<Token> {
        let entry = self.entry(descriptor);
        entry.map_or_else(Vec::new, |entry| entry.waits.tokens().collect())
    }

    /// Call this before the owner closes the descriptor. If no wait is left, the entry is cleared without a system
    /// call: close(2) ends the registration in the kernel. This saves owners that know all their waits the system call
    /// of [`Selector::deregister`]. If the close does not happen, or a duplicate keeps the file open, the next wait
    /// registers again. The driver is told too ([`Driver::note_close`]).
    pub fn note_close(&mut self, descriptor: Descriptor, owner: OwnerId) {
        let entry = self.entry_of(descriptor, owner);
        if let Some(entry) = entry.filter(|entry| entry.waits.wanted() == 0) {
            entry.cache.clear();
            self.statistics.closed += 1;
            self.driver.get_mut().note_close(descriptor);
        }
    }

    /// Ends the registration of a descriptor that is about to be closed, and answers its waits with [`Ready::ERROR`].
    /// The next poll reports these events.
    pub fn deregister(&mut self, descriptor: Descriptor) {
        if let Some((slot, _)) = self.registered(descriptor) {
            self.end_registration(slot);
        }
    }

    /// Waits at most `timeout` for events (None: no limit), and appends one event for each answered wait.
    ///
    /// It returns early, possibly without events, after a signal, after a wake, and when a re-arm is due
    /// ([`Selector::next_rearm`], compared with `now`).
    ///
    /// # Errors
    ///
    /// The errors of [`Driver::poll`].
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
        let (registry, statistics) = (&mut self.registry, &mut self.statistics);
        self.driver.poll(&mut self.reported, timeout, |event| {
            let is_answer = registry.answer(event, events);
            statistics.events += u64::from(is_answer);
            is_answer
        })?;
        self.end_poll(events);
        Ok(())
    }

    /// Applies the events that the driver's poll reported.
    fn end_poll(&mut self, events: &mut Events) {
        self.statistics.polls += 1;
        if !self.reported.is_empty() {
            self.apply_reported(events);
        }
        if self.has_answers() {
            self.deliver(events);
        }
    }

    #[inline(never)] // events from other drivers, and mio's rare ones
    fn apply_reported(&mut self, events: &mut Events) {
        let reported = std::mem::take(&mut self.reported);
        for event in &reported {
            if event.ready == Ready::COMPLETED {
                events.push(*event);
            } else {
                self.event(*event, events);
            }
        }
        self.reported = reported; // keeps its memory
    }

    /// Appends the answers given outside events, except for waits that have ended since.
    #[inline(never)] // few polls have any
    fn deliver(&mut self, events: &mut Events) {
        for WaitId { slot, generation } in self.answered.drain(..) {
            let entry = self.registry.get_mut(slot);
            events.extend(entry.and_then(|entry| entry.waits.answered(generation)));
        }
    }

    /// When [`Selector::rearm`] next searches for idle waits; None if no wait has begun since a search that found none.
    pub fn next_rearm(&self) -> Option<Instant> {
        self.rearming.next
    }

    /// Re-arms each wait that is unanswered for 100 ms at `now`, and then again at intervals that grow to 25.6 s. One
    /// call arms a limited number of waits.
    ///
    /// It repairs waits whose descriptor was closed, reopened or replaced without [`Selector::deregister`] or
    /// [`Selector::replaced`]. If the descriptor is closed, its waits are answered with [`Ready::ERROR`], appended to
    /// `events`.
    ///
    /// # Errors
    ///
    /// The errors of [`Driver::poll`]: if an [`Attempt::Short`] let a wait skip its system call, this polls to check
    /// for more bytes.
    #[inline]
    pub fn rearm(&mut self, now: Instant, events: &mut Events) -> io::Result<()> {
        match self.rearming.next {
            Some(due) if due <= now => self.rearm_idle(now, events),
            _ => Ok(()),
        }
    }

    /// Call this when the descriptor was made to refer to another file by dup2(2). It is registered anew at once, and
    /// its waits continue with the new file. If the descriptor is closed, the next poll answers its waits with
    /// [`Ready::ERROR`].
    pub fn replaced(&mut self, descriptor: Descriptor) {
        if let Some((slot, registered)) = self.registered(descriptor) {
            // On error all waits are answered: their own system calls will return the error.
            _ = self.renew(slot, registered);
        }
    }

    /// Call this when the owner has shut down the reading half: the next poll answers waits for reading with
    /// [`Ready::READ_CLOSED`]. On Windows the system's own poll does not report the shutdown.
    pub fn note_read_shutdown(&mut self, descriptor: Descriptor) {
        if let Some((slot, _)) = self.registered(descriptor) {
            self.registry.claim(slot).cache.observe(Ready::READ_CLOSED);
            self.answer_outside(slot, Some(Ready::READ_CLOSED));
        }
    }

    /// The counters.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The driver's own descriptor, to sleep on; see [`Driver::descriptor`].
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.driver.get().descriptor()
    }

    /// Prepares for a thread to sleep; see [`Driver::prepare_sleep`].
    pub(crate) fn prepare_sleep(&mut self) -> Option<Descriptor> {
        self.driver.get_mut().prepare_sleep()
    }

    /// The operations that the driver can carry out itself; None if it only reports readiness.
    pub fn operations(&mut self) -> Option<&mut dyn Operations> {
        self.driver.get_mut().operations()
    }

    /// A waker for other threads.
    pub fn waker(&self) -> Arc<dyn Wake> {
        self.driver.get().waker()
    }

    /// Whether an answer given outside an event awaits the next poll.
    pub(crate) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    fn entry(&self, descriptor: Descriptor) -> Option<&Entry> {
        self.registry.get(Registry::slot(descriptor)?)
    }

    /// The entry of a descriptor registered by this owner.
    #[inline]
    fn entry_of(&mut self, descriptor: Descriptor, owner: OwnerId) -> Option<&mut Entry> {
        let entry = self.registry.get_mut(Registry::slot(descriptor)?);
        entry.filter(|entry| entry.cache.is_owner(owner))
    }

    /// The slot of a registered descriptor, and its interest.
    fn registered(&self, descriptor: Descriptor) -> Option<(u32, Interest)> {
        let slot = Registry::slot(descriptor)?;
        Some((slot, self.registry.get(slot)?.cache.registered()?))
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
