//! Points in time.

use std::time::{Duration, Instant};

/// A point on the monotonic clock: CLOCK_MONOTONIC, see clock_gettime(2).
///
/// Saturating: durations above 100 years count as 100 years.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use reactor::Deadline;
///
/// let now = Instant::now();
/// let deadline = Deadline::after_from(now, Duration::from_secs(2));
/// assert!(!deadline.is_due(now));
/// assert_eq!(deadline.remaining(now + Duration::from_secs(1)), Duration::from_secs(1));
/// assert!(Deadline::after(Duration::MAX) > deadline);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// 100 years: longer than any process runs, and small enough that an [`Instant`] does not overflow.
    const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

    /// A deadline that is due at once.
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// The deadline `duration` from now.
    pub fn after(duration: Duration) -> Self {
        Self::after_from(Instant::now(), duration)
    }

    /// The deadline `duration` after `now`, for callers that have just read the clock.
    pub fn after_from(now: Instant, duration: Duration) -> Self {
        Self(now.checked_add(duration.min(Self::FAR)).unwrap_or(now))
    }

    /// This deadline as an [`Instant`].
    pub fn instant(self) -> Instant {
        self.0
    }

    /// The time left at `now`; zero once the deadline is due.
    pub fn remaining(self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    /// Whether the deadline is due at `now`.
    pub fn is_due(self, now: Instant) -> bool {
        self.0 <= now
    }
}

impl From<Instant> for Deadline {
    fn from(instant: Instant) -> Self {
        Self(instant)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Deadline;

    #[test]
    fn too_long_is_the_far_future() {
        let now = Instant::now();
        let far = Deadline::after_from(now, Duration::MAX);
        assert!(far.remaining(now) >= Duration::from_secs(3_000_000_000));
        assert_eq!(far, Deadline::after_from(now, Deadline::FAR));
        assert!(far > Deadline::after_from(now, Duration::from_secs(1_000_000_000)));
    }

    #[test]
    fn due_means_nothing_remains() {
        let now = Instant::now();
        let soon = Deadline::after_from(now, Duration::from_nanos(1));
        assert!(!soon.is_due(now));
        assert!(soon.is_due(now + Duration::from_nanos(1)));
        assert_eq!(soon.remaining(now + Duration::from_secs(1)), Duration::ZERO);
        assert!(Deadline::now().is_due(Instant::now()));
    }
}
