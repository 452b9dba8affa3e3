//! Whether to queue sends in the driver instead of making them directly.
//!
//! If at most three sends shared a turn, those of the next 1,024 turns are made directly: a busy writer that gives up its
//! turn for each send loses more than it saves (`bench/NOTES.md`, "What io_uring does, and what it does not").

/// With fewer queued sends in a turn, batching gains nothing, because each costs its fiber a turn.
const MIN_BATCH: u32 = 4;

/// After a turn with fewer, sends are made directly for this many turns.
const DIRECT_TURNS: u32 = 1024;

/// With more ready fibers than this, a send is made directly: a fiber that gives up its turn returns when its stack has
/// left the CPU caches, which costs more than the system call (`bench/NOTES.md`, "What io_uring does, and what it does
/// not").
pub const MAX_READY: usize = 128;

/// Counts the sends that share a turn, and the turns in which sends are still made directly.
#[derive(Debug, Default)]
pub struct SendBatching {
    queued_this_turn: u32,
    direct_turns: u32,
}

impl SendBatching {
    pub fn on_queued(&mut self) {
        self.queued_this_turn += 1;
    }

    pub fn on_poll(&mut self) {
        self.direct_turns = match self.queued_this_turn {
            1..MIN_BATCH => DIRECT_TURNS,
            _ => self.direct_turns.saturating_sub(1),
        };
        self.queued_this_turn = 0;
    }

    /// Whether sends are made directly in this turn, because too few shared one recently.
    pub fn is_direct(&self) -> bool {
        self.direct_turns > 0
    }
}

#[cfg(test)]
mod tests {
    use super::{DIRECT_TURNS, MIN_BATCH, SendBatching};

    /// The number of turns with direct sends after a turn with `queued` sends.
    fn direct_turns_after(batching: &mut SendBatching, queued: u32) -> u32 {
        for _ in 0..queued {
            batching.on_queued();
        }
        batching.on_poll();
        let mut turns = 0;
        while batching.is_direct() {
            turns += 1;
            batching.on_poll();
        }
        turns
    }

    #[test]
    fn after_a_small_batch_sends_are_made_directly_for_some_turns() {
        let mut batching = SendBatching::default();
        for (queued, direct) in [(MIN_BATCH, 0), (0, 0), (1, DIRECT_TURNS), (MIN_BATCH, 0)] {
            assert_eq!(direct, direct_turns_after(&mut batching, queued));
        }
    }
}
