//! Trap handlers and finalizers that run in the middle of a fiber's own code, which they have interrupted. The program cannot know
//! in which fiber a handler runs, so timeouts around that code are not raised in the handler. (A handler that interrupts a wait is
//! known by that: see `ext/scheduler/src/state/strand.rs`.)

use reactor_scheduler::state::fiber::Slot;

use crate::control::scheduler::Scheduler;

impl Scheduler {
    /// A timeout is about to begin. If that is in a handler, it is told apart from those around the code that the handler has
    /// interrupted.
    pub fn before_timeout(&self, slot: Slot) {
        let may_begin_in_handler = self.state().fibers[slot].may_begin_in_handler();
        if may_begin_in_handler && self.runs_in_handler() {
            self.state_mut().cover_code_unless_owners(slot);
        }
    }

    /// Finds out whether the code of this fiber that waits, or is about to, is a handler, and notes it, so that no timeout around the
    /// code that the handler has interrupted is raised in the wait. False if that is known already.
    #[cold]
    pub fn finds_handler(&self, slot: Slot) -> bool {
        let is_in_handler = self.state().fibers[slot].is_in_handler();
        let is_found = !is_in_handler && self.runs_in_handler();
        if is_found {
            self.state_mut().fibers.cover_code(slot);
        }
        is_found
    }
}
