//! How long turns and sleeps take.

use std::time::{Duration, Instant};

use crate::histogram::Histogram;

/// Turns that end within this time are recorded together.
const BATCH: Duration = Duration::from_millis(1);

/// How long a reactor's turns took, how long it slept, and how late its timers were. It never reads the clock itself.
///
/// A turn lasts from one [`Reactor::collect`](crate::Reactor::collect) to the next, or to a
/// [`Reactor::sleep`](crate::Reactor::sleep) that is not cut short. The first began when the reactor was opened. For
/// turns that follow one another within a millisecond only the mean is recorded, so that a short turn costs one
/// comparison.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use reactor::{Events, Reactor};
///
/// let mut reactor = Reactor::open(None)?;
/// reactor.turn(&mut Events::new(), Some(Duration::from_millis(5)))?;
/// assert!(reactor.times().asleep(Instant::now()) >= Duration::from_millis(4));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct TurnTimes {
    turns: Histogram,
    pub(super) lateness: Histogram,
    opened_at: Instant,
    asleep: Duration,
    asleep_since: Option<Instant>,
    /// Turns since `batch_began` not recorded yet. All ended before `batch_ends`.
    batched: u64,
    batch_began: Instant,
    batch_ends: Instant,
}

impl TurnTimes {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            turns: Histogram::new(),
            lateness: Histogram::new(),
            opened_at: now,
            asleep: Duration::ZERO,
            asleep_since: None,
            batched: 0,
            batch_began: now,
            batch_ends: now,
        }
    }

    /// Called when a collect begins; the previous one began at `before`.
    #[inline(always)] // a comparison and an addition, unless the loop has slept or a millisecond has passed
    pub(super) fn on_collect(&mut self, before: Instant, now: Instant) {
        if now < self.batch_ends {
            self.batched += 1;
        } else {
            self.begin_batch(before, now);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_batch(&mut self, before: Instant, now: Instant) {
        match self.asleep_since.take() {
            Some(since) => self.asleep += now.saturating_duration_since(since),
            None => {
                self.end_batch(before);
                self.turns.record(now.saturating_duration_since(before));
            }
        }
        self.batch_began = now;
        self.batch_ends = now + BATCH;
    }

    /// Records the turns of the batch, the last of which ended at `end`.
    fn end_batch(&mut self, end: Instant) {
        if self.batched > 0 {
            let sum = end.saturating_duration_since(self.batch_began);
            self.turns.record_mean(sum, self.batched);
            self.batched = 0;
        }
    }

    /// Called when a sleep begins; the collect before it began at `before`.
    pub(super) fn begin_sleep(&mut self, before: Instant, now: Instant) {
        if self.asleep_since.is_none() {
            self.end_batch(before);
            self.asleep_since = Some(now);
            self.batch_ends = before; // the next collect ends the sleep
        }
    }

    /// Whether a sleep is in progress, not yet ended by a collect.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep_since.is_some()
    }

    /// The lengths of the turns so far.
    pub fn turns(&self) -> &Histogram {
        &self.turns
    }

    /// How long after its deadline each timer was reported, on the timers' clock.
    pub fn lateness(&self) -> &Histogram {
        &self.lateness
    }

    /// How long the reactor has slept so far, including a sleep in progress.
    pub fn asleep(&self, now: Instant) -> Duration {
        let sleep = self
            .asleep_since
            .map(|since| now.saturating_duration_since(since));
        self.asleep + sleep.unwrap_or_default()
    }

    /// How long ago the reactor was opened.
    pub fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.opened_at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::TurnTimes;

    #[test]
    fn a_sleep_is_no_part_of_a_turn() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut times = TurnTimes::new(start);
        times.begin_sleep(start, at(0));
        times.on_collect(start, at(10));
        times.on_collect(at(10), at(13));
        times.begin_sleep(at(13), at(14));
        times.begin_sleep(at(13), at(15));
        assert_eq!(Duration::from_millis(16), times.asleep(at(20)), "it sleeps");
        times.on_collect(at(13), at(34));
        times.on_collect(at(34), at(36));
        assert_eq!(Duration::from_millis(30), times.asleep(at(40)));
        assert_eq!(Duration::from_millis(40), times.age(at(40)));
        assert_eq!(Duration::from_millis(5), times.turns().sum());
        assert_eq!(2, times.turns().counts().iter().sum::<u64>());
        assert_eq!(Duration::from_millis(3), times.turns().max());
    }

    #[test]
    fn short_turns_are_recorded_with_their_mean() {
        let start = Instant::now();
        let at = |microseconds| start + Duration::from_micros(microseconds);
        let mut times = TurnTimes::new(start);
        times.begin_sleep(start, start);
        let mut before = start;
        for collect in [0, 1, 4, 10, 900, 1100, 5000, 5002, 5006] {
            times.on_collect(before, at(collect));
            before = at(collect);
        }
        times.begin_sleep(before, at(5007));
        let counts = times.turns().counts();
        let counted: Vec<_> = counts.iter().filter(|count| **count > 0).collect();
        assert_eq!(
            [2, 1, 4, 1][..],
            counted.into_iter().copied().collect::<Vec<_>>()
        );
        assert_eq!(
            (2, 4),
            (counts[3], counts[76]),
            "6 us by 2, and 900 us by 4"
        );
        assert_eq!(Duration::from_micros(5006), times.turns().sum());
        assert_eq!(Duration::from_micros(3900), times.turns().max());
    }
}
