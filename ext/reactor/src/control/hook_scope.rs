//! A running hook: entered by the current fiber, left when the scope is dropped.

use magnus::{Error, Ruby, Value, prelude::*, typed_data::Obj};
use reactor_scheduler::state::{fiber::Slot, object_ref::ObjectRef};

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        error::runtime_error,
        fiber::current_fiber,
        hidden_ivar,
        object::{Object, write_barrier},
    },
};

/// The scheduler behind a hook, entered by the current fiber.
pub struct HookScope<'a> {
    pub scheduler: &'a Scheduler,
    /// The scheduler as an object, for write barriers.
    pub object: Obj<Scheduler>,
    pub slot: Slot,
}

impl<'a> HookScope<'a> {
    /// Begins a hook in the current fiber. ThreadError in another thread; RuntimeError once closed, and in a forked child
    /// of the scheduler's process.
    #[inline(always)]
    pub fn enter(ruby: &Ruby, this: &'a Obj<Scheduler>) -> Result<Self, Error> {
        let is_in_use = this.affinity.is_in_use();
        match is_in_use.then(|| Self::enter_current(this)).flatten() {
            Some(slot) => Ok(Self::of(this, slot)),
            None => Self::enter_unusual(ruby, this),
        }
    }

    #[cold]
    fn enter_unusual(ruby: &Ruby, this: &'a Obj<Scheduler>) -> Result<Self, Error> {
        match this.check_thread(ruby, this.as_value())? {
            true => Self::enter_checked(this),
            false => Err(foreign()),
        }
    }

    /// Like [`HookScope::enter`], but `None` in a forked child, for what has nothing to do there.
    pub fn enter_own(ruby: &Ruby, this: &'a Obj<Scheduler>) -> Result<Option<Self>, Error> {
        match this.is_forked_child() {
            true => Ok(None),
            false => Self::enter(ruby, this).map(Some),
        }
    }

    fn of(scheduler: &'a Obj<Scheduler>, slot: Slot) -> Self {
        let object = *scheduler;
        Self {
            scheduler,
            object,
            slot,
        }
    }

    /// Like [`HookScope::enter`], for hooks that have already checked that the current thread may use the scheduler.
    pub fn enter_checked(this: &'a Obj<Scheduler>) -> Result<Self, Error> {
        let slot = Self::enter_current(this).ok_or_else(closed)?;
        Ok(Self::of(this, slot))
    }

    /// The current fiber's slot; `None` if the scheduler is closed.
    #[inline(always)]
    fn enter_current(this: &Obj<Scheduler>) -> Option<Slot> {
        let fiber = current_fiber();
        let entered = this.state_mut().enter(fiber)?;
        Some(match entered.is_new {
            true => Scheduler::enter_unkept(*this, entered.slot, fiber),
            false => entered.slot,
        })
    }
}

#[cold]
fn foreign() -> Error {
    runtime_error("this scheduler belongs to the parent process")
}

#[cold]
fn closed() -> Error {
    runtime_error("this scheduler is closed")
}

impl Drop for HookScope<'_> {
    fn drop(&mut self) {
        self.scheduler.state_mut().leave(self.slot);
    }
}

impl Scheduler {
    /// Enters a fiber that was not kept until now. The record found may belong to a collected fiber that had the same
    /// address.
    fn enter_unkept(this: Obj<Self>, slot: Slot, fiber: ObjectRef) -> Slot {
        let number = this.state().collectable(slot);
        let slot = number.map_or(slot, |number| {
            let is_same = hidden_ivar::known(fiber.value()) == Some(number);
            this.state_mut().enter_collectable(slot, fiber, is_same)
        });
        write_barrier(this, fiber);
        slot
    }

    /// Whether a hook may skip entering to do something that needs no wait: the scheduler can be used, and the fiber's time
    /// slice need not be checked. ThreadError in another thread.
    pub fn can_skip_entry(&self, ruby: &Ruby, this: Value) -> Result<bool, Error> {
        let is_usable = self.state().event_loop.reactor.is_some() && !self.slice.is_check_due();
        Ok(self.check_thread(ruby, this)? && is_usable)
    }
}
