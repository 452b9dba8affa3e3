//! Conversion of seconds, as f64, to a duration.

use std::time::Duration;

/// Converts seconds to a duration, rounding up to the next nanosecond so that a wait never ends early.
///
/// Infinity and values out of range become [`Duration::MAX`]. None for NaN and for numbers below zero. Negative zero is
/// zero.
pub fn seconds(seconds: f64) -> Option<Duration> {
    if seconds.is_nan() || seconds < 0.0 {
        return None;
    }
    if seconds >= u64::MAX as f64 {
        return Some(Duration::MAX);
    }
    // Uses casts, because f64::fract and f64::ceil call the C library. Above 2^53 an f64 has no fraction.
    let whole = seconds as u64;
    let nanoseconds = (seconds - whole as f64) * 1e9;
    let floor = nanoseconds as u32;
    let ceiling = floor + u32::from(f64::from(floor) < nanoseconds);
    Some(Duration::new(whole, ceiling))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::seconds;

    #[test]
    fn seconds_round_up_and_never_down() {
        assert_eq!(seconds(0.0), Some(Duration::ZERO));
        assert_eq!(seconds(-0.0), Some(Duration::ZERO));
        assert_eq!(seconds(f64::MIN_POSITIVE), Some(Duration::from_nanos(1)));
        assert_eq!(seconds(1.0), Some(Duration::from_secs(1)));
        for number in [0.1, 0.3, 1.7, 12_345.678_9, 1e9 + 0.5] {
            let duration = seconds(number).unwrap();
            assert!(duration.as_secs_f64() >= number, "{number}");
            assert!(duration.as_secs_f64() - number < 2e-9 * number.max(1.0));
        }
    }

    #[test]
    fn seconds_saturate() {
        assert_eq!(seconds(f64::INFINITY), Some(Duration::MAX));
        assert_eq!(seconds(f64::MAX), Some(Duration::MAX));
        let far = Duration::from_secs(10_000_000_000_000_000_000);
        assert_eq!(seconds(1e19), Some(far));
    }

    #[test]
    fn numbers_that_cannot_be_a_duration_are_refused() {
        for number in [-0.5, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(seconds(number), None);
        }
    }
}
