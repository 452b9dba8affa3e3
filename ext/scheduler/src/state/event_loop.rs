//! The reactor of a scheduler: open or closed, awake or asleep, in real or in virtual time.

use std::{
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use reactor::{Backend, Deadline, Events, Handle, Reactor, Sleep, TimerId, Token};

use crate::state::virtual_clock::VirtualClock;

/// The first sleep in which only an `unblock` can wake a fiber is this long, and later ones up to 16 times as long.
const FIRST_DEADLOCK_CHECK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct EventLoop {
    reactor: Option<Reactor>,
    backend: Option<Backend>,
    /// Made for the first [`EventLoop::weak_handle`].
    handle: Option<Arc<Handle>>,
    events: Events,
    is_sleeping: bool,
    is_closed: bool,
    /// The last poll has failed.
    has_failed: bool,
    /// Sleeps in a row in which only an `unblock` could wake a fiber.
    idle_sleeps: u32,
    virtual_clock: Option<VirtualClock>,
}

impl EventLoop {
    /// False, and nothing done, if it was open before.
    pub fn open(&mut self, reactor: Reactor) -> bool {
        if self.reactor.is_some() || self.is_closed {
            return false;
        }
        self.backend = reactor.backend();
        self.reactor = Some(reactor);
        true
    }

    /// Releases the reactor's descriptors, for good.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.handle = None;
        self.reactor = None;
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub fn is_usable(&self) -> bool {
        !self.is_closed && self.reactor.is_some()
    }

    pub fn backend(&self) -> Option<Backend> {
        self.backend
    }

    pub fn reactor(&self) -> Option<&Reactor> {
        self.reactor.as_ref()
    }

    pub fn reactor_mut(&mut self) -> Option<&mut Reactor> {
        self.reactor.as_mut()
    }

    /// A handle for objects that may outlive the loop: it keeps no descriptor open. `None` once closed.
    pub fn weak_handle(&mut self) -> Option<Weak<Handle>> {
        let reactor = self.reactor.as_ref()?;
        let handle = self
            .handle
            .get_or_insert_with(|| Arc::new(reactor.handle()));
        Some(Arc::downgrade(handle))
    }

    /// The time of the last poll.
    pub fn clock(&self) -> Option<Instant> {
        self.reactor.as_ref().map(Reactor::clock)
    }

    // --- polling and sleeping ------------------------------------------------------------------------------------

    /// Collects what the kernel, the timers and other threads have, without blocking. `None` once closed. It fails if the second
    /// poll in a row has failed.
    pub fn collect(&mut self) -> std::io::Result<Option<Events>> {
        let Some(reactor) = &mut self.reactor else {
            return Ok(None);
        };
        self.events.clear();
        match reactor.collect(&mut self.events) {
            Ok(()) => self.has_failed = false,
            // The next poll shows whether the error lasts. No event is lost.
            Err(_) if !self.has_failed => self.has_failed = true,
            Err(error) => return Err(error),
        }
        Ok(Some(std::mem::take(&mut self.events)))
    }

    /// Gives the memory of the events back.
    pub fn reuse(&mut self, events: Events) {
        self.events = events;
    }

    /// Begins a sleep. `only_unblock_helps`: no event of the kernel and no timer can wake a fiber, so the sleep is short
    /// and the caller looks for a deadlock after it, unless the sleep has a limit of its own.
    pub fn begin_sleep(
        &mut self,
        limit: Option<Duration>,
        only_unblock_helps: bool,
    ) -> Option<(Sleep, Handle)> {
        let reactor = self.reactor.as_mut()?;
        let is_idle = only_unblock_helps && reactor.timers() == 0;
        self.idle_sleeps = if is_idle { self.idle_sleeps + 1 } else { 0 };
        let limit = limit.or(is_idle.then(|| deadlock_check_interval(self.idle_sleeps)));
        self.is_sleeping = true;
        Some((reactor.sleep(limit), reactor.handle()))
    }

    pub fn end_sleep(&mut self) {
        self.is_sleeping = false;
    }

    pub fn is_sleeping(&self) -> bool {
        self.is_sleeping
    }

    /// Whether the last sleep was one in which only an `unblock` could wake a fiber.
    pub fn slept_idle(&self) -> bool {
        self.idle_sleeps > 0
    }

    /// Ends the sleep of the thread that polls. False if it does not sleep.
    pub fn wake_thread(&self) -> bool {
        if let Some(reactor) = self.reactor.as_ref().filter(|_| self.is_sleeping) {
            _ = reactor.handle().wake();
        }
        self.is_sleeping
    }

    // --- timers --------------------------------------------------------------------------------------------------

    /// The point that far from now on the timers' clock. `None` for no limit, and for [`Duration::MAX`], which never comes.
    pub fn deadline(&self, limit: Option<Duration>) -> Option<Deadline> {
        let limit = limit.filter(|limit| *limit != Duration::MAX)?;
        Some(self.reactor.as_ref()?.deadline(limit))
    }

    /// The timer of a wait that ends at the deadline.
    pub fn timer(&mut self, deadline: Option<Deadline>, token: Token) -> Option<TimerId> {
        Some(self.reactor.as_mut()?.timer(deadline?, token))
    }

    pub fn cancel_timer(&mut self, timer: Option<TimerId>) {
        if let (Some(reactor), Some(timer)) = (&mut self.reactor, timer) {
            reactor.cancel(timer);
        }
    }

    // --- virtual time --------------------------------------------------------------------------------------------

    /// Freezes the clock of sleeps and timeouts. False if it was frozen before, or if the loop is closed.
    pub fn freeze_clock(&mut self, settle: Duration) -> bool {
        let Some(reactor) = self.reactor.as_mut().filter(|r| !r.is_clock_frozen()) else {
            return false;
        };
        reactor.freeze_clock();
        self.virtual_clock = Some(VirtualClock::new(reactor.now(), settle));
        true
    }

    pub fn is_virtual(&self) -> bool {
        self.virtual_clock.is_some()
    }

    pub fn virtual_clock_mut(&mut self) -> Option<&mut VirtualClock> {
        self.virtual_clock.as_mut()
    }

    /// Virtual time since it began; `None` if time is real.
    pub fn virtual_elapsed(&self) -> Option<Duration> {
        let clock = self.virtual_clock.as_ref()?;
        Some(clock.elapsed(self.reactor.as_ref()?.now()))
    }

    /// How long to wait for the outside before the clock advances; `None` if it does not: time is real, the clock is held,
    /// or there is no timer to advance to.
    pub fn settle(&self) -> Option<Duration> {
        let clock = self.virtual_clock.as_ref()?;
        let has_timers = self.reactor.as_ref().is_some_and(|r| r.timers() > 0);
        clock.settle().filter(|_| has_timers)
    }

    pub fn advance_to_next_timer(&mut self) {
        if let Some(reactor) = &mut self.reactor {
            reactor.advance_to_next_timer();
        }
    }
}

/// How long to sleep before the next search for a deadlock: the first comes soon, later ones are rare.
fn deadlock_check_interval(idle_sleeps: u32) -> Duration {
    FIRST_DEADLOCK_CHECK * (1 << idle_sleeps.saturating_sub(1).min(4))
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc, time::Duration};

    use reactor::{
        Driver, Events, Interest, Reactor, Ready, Registration, Reregistration, Token, Wake,
        mock::Mock,
    };

    use super::{EventLoop, deadlock_check_interval};

    fn open() -> EventLoop {
        let mut event_loop = EventLoop::default();
        let (driver, _) = Mock::new();
        assert!(event_loop.open(Reactor::with_driver(Box::new(driver))));
        event_loop
    }

    #[test]
    fn a_loop_opens_and_closes_once() {
        let mut event_loop = open();
        assert!(!event_loop.open(Reactor::with_driver(Box::new(Mock::new().0))));
        assert!(event_loop.is_usable());
        event_loop.close();
        assert!(event_loop.is_closed() && !event_loop.is_usable());
        assert!(!event_loop.open(Reactor::with_driver(Box::new(Mock::new().0))));
        assert!(event_loop.begin_sleep(None, true).is_none());
        assert!(event_loop.collect().unwrap().is_none());
        assert!(!event_loop.freeze_clock(Duration::ZERO));
    }

    /// Its first polls fail.
    struct Failing(Box<dyn Driver>, u32);

    impl Driver for Failing {
        fn register(&mut self, on: i32, token: Token, what: Interest) -> io::Result<Registration> {
            self.0.register(on, token, what)
        }

        fn reregister(
            &mut self,
            on: i32,
            token: Token,
            what: Interest,
        ) -> io::Result<Reregistration> {
            self.0.reregister(on, token, what)
        }

        fn deregister(&mut self, on: i32) -> io::Result<()> {
            self.0.deregister(on)
        }

        fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
            if self.1 > 0 {
                self.1 -= 1;
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.0.poll(events, timeout)
        }

        fn waker(&self) -> Arc<dyn Wake> {
            self.0.waker()
        }

        fn descriptor(&self) -> Option<i32> {
            self.0.descriptor()
        }
    }

    #[test]
    fn a_poll_that_fails_once_is_no_error_and_loses_no_event() {
        for (failures, is_error) in [(1, false), (2, true)] {
            let mut event_loop = EventLoop::default();
            let driver = Failing(Box::new(Mock::new().0), failures);
            let reactor = Reactor::with_driver(Box::new(driver));
            reactor.handle().notify(Token::new(1, 0)).unwrap();
            event_loop.open(reactor);
            assert!(event_loop.collect().unwrap().unwrap().is_empty());
            assert_eq!(event_loop.collect().is_err(), is_error);
            if is_error {
                let events = event_loop.collect().unwrap().unwrap();
                assert_eq!(events.len(), 1);
            }
        }
    }

    #[test]
    fn searches_for_a_deadlock_become_rare() {
        let milliseconds = |sleeps| deadlock_check_interval(sleeps).as_millis();
        assert_eq!([100, 200, 1600, 1600], [1, 2, 5, 50].map(milliseconds));
        let mut event_loop = open();
        let (sleep, _) = event_loop.begin_sleep(None, true).unwrap();
        assert!(sleep.timeout().unwrap() <= Duration::from_millis(100));
        assert!(event_loop.is_sleeping() && event_loop.slept_idle());
        event_loop.end_sleep();
        drop(event_loop.begin_sleep(None, false).unwrap());
        assert!(!event_loop.slept_idle());
        assert!(event_loop.wake_thread());
        event_loop.end_sleep();
        assert!(!event_loop.wake_thread());
    }

    #[test]
    fn a_frozen_clock_advances_to_the_next_timer() {
        let mut event_loop = open();
        assert_eq!(None, event_loop.virtual_elapsed());
        assert!(event_loop.freeze_clock(Duration::from_millis(3)));
        assert!(!event_loop.freeze_clock(Duration::from_millis(3)));
        assert_eq!(None, event_loop.settle());
        let hour = Some(Duration::from_secs(3600));
        let deadline = event_loop.deadline(hour);
        event_loop.timer(deadline, Token::new(1, 1));
        assert_eq!(Some(Duration::from_millis(3)), event_loop.settle());
        event_loop.virtual_clock_mut().unwrap().hold();
        assert_eq!(None, event_loop.settle());
        event_loop.advance_to_next_timer();
        assert_eq!(hour, event_loop.virtual_elapsed());
        let events = event_loop.collect().unwrap().unwrap();
        assert_eq!(Ready::ELAPSED, events[0].ready);
    }
}
