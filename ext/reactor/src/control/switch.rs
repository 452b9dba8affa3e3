//! Giving control to another fiber, and getting it back.

use magnus::Error;
use reactor_scheduler::state::{fiber::Slot, object_ref::ObjectRef};

use crate::{
    control::scheduler::Scheduler,
    ruby::fiber::{clear_kill, is_kill, switch_to_empty_fiber, transfer},
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
        self.state_mut().note_raise(slot);
        Err(error)
    }

    /// Before a wait: looks whether the fiber was killed while it waited for another fiber, for example for an Enumerator's.
    /// The VM has then raised the kill outside of a hook. A switch to an empty fiber and back makes the VM raise it here.
    #[inline(always)]
    pub fn find_kill(&self, slot: Slot, may_be_killed: bool) -> Result<(), Error> {
        if may_be_killed {
            return self.find_kill_by_switch(slot);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn find_kill_by_switch(&self, slot: Slot) -> Result<(), Error> {
        match switch_to_empty_fiber() {
            Err(error) if is_kill(&error) => {
                clear_kill();
                self.state_mut().mark_killed(slot);
                Ok(())
            }
            other => {
                self.state_mut().note_no_kill(slot);
                other
            }
        }
    }
}
