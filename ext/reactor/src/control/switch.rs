//! Giving control to another fiber, and getting it back.

use magnus::Error;
use reactor_scheduler::state::{fiber::Slot, object_ref::ObjectRef};

use crate::{
    control::scheduler::Scheduler,
    ruby::fiber::{clear_kill, is_kill, transfer},
};

impl Scheduler {
    /// Gives control to another fiber. Returns when this one gets it back, by any way.
    #[inline(always)]
    pub fn switch(&self, from: Slot, to: Slot, fiber: ObjectRef) -> Result<(), Error> {
        self.state_mut().before_switch(to);
        let result = transfer(fiber, &[]);
        self.on_resumed(from);
        self.filter_repeated_kill(from, result)
    }

    /// Control is back in `slot`.
    #[inline(never)]
    pub fn on_resumed(&self, slot: Slot) {
        self.state_mut().on_resumed(slot);
    }

    /// After `Fiber#kill` the VM raises the kill again on every switch back into the fiber. Repeats are cleared, so that
    /// `ensure` blocks can wait.
    #[inline(always)]
    pub fn filter_repeated_kill(&self, slot: Slot, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.resumed_by_error(slot, error),
        }
    }

    #[cold]
    #[inline(never)]
    fn resumed_by_error(&self, slot: Slot, error: Error) -> Result<(), Error> {
        if is_kill(&error) && self.state_mut().mark_killed(slot) {
            clear_kill();
            return Ok(());
        }
        Err(error)
    }
}
