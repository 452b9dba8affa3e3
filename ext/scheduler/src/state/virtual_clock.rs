//! Time for tests: a clock that stands still while fibers run, and advances to the next timer when none can.
//!
//! The reactor keeps the clock. Here is when it may advance: after the outside has had `settle` of real time to wake a
//! fiber, and while no hold is on. The rules are those of `lib/reactor/testing.rb`.

use std::time::{Duration, Instant};

use crate::state::{State, wait::WaitHook};

#[derive(Debug)]
pub struct VirtualClock {
    /// The time at which the clock was frozen.
    start: Instant,
    /// How long to wait for the outside before each advance.
    settle: Duration,
    /// While there are any, the clock does not advance.
    holds: usize,
}

impl VirtualClock {
    pub fn new(start: Instant, settle: Duration) -> Self {
        Self {
            start,
            settle,
            holds: 0,
        }
    }

    pub fn elapsed(&self, now: Instant) -> Duration {
        now - self.start
    }

    pub fn hold(&mut self) {
        self.holds += 1;
    }

    pub fn release(&mut self) {
        self.holds = self.holds.saturating_sub(1);
    }

    /// How long to wait for the outside before it advances; `None` while it is held.
    pub fn settle(&self) -> Option<Duration> {
        (self.holds == 0).then_some(self.settle)
    }
}

impl State {
    /// Freezes the clock of sleeps and timeouts. False if it was frozen before, or if the scheduler is closed.
    pub fn freeze_clock(&mut self, settle: Duration) -> bool {
        self.event_loop.freeze_clock(settle)
    }

    pub fn is_virtual(&self) -> bool {
        self.event_loop.is_virtual()
    }

    /// Virtual time since it began; `None` if time is real.
    pub fn virtual_elapsed(&self) -> Option<Duration> {
        self.event_loop.virtual_elapsed()
    }

    /// From true to false the virtual clock does not advance.
    pub fn hold_clock(&mut self, begins: bool) {
        if let Some(clock) = self.event_loop.virtual_clock_mut() {
            match begins {
                true => clock.hold(),
                false => clock.release(),
            }
        }
    }

    /// How long to wait for the outside before the clock advances; `None` if it does not. It does not either while a fiber
    /// waits for work in this process, which ends by itself.
    pub fn settle_before_advance(&self) -> Option<Duration> {
        let settle = self.event_loop.settle().filter(|_| self.is_idle())?;
        let is_working = self
            .fibers
            .records()
            .any(|record| record.wait.goes_on() && record.wait.hook() == WaitHook::Other);
        (!is_working).then_some(settle)
    }

    /// The clock advances to the next timer, unless a fiber can run.
    pub fn advance_if_idle(&mut self) {
        if self.is_idle() {
            self.event_loop.advance_to_next_timer();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::VirtualClock;

    #[test]
    fn holds_are_counted() {
        let settle = Duration::from_millis(5);
        let mut clock = VirtualClock::new(Instant::now(), settle);
        assert_eq!(Some(settle), clock.settle());
        clock.hold();
        clock.hold();
        clock.release();
        assert_eq!(None, clock.settle());
        clock.release();
        clock.release();
        assert_eq!(Some(settle), clock.settle());
    }
}
