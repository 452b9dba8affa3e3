//! A hook that runs: entered by the current fiber, left when the scope is dropped.

use magnus::{Error, Ruby, Value, prelude::*, typed_data::Obj};
use reactor_scheduler::state::{fiber::Slot, object_ref::ObjectRef};

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        error::runtime_error,
        fiber::current_fiber,
        hidden_number,
        object::{Object, write_barrier},
    },
};

/// The scheduler behind a hook, entered by the current fiber.
pub struct HookScope<'a> {
    pub scheduler: &'a Scheduler,
    /// The same as an object, for write barriers.
    pub object: Obj<Scheduler>,
    pub slot: Slot,
}

/// The scheduler as a hook finds it.
pub enum Entered<'a> {
    Usable(HookScope<'a>),
    /// This process is a forked child of the one the scheduler belongs to: do what Ruby does without a scheduler.
    ForkedChild,
}

impl<'a> HookScope<'a> {
    /// Begins a hook in the current fiber. ThreadError in another thread, RuntimeError once closed.
    pub fn enter(ruby: &Ruby, this: &'a Obj<Scheduler>) -> Result<Entered<'a>, Error> {
        if !this.owner.is_in_use() && !this.check_owner(ruby, this.as_value())? {
            return Ok(Entered::ForkedChild);
        }
        Self::enter_checked(this)
    }

    /// As [`HookScope::enter`], where this hook has found already that the current thread may use the scheduler.
    pub fn enter_checked(this: &'a Obj<Scheduler>) -> Result<Entered<'a>, Error> {
        let fiber = current_fiber();
        let entered = this.state_mut().enter(fiber);
        let entered = entered.ok_or_else(|| runtime_error("this scheduler is closed"))?;
        let slot = match entered.is_new {
            true => Scheduler::enter_unkept(*this, entered.slot, fiber),
            false => entered.slot,
        };
        Ok(Entered::Usable(HookScope {
            scheduler: this,
            object: *this,
            slot,
        }))
    }
}

impl Drop for HookScope<'_> {
    fn drop(&mut self) {
        self.scheduler.state_mut().leave(self.slot);
    }
}

impl Scheduler {
    /// The fiber was not kept until now. The record that was found may be that of a fiber which has been collected, and whose
    /// address this one has.
    fn enter_unkept(this: Obj<Self>, slot: Slot, fiber: ObjectRef) -> Slot {
        let number = this.state().collectable(slot);
        let slot = number.map_or(slot, |number| {
            let is_same = hidden_number::known(fiber.value()) == Some(number);
            this.state_mut().enter_collectable(slot, fiber, is_same)
        });
        write_barrier(this, fiber);
        slot
    }

    /// Whether a hook may do what needs no wait without entering: the scheduler can be used, and the fiber's time slice
    /// need not be checked. ThreadError in another thread.
    pub fn can_skip_entry(&self, ruby: &Ruby, this: Value) -> Result<bool, Error> {
        let is_usable = self.state().event_loop.reactor.is_some() && !self.slice.is_check_due();
        Ok(self.check_owner(ruby, this)? && is_usable)
    }
}
