//! Trap handlers and finalizers that run in the middle of a fiber's own code, which they have interrupted. The program cannot know
//! in which fiber a handler runs, so timeouts around that code are not raised in the handler. (A handler that interrupts a wait is
//! known by that: see `ext/scheduler/src/state/fiber/nested_wait.rs`.)

use reactor_scheduler::state::fiber::Slot;

use crate::control::scheduler::Scheduler;

impl Scheduler {
    /// A timeout is about to begin. If that is in a handler, it is told apart from those around the code that the handler has
    /// interrupted.
    pub fn before_timeout(&self, slot: Slot) {
        if self.may_interrupt_code(slot) && self.refuses_locks() {
            self.state_mut().set_code_aside_unless_owners(slot);
        }
    }

    /// A timeout has fired around a wait of this fiber, which has control, or may be around it. Whether the wait is that of a
    /// handler: then it goes on, and the timeout is raised after the handler.
    #[cold]
    pub fn outlasts_timeouts(&self, slot: Slot) -> bool {
        self.set_interrupted_code_aside(slot)
    }

    /// Timeouts of the fiber that waits for this one may be around the wait that this one is about to begin. They are not raised in
    /// a handler.
    #[cold]
    pub fn before_wait_for_owner(&self, slot: Slot) {
        self.set_interrupted_code_aside(slot);
    }

    /// Whether the fiber's code was set aside, because a handler runs.
    fn set_interrupted_code_aside(&self, slot: Slot) -> bool {
        let is_handler = self.may_interrupt_code(slot) && self.refuses_locks();
        if is_handler {
            self.state_mut().set_code_aside(slot);
        }
        is_handler
    }

    fn may_interrupt_code(&self, slot: Slot) -> bool {
        self.state().may_interrupt_code(slot)
    }
}
