//! Fibers that the scheduler did not make, in which the block of a timeout runs and no other hook.
//!
//! Such a fiber may be an Enumerator's that is suspended between two values, and that the program drops. So the scheduler does
//! not keep it. Once it has been collected, another fiber may get its address: its number tells them apart.
//!
//! | state                                     | what happens                        | the fiber is     | besides |
//! |-------------------------------------------|-------------------------------------|------------------|---------|
//! | running, in timeouts only, not queued     | another fiber has control           | not kept         | the record, its timeouts and its owner stay |
//! | running, in timeouts only, not queued     | it has control                      | kept             | - |
//! | not kept                                  | a hook begins in a fiber with its number | kept        | - |
//! | not kept                                  | a hook begins in a fiber without it | not kept         | that fiber gets a record of its own |
//! | not kept                                  | it is collected                     | -                | its timeouts end, and the record goes with the last one |

use super::{FiberRecord, FiberState};

impl FiberRecord {
    /// A timeout begins that ends when the fiber is collected.
    pub(in crate::state) fn begin_collectable_timeout(&mut self, fiber_number: u64) {
        self.fiber_number = fiber_number;
        self.collectable_timeouts += 1;
    }

    pub(in crate::state) fn end_collectable_timeout(&mut self) {
        self.collectable_timeouts = self.collectable_timeouts.saturating_sub(1);
    }

    /// Whether the fiber may be collected unless it has control. Its number, if so.
    ///
    /// A fiber without an owner raises its timeouts itself, so it is kept.
    pub(in crate::state) fn collectable(&self) -> Option<u64> {
        let is_collectable = self.has_only_collectable_timeouts(self.active_hooks);
        is_collectable.then_some(self.fiber_number)
    }

    /// Whether this was so before the hook that has just begun.
    pub(in crate::state) fn was_collectable(&self) -> bool {
        self.has_only_collectable_timeouts(self.active_hooks - 1)
    }

    fn has_only_collectable_timeouts(&self, hooks: u32) -> bool {
        self.collectable_timeouts > 0
            && self.collectable_timeouts == hooks
            && self.state == FiberState::Running
            && !self.queued
            && self.owner.is_some()
    }
}
