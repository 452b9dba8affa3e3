//! Trap handlers and finalizers that interrupt a fiber's code between its waits. A program cannot know in which fiber a
//! handler runs, so timeouts around the interrupted code are not raised in the handler. (A handler that interrupts a wait
//! is recognised by that: see `ext/scheduler/src/state/strand.rs`.)

use reactor_scheduler::state::fiber::Slot;

use crate::control::scheduler::Scheduler;

impl Scheduler {
    /// Called when a timeout is about to begin. If that happens in a handler, separates the new timeout from the
    /// timeouts around the code that the handler interrupted.
    pub fn before_timeout(&self, slot: Slot) {
        let may_begin_in_handler = self.state().fibers[slot].may_begin_in_handler();
        if may_begin_in_handler && self.runs_in_handler() {
            self.state_mut().cover_code_unless_resumers(slot);
        }
    }

    /// Checks whether this fiber waits, or is about to wait, inside a handler. If so, records that, so that no timeout
    /// around the interrupted code is raised in the wait. False if it was already known.
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
