//! Moments to come, and seconds as people write them.

use std::{
    error::Error,
    fmt,
    time::{Duration, Instant},
};

/// A moment of the monotonic clock.
///
/// ```
/// use std::time::{Duration, Instant};
/// use reactor::Deadline;
///
/// let now = Instant::now();
/// let soon = Deadline::after_from(now, Duration::from_millis(5));
/// assert_eq!(soon.remaining(now), Duration::from_millis(5));
/// assert!(soon < Deadline::after_from(now, Duration::MAX)); // never, for all practical purposes
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

/// Further away than any clock is asked to tell: thirty years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

impl Deadline {
    /// This very moment.
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// The moment so much later than now. What lies beyond thirty years is taken for thirty years.
    pub fn after(delay: Duration) -> Self {
        Self::after_from(Instant::now(), delay)
    }

    /// The same, counted from a moment already known.
    pub fn after_from(now: Instant, delay: Duration) -> Self {
        Self(now.checked_add(delay.min(FAR)).unwrap_or(now))
    }

    /// How long it is until then; zero if it has passed.
    pub fn remaining(self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    /// Whether it has come.
    pub fn is_due(self, now: Instant) -> bool {
        self.0 <= now
    }
}

/// Seconds as a duration, rounded up to the nanosecond so that nothing ends early. Infinity and whatever exceeds the
/// range become [`Duration::MAX`].
///
/// # Errors
///
/// Not a number, or negative.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(reactor::seconds(0.25), Ok(Duration::from_millis(250)));
/// assert_eq!(reactor::seconds(1e-10), Ok(Duration::from_nanos(1)));
/// assert_eq!(reactor::seconds(f64::INFINITY), Ok(Duration::MAX));
/// assert!(reactor::seconds(-1.0).is_err());
/// ```
pub fn seconds(seconds: f64) -> Result<Duration, InvalidSeconds> {
    if seconds.is_nan() || seconds < 0.0 {
        return Err(InvalidSeconds(seconds));
    }
    let whole = seconds.trunc();
    let nanoseconds = ((seconds - whole) * 1e9).ceil();
    if whole >= u64::MAX as f64 {
        return Ok(Duration::MAX);
    }
    // A fraction that rounds up to a whole second carries over.
    let sum =
        Duration::from_secs(whole as u64).checked_add(Duration::from_nanos(nanoseconds as u64));
    Ok(sum.unwrap_or(Duration::MAX))
}

/// A duration as seconds, as exactly as an `f64` can.
pub fn to_seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// A number that is no length of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InvalidSeconds(f64);

impl fmt::Display for InvalidSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is no number of seconds from 0 up", self.0)
    }
}

impl Error for InvalidSeconds {}
