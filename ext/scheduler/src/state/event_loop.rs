//! A scheduler's reactor: open or closed, awake or asleep, in real or virtual time.

use std::{
    mem::take,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use reactor::{Backend, Deadline, Events, Handle, Reactor, Sleep, TimerId, Token};

use crate::state::{State, wait::WaitHook};

/// The length of the first sleep in which only an `unblock` can wake a fiber. Later ones are up to 16 times as long.
const FIRST_DEADLOCK_CHECK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct EventLoop {
    /// Present while open.
    pub reactor: Option<Reactor>,
    /// Remains known after closing.
    pub backend: Option<Backend>,
    pub is_closed: bool,
    pub is_sleeping: bool,
    /// The events of the last poll; taken out while they are processed.
    pub events: Events,
    /// Created by the first [`EventLoop::weak_handle`].
    handle: Option<Arc<Handle>>,
    /// Whether the last poll failed.
    has_failed: bool,
    /// When the time slice after the last poll began, if that poll may have taken long.
    slice_began: Option<Instant>,
    /// How long that poll took.
    last_poll_took: Duration,
    /// Consecutive sleeps in which only an `unblock` could wake a fiber.
    idle_sleeps: u32,
    virtual_time: Option<VirtualTime>,
}

/// Virtual time: the timers' clock stands still while fibers run. When no fiber can run, the loop waits some real time
/// for outside events, then advances the clock to the next timer. See `lib/reactor/testing.rb` for the rules.
#[derive(Debug)]
struct VirtualTime {
    start: Instant,
    /// How long to wait for outside events before each advance.
    settle: Duration,
    /// While nonzero, the clock does not advance.
    holds: usize,
}

impl EventLoop {
    /// Opens the loop. If it was open before, returns false and does nothing.
    pub fn open(&mut self, reactor: Reactor) -> bool {
        if self.reactor.is_some() || self.is_closed {
            return false;
        }
        self.backend = reactor.backend();
        self.reactor = Some(reactor);
        true
    }

    /// Closes the loop for good. Dropping the returned reactor releases its descriptors.
    fn close(&mut self) -> Option<Reactor> {
        self.is_closed = true;
        self.handle = None;
        self.reactor.take()
    }

    /// A handle for objects that may outlive the loop; it keeps no descriptors open. `None` once closed.
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

    /// When the time slice after the last poll began. Where a poll passes every descriptor to the kernel, the fibers have as
    /// long as the last two took before the slice begins: otherwise the thread would do little else than poll.
    pub fn slice_began(&self) -> Option<Instant> {
        self.slice_began.or_else(|| self.clock())
    }

    // --- polling and sleeping ------------------------------------------------------------------------------------

    /// Collects events from the kernel, timers and other threads, without blocking. `None` once closed. Fails only if two
    /// consecutive polls fail.
    pub fn collect(&mut self) -> std::io::Result<Option<Events>> {
        let Some(reactor) = &mut self.reactor else {
            return Ok(None);
        };
        self.events.clear();
        match reactor.collect(&mut self.events) {
            Ok(()) => self.has_failed = false,
            // The next poll shows whether the error persists. No events are lost.
            Err(_) if !self.has_failed => self.has_failed = true,
            Err(error) => return Err(error),
        }
        if reactor.descriptor().is_none() {
            let ended = Instant::now();
            let took = ended.saturating_duration_since(reactor.clock());
            // In a single long poll, the process may have been stopped.
            let usual = took.min(std::mem::replace(&mut self.last_poll_took, took));
            self.slice_began = Some(ended + usual);
        }
        Ok(Some(take(&mut self.events)))
    }

    /// Begins a sleep. If `only_unblock_helps`, no kernel event or timer can wake a fiber: unless the sleep has its own
    /// limit, it is kept short, and the caller then checks for a deadlock.
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

    /// Whether only an `unblock` could have woken a fiber in the last sleep.
    pub fn slept_idle(&self) -> bool {
        self.idle_sleeps > 0
    }

    /// Ends the sleep of the polling thread. False if it was not asleep.
    pub fn wake_thread(&self) -> bool {
        if let Some(reactor) = self.reactor.as_ref().filter(|_| self.is_sleeping) {
            _ = reactor.handle().wake();
        }
        self.is_sleeping
    }

    // --- timers --------------------------------------------------------------------------------------------------

    /// The deadline `limit` from now on the timers' clock. `None` without a limit, and for [`Duration::MAX`], because
    /// that deadline never comes.
    pub fn deadline(&self, limit: Option<Duration>) -> Option<Deadline> {
        let limit = limit.filter(|limit| *limit != Duration::MAX)?;
        Some(self.reactor.as_ref()?.deadline(limit))
    }

    /// Starts the timer of a wait that ends at the deadline.
    pub fn timer(&mut self, deadline: Option<Deadline>, token: Token) -> Option<TimerId> {
        Some(self.reactor.as_mut()?.timer(deadline?, token))
    }

    pub fn cancel_timer(&mut self, timer: Option<TimerId>) {
        if let (Some(reactor), Some(timer)) = (&mut self.reactor, timer) {
            reactor.cancel(timer);
        }
    }

    // --- virtual time --------------------------------------------------------------------------------------------

    /// Freezes the clock of sleeps and timeouts. False if it was already frozen or the loop is closed.
    pub fn freeze_clock(&mut self, settle: Duration) -> bool {
        let Some(reactor) = self.reactor.as_mut().filter(|r| !r.is_clock_frozen()) else {
            return false;
        };
        reactor.freeze_clock();
        self.virtual_time = Some(VirtualTime {
            start: reactor.now(),
            settle,
            holds: 0,
        });
        true
    }

    pub fn is_virtual(&self) -> bool {
        self.virtual_time.is_some()
    }

    /// The virtual time elapsed since it began; `None` in real time.
    pub fn virtual_elapsed(&self) -> Option<Duration> {
        let time = self.virtual_time.as_ref()?;
        Some(self.reactor.as_ref()?.now() - time.start)
    }

    /// Holds the virtual clock if `begins`; otherwise ends one hold.
    pub fn hold_clock(&mut self, begins: bool) {
        if let Some(time) = &mut self.virtual_time {
            time.holds = match begins {
                true => time.holds + 1,
                false => time.holds.saturating_sub(1),
            };
        }
    }
}

impl State {
    /// Closes the loop for good. The caller runs the returned closure with nothing borrowed and without the GVL. It
    /// releases the descriptors, waits until no worker or driver operation uses a fiber's memory, and drops the jobs of
    /// abandoned fibers.
    pub fn close(&mut self) -> impl FnOnce() + Send + use<> {
        let reactor = self.event_loop.close();
        let (buffers, jobs) = (take(&mut self.worker_buffers), take(&mut self.jobs));
        let unpolled = take(&mut self.unpolled);
        move || {
            drop(reactor);
            drop(unpolled);
            while Arc::strong_count(&buffers) > 1 {
                thread::sleep(Duration::from_millis(1)); // a fiber was abandoned during a read
            }
            drop(buffers); // synchronizes with the workers' writes
            drop(jobs);
        }
    }

    /// How long to wait for outside events before the clock advances. `None` if the clock must not advance: time is
    /// real, the clock is held, there is no timer, a fiber can run, or a fiber waits for work in this process (that
    /// will end by itself).
    pub fn settle_before_advance(&self) -> Option<Duration> {
        let time = self.event_loop.virtual_time.as_ref()?;
        let advances = time.holds == 0
            && self.is_idle()
            && self.event_loop.reactor.as_ref()?.timers() > 0
            && self.parked_in(WaitHook::Other) == 0;
        advances.then_some(time.settle)
    }

    /// Advances the clock to the next timer, unless a fiber can run.
    pub fn advance_if_idle(&mut self) {
        if self.is_idle() {
            if let Some(reactor) = &mut self.event_loop.reactor {
                reactor.advance_to_next_timer();
            }
        }
    }
}

/// How long to sleep before the next deadlock check: the first comes soon, later ones are rare.
fn deadlock_check_interval(idle_sleeps: u32) -> Duration {
    FIRST_DEADLOCK_CHECK * (1 << idle_sleeps.saturating_sub(1).min(4))
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc, time::Duration};

    use reactor::{
        Descriptor, Driver, Events, Interest, Reactor, Ready, Registration, Token, Wake,
    };

    use super::{EventLoop, deadlock_check_interval};
    use crate::state::{State, tests::mock_driver::Mock};

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
        assert!(event_loop.reactor.is_some());
        event_loop.close();
        assert!(event_loop.is_closed && event_loop.reactor.is_none());
        assert!(!event_loop.open(Reactor::with_driver(Box::new(Mock::new().0))));
        assert!(event_loop.begin_sleep(None, true).is_none());
        assert!(event_loop.collect().unwrap().is_none());
        assert!(!event_loop.freeze_clock(Duration::ZERO));
    }

    /// A driver whose first polls fail.
    struct Failing(Box<dyn Driver>, u32);

    impl Driver for Failing {
        fn register(
            &mut self,
            on: Descriptor,
            token: Token,
            what: Interest,
            is_known: bool,
        ) -> io::Result<Registration> {
            self.0.register(on, token, what, is_known)
        }

        fn deregister(&mut self, on: Descriptor) -> io::Result<()> {
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

        fn descriptor(&self) -> Option<Descriptor> {
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
        assert!(event_loop.is_sleeping && event_loop.slept_idle());
        event_loop.is_sleeping = false;
        drop(event_loop.begin_sleep(None, false).unwrap());
        assert!(!event_loop.slept_idle());
        assert!(event_loop.wake_thread());
        event_loop.is_sleeping = false;
        assert!(!event_loop.wake_thread());
    }

    #[test]
    fn a_frozen_clock_advances_to_the_next_timer() {
        let (settle, mut state) = (Some(Duration::from_millis(3)), State::default());
        state.event_loop = open();
        assert_eq!(None, state.event_loop.virtual_elapsed());
        assert!(state.event_loop.freeze_clock(settle.unwrap()));
        assert!(!state.event_loop.freeze_clock(settle.unwrap()));
        assert_eq!(None, state.settle_before_advance());
        let hour = Some(Duration::from_secs(3600));
        let deadline = state.event_loop.deadline(hour);
        state.event_loop.timer(deadline, Token::new(1, 1));
        for (begins, expected) in [(false, settle), (true, None), (true, None), (false, None)] {
            state.event_loop.hold_clock(begins);
            assert_eq!(expected, state.settle_before_advance());
        }
        state.event_loop.hold_clock(false);
        assert_eq!(settle, state.settle_before_advance());
        state.advance_if_idle();
        assert_eq!(hour, state.event_loop.virtual_elapsed());
        let events = state.event_loop.collect().unwrap().unwrap();
        assert_eq!(Ready::ELAPSED, events[0].ready);
    }
}
