//! Time for tests: a clock that stands still while fibers run, and advances to the next timer when none can.
//!
//! The reactor keeps the clock. Here is when it may advance: after the outside has had `settle` of real time to wake a
//! fiber, and while no hold is on. The rules are those of `lib/reactor/testing.rb`.

use std::time::{Duration, Instant};

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
