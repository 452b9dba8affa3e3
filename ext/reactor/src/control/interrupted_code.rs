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

    /// A timeout has expired around a wait of this fiber, which has control. Or one of the fiber that waits for this one may be around
    /// the wait that this one is about to begin. Whether the wait is that of a handler: then no such timeout is raised in it.
    #[cold]
    pub fn is_wait_of_handler(&self, slot: Slot) -> bool {
        let is_in_handler = self.state().fibers[slot].is_in_handler();
        let is_wait_of_handler = !is_in_handler && self.runs_in_handler();
        if is_wait_of_handler {
            self.state_mut().fibers.cover_code(slot);
        }
        is_wait_of_handler
    }
}
