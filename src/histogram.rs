//! Durations, counted in buckets.

use std::{fmt, time::Duration};

/// There are `1 << FINENESS` buckets per doubling, so a bucket's width is at most a sixteenth of its durations.
const FINENESS: u32 = 4;

/// Durations of `1 << MAX_BITS` microseconds (19 hours) and more go to the last bucket.
const MAX_BITS: u32 = 36;

/// Counts how often durations of each length occurred, in fixed memory.
///
/// The buckets are log-linear, like HdrHistogram's: one per microsecond up to 16, then 16 per doubling. Counts only
/// grow, so any number of readers can each keep an earlier snapshot and subtract it from a later one.
///
/// ```
/// use std::time::Duration;
///
/// use reactor::Histogram;
///
/// let mut histogram = Histogram::new();
/// histogram.record(Duration::from_micros(3));
/// assert_eq!(histogram.counts()[3], 1);
/// assert_eq!(histogram.sum(), Duration::from_micros(3));
/// ```
#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64; Histogram::BUCKETS]>,
    /// In nanoseconds.
    sum: u64,
    max: u64,
}

impl Histogram {
    /// The number of buckets.
    pub const BUCKETS: usize = ((MAX_BITS - FINENESS + 1) << FINENESS) as usize;

    /// Creates an empty histogram.
    pub fn new() -> Self {
        Self {
            counts: Box::new([0; Self::BUCKETS]),
            sum: 0,
            max: 0,
        }
    }

    /// Records a duration.
    pub fn record(&mut self, duration: Duration) {
        self.record_mean(duration, 1);
    }

    /// Records `count` durations (at least one) of which only the sum is known, each in the bucket of their mean.
    pub fn record_mean(&mut self, sum: Duration, count: u64) {
        let nanoseconds = sum.as_nanos() as u64;
        let mean = nanoseconds / count.max(1);
        self.sum = self.sum.wrapping_add(nanoseconds);
        self.max = self.max.max(mean);
        self.counts[bucket(mean / 1000)] += count;
    }

    /// The bucket counts, shortest durations first. Below 16, bucket `n` starts at `n` microseconds. From there on, the
    /// 16 buckets starting at `16 * k` (k at least 1) divide the range from `2^(k + 3)` microseconds to twice that.
    pub fn counts(&self) -> &[u64; Self::BUCKETS] {
        &self.counts
    }

    /// The sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// The longest duration.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Histogram")
            .field("count", &self.counts.iter().sum::<u64>())
            .field("sum", &self.sum())
            .field("max", &self.max())
            .finish()
    }
}

/// The bucket index. A duration below `1 << FINENESS` microseconds is its own index.
fn bucket(microseconds: u64) -> usize {
    let capped = microseconds.min((1 << MAX_BITS) - 1);
    let doublings = (capped | (1 << FINENESS)).ilog2() - FINENESS;
    ((u64::from(doublings) << FINENESS) + (capped >> doublings)) as usize
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Histogram, MAX_BITS, bucket};

    /// The shortest duration of a bucket; see `counts`.
    fn start(bucket: usize) -> u64 {
        match bucket {
            0..16 => bucket as u64,
            _ => (16 + bucket as u64 % 16) << (bucket / 16 - 1),
        }
    }

    #[test]
    fn each_bucket_begins_where_the_one_before_ends() {
        for number in 0..Histogram::BUCKETS {
            assert_eq!(number, bucket(start(number)));
            assert_eq!(
                number.saturating_sub(1),
                bucket(start(number).saturating_sub(1))
            );
        }
        assert_eq!(Histogram::BUCKETS - 1, bucket((1 << MAX_BITS) - 1));
        assert_eq!(Histogram::BUCKETS - 1, bucket(u64::MAX));
    }

    #[test]
    fn durations_are_counted_and_added() {
        let mut histogram = Histogram::new();
        for nanoseconds in [0, 999, 1000, 40_000, 3_600_000_000_000, u64::MAX / 4] {
            histogram.record(Duration::from_nanos(nanoseconds));
        }
        assert_eq!([2, 1], histogram.counts()[..2]);
        assert_eq!(6, histogram.counts().iter().sum::<u64>());
        assert_eq!(Duration::from_nanos(u64::MAX / 4), histogram.max());
        assert_eq!(
            Duration::from_nanos(3_600_000_041_999 + u64::MAX / 4),
            histogram.sum()
        );
    }
}
