//! What the feature `unstable` adds to stable types. It may change in any version.

use std::{io, time::Instant};

use super::{Reactor, TurnTimes};
use crate::{
    backend::{Backend, KnownDriver},
    descriptor::Descriptor,
    driver::{Driver, Operations},
    event::Events,
    registry::{DescriptorReadiness, OwnerId, Statistics},
    timers::Timers,
};

impl Backend {
    /// Opens the driver of the chosen backend, or of the [native](Backend::native) one if `choice` is None.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] with the reason if the chosen backend is not available; there is no silent
    /// fallback. Otherwise the kernel's error: `EMFILE`, `ENFILE`, `ENOMEM` ([`Backend::availability`] tells of what
    /// there is too little: `RLIMIT_MEMLOCK` limits io_uring).
    pub fn open(choice: Option<Self>) -> io::Result<(Self, Box<dyn Driver>)> {
        let (backend, driver) = Self::open_known(choice)?;
        Ok((backend, driver.into_boxed()))
    }
}

impl Reactor {
    /// Creates a reactor on a caller's driver.
    pub fn with_driver(driver: Box<dyn Driver>) -> Self {
        Self::new(KnownDriver::Other(driver), None)
    }

    /// Freezes the timers' clock, for tests. From then on only [`Reactor::advance_to_next_timer`] moves it, and timers
    /// do not end a [`Reactor::sleep`]. It cannot be unfrozen. Waits for descriptors are unaffected.
    pub fn freeze_clock(&mut self) {
        self.frozen_at.get_or_insert_with(Instant::now);
    }

    /// Whether the timers' clock is frozen.
    pub fn is_clock_frozen(&self) -> bool {
        self.frozen_at.is_some()
    }

    /// Moves a frozen clock to the next timer's deadline. The next [`Reactor::collect`] reports the timers due then.
    /// False if there are no timers, or the clock is not frozen.
    pub fn advance_to_next_timer(&mut self) -> bool {
        match (&mut self.frozen_at, self.timers.next()) {
            (Some(clock), Some(next)) => {
                *clock = next.instant().max(*clock);
                true
            }
            _ => false,
        }
    }

    /// The operations that the driver can carry out itself; None if it only reports readiness.
    ///
    /// An operation started here reaches the kernel with the next [`Reactor::collect`]. An event with
    /// [`Ready::COMPLETED`](crate::Ready::COMPLETED) reports its outcome.
    pub fn operations(&mut self) -> Option<&mut dyn Operations> {
        self.wake_sleeper();
        self.driver.get_mut().operations()
    }

    /// How long turns and sleeps took.
    pub fn times(&self) -> &TurnTimes {
        &self.times
    }

    /// The counters of waits and polls.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
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
}

impl Timers {
    /// Removes each timer that is due at `now` and appends its event, [`Ready::ELAPSED`](crate::Ready::ELAPSED), earliest deadline first.
    pub fn expire(&mut self, now: Instant, events: &mut Events) {
        self.expire_late(now, events, |_| ());
    }

    /// Whether there are no timers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
