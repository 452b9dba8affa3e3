//! Whether small writes to files are likely to be done at once.

use std::time::{Duration, Instant};

/// A write that takes longer than this is slow.
const SLOW: Duration = Duration::from_millis(1);

/// For this many times as long as a slow write took, writes go to the pool.
const PENALTY: u32 = 100;

/// Most small writes only copy into the page cache, but now and then the kernel makes a writer wait for the disk. A slow
/// one sends those that follow to the pool, so at most a hundredth of the time is lost to them.
#[derive(Debug, Default)]
pub struct WriteLatency {
    slow_until: Option<Instant>,
}

impl WriteLatency {
    /// A write was made directly.
    pub fn record(&mut self, duration: Duration, now: Instant) {
        self.slow_until = if duration > SLOW {
            now.checked_add(duration * PENALTY)
        } else {
            None
        };
    }

    pub fn is_quick(&self, now: Instant) -> bool {
        self.slow_until.is_none_or(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::WriteLatency;

    #[test]
    fn a_slow_write_is_remembered_a_hundred_times_as_long() {
        let (mut latency, now) = (WriteLatency::default(), Instant::now());
        assert!(latency.is_quick(now));
        latency.record(Duration::from_millis(2), now);
        assert!(!latency.is_quick(now + Duration::from_millis(199)));
        assert!(latency.is_quick(now + Duration::from_millis(200)));
        latency.record(Duration::from_micros(10), now);
        assert!(latency.is_quick(now));
    }
}
