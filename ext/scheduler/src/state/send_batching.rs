//! Whether sends are better queued in the driver than made directly.
//!
//! If at most three sends shared a turn, the next 64 are made directly, because a busy writer that gives up its turn
//! for each send costs more than it saves (`docs/measured.md`).

/// With fewer queued sends in a turn than this there is nothing to gain, because each takes its fiber's turn away.
const MIN_BATCH: u32 = 4;

/// This many sends are made directly then, before a turn's sends are counted again. It doubles each time the batch is
/// still too small, up to the longest.
const SHORTEST_BACKOFF: u32 = 64;
const LONGEST_BACKOFF: u32 = 1024;

/// Beside more ready fibers than this a send is made directly: a fiber that gives up its turn comes back when its stack has left the
/// processor's caches, which costs more than the system call (`docs/measured.md`).
pub const MAX_READY: usize = 128;

/// How many sends share a turn, as far as that is worth knowing.
#[derive(Debug)]
pub struct SendBatching {
    queued_this_turn: u32,
    /// Still to be made directly.
    direct_left: u32,
    /// Some were to be made directly when the turn began, so not all of its sends were counted.
    is_partial: bool,
    /// How many are to be made directly when next a turn has too few.
    backoff: u32,
}

impl Default for SendBatching {
    fn default() -> Self {
        Self {
            queued_this_turn: 0,
            direct_left: 0,
            is_partial: false,
            backoff: SHORTEST_BACKOFF,
        }
    }
}

impl SendBatching {
    pub fn on_queued(&mut self) {
        self.queued_this_turn += 1;
    }

    pub fn on_poll(&mut self) {
        if self.queued_this_turn >= MIN_BATCH {
            self.backoff = SHORTEST_BACKOFF;
        } else if self.queued_this_turn > 0 && !self.is_partial {
            self.direct_left = self.backoff;
            self.backoff = LONGEST_BACKOFF.min(2 * self.backoff);
        }
        self.queued_this_turn = 0;
        self.is_partial = self.direct_left > 0;
    }

    /// Whether this send is to be made directly, because too few shared a turn not long ago. Counts it.
    pub fn take_direct(&mut self) -> bool {
        let direct = self.direct_left > 0;
        self.direct_left = self.direct_left.saturating_sub(1);
        direct
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_BACKOFF, MIN_BATCH, SHORTEST_BACKOFF, SendBatching};

    /// How many sends are made directly after turns with these numbers of queued sends.
    fn direct_after(batching: &mut SendBatching, turns: &[u32]) -> u32 {
        for queued in turns {
            for _ in 0..*queued {
                batching.on_queued();
            }
            batching.on_poll();
        }
        std::iter::from_fn(|| batching.take_direct().then_some(()))
            .count()
            .try_into()
            .unwrap()
    }

    #[test]
    fn a_full_batch_is_followed_by_more() {
        let mut batching = SendBatching::default();
        assert_eq!(0, direct_after(&mut batching, &[MIN_BATCH, 0, MIN_BATCH]));
    }

    #[test]
    fn small_batches_back_off_twice_as_long_each_time() {
        let mut batching = SendBatching::default();
        let mut expected = SHORTEST_BACKOFF;
        for _ in 0..8 {
            // The empty turn ends the one that was not counted whole.
            assert_eq!(expected, direct_after(&mut batching, &[0, 1]));
            expected = LONGEST_BACKOFF.min(2 * expected);
        }
        assert_eq!(0, direct_after(&mut batching, &[0, MIN_BATCH]));
        assert_eq!(SHORTEST_BACKOFF, direct_after(&mut batching, &[1]));
    }

    #[test]
    fn a_turn_that_was_not_counted_whole_decides_nothing() {
        let mut batching = SendBatching::default();
        batching.on_queued();
        batching.on_poll();
        batching.on_queued(); // the turn began with sends still to be made directly
        batching.on_poll();
        assert_eq!(SHORTEST_BACKOFF, direct_after(&mut batching, &[]));
    }
}
