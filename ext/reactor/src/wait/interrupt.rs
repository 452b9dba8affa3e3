//! Raising in a fiber that waits for readiness.

use magnus::{Value, typed_data::Obj};
use reactor_scheduler::state::fiber::Slot;

use crate::{
    control::scheduler::Scheduler,
    ruby::object::{object_ref, write_barrier},
};

/// Raises in a fiber that waits for the readiness of an IO object (0: of any); false, and nothing done, if it does not.
pub fn interrupt(this: Obj<Scheduler>, slot: Slot, io_number: u64, exception: Value) -> bool {
    let exception = object_ref(exception);
    write_barrier(this, exception);
    this.state_mut().interrupt(slot, io_number, exception)
}

/// The same by the fiber's object.
pub fn interrupt_fiber(this: Obj<Scheduler>, fiber: Value, exception: Value) -> bool {
    let slot = this.state_mut().find(object_ref(fiber));
    slot.is_some_and(|slot| interrupt(this, slot, 0, exception))
}

/// The operation behind this proxy is asked to raise at the next turn. It knows by itself whether it still goes on.
pub fn interrupt_operation(this: Obj<Scheduler>, proxy: Value, exception: Value) {
    let pair = [object_ref(proxy), object_ref(exception)];
    for object in pair {
        write_barrier(this, object);
    }
    this.state_mut().push_interrupt(pair);
    this.wake_thread();
}
