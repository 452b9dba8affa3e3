//! How long fibers may keep transferring without a wait.
//!
//! A fiber that transfers without waiting yields after [`TIME_SLICE`], counted from the last poll. The clock is read
//! every `CLOCK_CHECK_BYTES`, with each call counting as `BYTES_PER_CALL` in addition to its bytes. The worst case is
//! one slice plus 16 calls. One call on a regular file may take as long as many calls on a socket, so the clock is read
//! after each: the worst case is one slice plus one call of at most 256 KiB.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// Endless in this crate's tests, where the order of fibers must not depend on the machine's speed.
pub const TIME_SLICE: Duration = match cfg!(test) {
    false => Duration::from_micros(500),
    true => Duration::MAX,
};
const CLOCK_CHECK_BYTES: usize = 128 << 10;
const BYTES_PER_CALL: usize = 8 << 10;

/// The bytes transferred without waiting since the clock was last read.
#[derive(Debug, Default)]
pub struct TimeSlice(Cell<usize>);

impl TimeSlice {
    /// Counts bytes transferred without waiting.
    pub fn count_transfer(&self, bytes: usize) {
        let transferred = self.0.get().saturating_add(bytes);
        self.0.set(transferred.saturating_add(BYTES_PER_CALL));
    }

    /// Counts a regular-file transfer made without waiting.
    pub fn count_file_transfer(&self) {
        self.0.set(CLOCK_CHECK_BYTES);
    }

    /// Whether to read the clock before the next transfer.
    pub fn is_check_due(&self) -> bool {
        self.0.get() >= CLOCK_CHECK_BYTES
    }

    /// The clock is being read now.
    pub fn begin_check(&self) {
        self.0.set(0);
    }

    /// Whether the last poll was too long ago.
    pub fn is_spent(last_poll: Instant) -> bool {
        last_poll.elapsed() >= TIME_SLICE
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_PER_CALL, CLOCK_CHECK_BYTES, TimeSlice};

    #[test]
    fn the_clock_is_asked_after_some_bytes_or_calls() {
        let slice = TimeSlice::default();
        for _ in 0..CLOCK_CHECK_BYTES / BYTES_PER_CALL {
            assert!(!slice.is_check_due());
            slice.count_transfer(0);
        }
        assert!(slice.is_check_due());
        slice.begin_check();
        assert!(!slice.is_check_due());
        slice.count_transfer(usize::MAX);
        assert!(slice.is_check_due());
        slice.begin_check();
        slice.count_file_transfer();
        assert!(slice.is_check_due());
    }
}
