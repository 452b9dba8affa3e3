//! Driver and registry, put together.

use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    backend::Backend,
    driver::{Descriptor, Driver, Wake},
    event::{Events, Ready},
    identity::Identity,
    interest::Interest,
    registry::{Attempt, Known, Registry, Statistics, Wait},
    token::Token,
    waiters::WaitId,
};

/// Waits on descriptors and remembers what it knows of them. See [`Registry`](crate::registry) for how.
///
/// Descriptors are borrowed: they stay the caller's, who may close them at any time and had better say so before
/// ([`forget`](Selector::forget)). A waiter's token is its own choice; several waits may share one.
pub struct Selector {
    driver: Box<dyn Driver>,
    backend: Option<Backend>,
    registry: Registry,
    reported: Events,
}

impl Selector {
    /// A selector on this backend, or on the native one.
    ///
    /// # Errors
    ///
    /// Of [`Backend::open`].
    pub fn open(choice: Option<Backend>) -> io::Result<Self> {
        let (backend, driver) = Backend::open(choice)?;
        let mut selector = Self::with_driver(driver);
        selector.backend = Some(backend);
        Ok(selector)
    }

    /// A selector on a driver of one's own.
    pub fn with_driver(driver: Box<dyn Driver>) -> Self {
        Self {
            driver,
            backend: None,
            registry: Registry::default(),
            reported: Events::default(),
        }
    }

    /// The backend, unless the driver is one's own.
    pub fn backend(&self) -> Option<Backend> {
        self.backend
    }

    /// Begins a wait for any of the directions. `now` is the time, as old as the caller likes.
    ///
    /// # Errors
    ///
    /// EBADF if the descriptor is not open; ENOSPC, ENOMEM of epoll_ctl(2). Then nothing is left registered for it.
    pub fn wait(
        &mut self,
        descriptor: Descriptor,
        identity: Identity,
        interest: Interest,
        token: Token,
        now: Instant,
    ) -> io::Result<Wait> {
        let driver = self.driver.as_mut();
        self.registry
            .wait(driver, descriptor, identity, interest, token, now)
    }

    /// Ends a wait and tells what answered it: nothing ([`Ready::EMPTY`]) if it is ended early, or a second time.
    pub fn end(&mut self, wait: WaitId) -> Ready {
        self.registry.end(wait)
    }

    /// What is known of a descriptor of this object, without asking the kernel.
    pub fn known(&self, descriptor: Descriptor, identity: Identity) -> Known {
        self.registry.known(descriptor, identity)
    }

    /// Tells what a system call of the caller's own has just seen.
    pub fn attempted(
        &mut self,
        descriptor: Descriptor,
        identity: Identity,
        interest: Interest,
        attempt: Attempt,
    ) {
        self.registry
            .attempted(descriptor, identity, interest, attempt);
    }

    /// The descriptor is about to be closed. Those who wait for it are answered with [`Ready::ERROR`] at the next poll.
    pub fn forget(&mut self, descriptor: Descriptor) {
        self.registry.forget(self.driver.as_mut(), descriptor);
    }

    /// Appends what has come for the waiters, waiting for it at most so long (`None`: for ever).
    ///
    /// # Errors
    ///
    /// What makes the driver unusable.
    pub fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = if self.registry.has_answers() {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        self.registry.statistics.polls += 1;
        self.reported.clear();
        self.driver.poll(&mut self.reported, timeout)?;
        for event in self.reported.iter() {
            self.registry.report(self.driver.as_mut(), *event, events);
        }
        self.registry.take_answers(events);
        Ok(())
    }

    /// When a wait that is still unanswered is to be re-armed.
    pub fn next_rearm(&self) -> Option<Instant> {
        self.registry.next_rearm()
    }

    /// Re-arms the waits that have been unanswered for 100 ms, once each, and appends what that finds out.
    pub fn rearm(&mut self, now: Instant, events: &mut Events) {
        self.registry.rearm(self.driver.as_mut(), now);
        self.registry.take_answers(events);
    }

    /// Whether a poll would return at once because of [`forget`](Selector::forget).
    pub fn has_answers(&self) -> bool {
        self.registry.has_answers()
    }

    /// What happened so far.
    pub fn statistics(&self) -> &Statistics {
        &self.registry.statistics
    }

    /// As [`Driver::descriptor`].
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.driver.descriptor()
    }

    /// As [`Driver::waker`].
    pub fn waker(&self) -> Arc<dyn Wake> {
        self.driver.waker()
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selector")
            .field("backend", &self.backend)
            .field("statistics", self.statistics())
            .finish_non_exhaustive()
    }
}
