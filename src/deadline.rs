//! Points in time, and conversion from seconds as f64.

use std::{
    error::Error,
    fmt,
    time::{Duration, Instant},
};

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

/// The error for seconds that are not a valid duration: negative, or NaN.
///
/// ```
/// let error = reactor::seconds(-0.5).unwrap_err();
/// assert_eq!(error.to_string(), "time interval must not be negative: -0.5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InvalidSeconds(f64);

impl fmt::Display for InvalidSeconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_nan() {
            formatter.write_str("time interval is not a number")
        } else {
            write!(formatter, "time interval must not be negative: {}", self.0)
        }
    }
}

impl Error for InvalidSeconds {}

/// Converts seconds to a duration, rounding up to the next nanosecond so that a wait never ends early.
///
/// Infinity and values out of range become [`Duration::MAX`].
///
/// # Errors
///
/// [`InvalidSeconds`] for NaN and for numbers below zero. Negative zero is zero.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(reactor::seconds(0.25), Ok(Duration::from_millis(250)));
/// assert_eq!(reactor::seconds(1e-12), Ok(Duration::from_nanos(1)));
/// assert_eq!(reactor::seconds(f64::INFINITY), Ok(Duration::MAX));
/// assert!(reactor::seconds(-1.0).is_err());
/// ```
pub fn seconds(seconds: f64) -> Result<Duration, InvalidSeconds> {
    if seconds.is_nan() || seconds < 0.0 {
        return Err(InvalidSeconds(seconds));
    }
    if seconds >= u64::MAX as f64 {
        return Ok(Duration::MAX);
    }
    // Uses casts, because f64::fract and f64::ceil call the C library. Above 2^53 an f64 has no fraction.
    let whole = seconds as u64;
    let nanoseconds = (seconds - whole as f64) * 1e9;
    let floor = nanoseconds as u32;
    let ceiling = floor + u32::from(f64::from(floor) < nanoseconds);
    Ok(Duration::new(whole, ceiling))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Deadline, seconds};

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

    #[test]
    fn seconds_round_up_and_never_down() {
        assert_eq!(seconds(0.0), Ok(Duration::ZERO));
        assert_eq!(seconds(-0.0), Ok(Duration::ZERO));
        assert_eq!(seconds(f64::MIN_POSITIVE), Ok(Duration::from_nanos(1)));
        assert_eq!(seconds(1.0), Ok(Duration::from_secs(1)));
        for number in [0.1, 0.3, 1.7, 12_345.678_9, 1e9 + 0.5] {
            let duration = seconds(number).unwrap();
            assert!(duration.as_secs_f64() >= number, "{number}");
            assert!(duration.as_secs_f64() - number < 2e-9 * number.max(1.0));
        }
    }

    #[test]
    fn seconds_saturate() {
        assert_eq!(seconds(f64::INFINITY), Ok(Duration::MAX));
        assert_eq!(seconds(f64::MAX), Ok(Duration::MAX));
        assert_eq!(
            seconds(1e19),
            Ok(Duration::from_secs(10_000_000_000_000_000_000))
        );
    }

    #[test]
    fn numbers_that_cannot_be_a_duration_are_refused() {
        let error = seconds(-0.5).unwrap_err();
        assert_eq!(
            error.to_string(),
            "time interval must not be negative: -0.5"
        );
        let error = seconds(f64::NAN).unwrap_err();
        assert_eq!(error.to_string(), "time interval is not a number");
        assert!(seconds(f64::NEG_INFINITY).is_err());
    }
}
