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
        let rare = self.rare.get_or_insert_default();
        rare.fiber_number = fiber_number;
        rare.collectable_timeouts += 1;
    }

    pub(in crate::state) fn end_collectable_timeout(&mut self) {
        if let Some(rare) = &mut self.rare {
            rare.collectable_timeouts = rare.collectable_timeouts.saturating_sub(1);
        }
    }

    /// Whether the fiber may be collected unless it has control. Its number, if so.
    ///
    /// A fiber without an owner raises its timeouts itself, so it is kept.
    pub(in crate::state) fn collectable(&self) -> Option<u64> {
        self.collectable_below(self.active_hooks)
    }

    /// Whether this was so before the hook that has just begun.
    pub(in crate::state) fn was_collectable(&self) -> bool {
        self.collectable_below(self.active_hooks - 1).is_some()
    }

    /// The fiber's number, if all of this many hooks are timeouts that can be collected.
    fn collectable_below(&self, hooks: u32) -> Option<u64> {
        let rare = self.rare.as_ref()?;
        let has_only_these = rare.collectable_timeouts > 0 && rare.collectable_timeouts == hooks;
        let is_suspended = self.state == FiberState::Running && !self.queued;
        (has_only_these && is_suspended && self.owner.is_some()).then_some(rare.fiber_number)
    }
}
