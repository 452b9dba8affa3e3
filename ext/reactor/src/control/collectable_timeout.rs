//! Fibers that the garbage collector may free inside a timeout block: for example the fiber of an Enumerator that the
//! program drops between two values.

use std::{cell::Cell, sync::Weak};

use magnus::{DataTypeFunctions, TypedData, gc::Marker, typed_data::Obj};
use reactor::{Handle, Token};
use reactor_scheduler::state::{fiber::Slot, object_ref::ObjectRef};

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        error::ruby, fiber::current_fiber, hidden_ivar, object::Object, panics,
        thread::fork_generation,
    },
};

/// `Reactor::TimeoutBlock`: an object referenced only from the stack of the fiber that runs a timeout's block, so it is
/// collected together with the fiber and then tells the scheduler. Until then it pins the fiber, because the fiber's record
/// holds its address.
#[derive(TypedData)]
#[magnus(class = "Reactor::TimeoutBlock", mark, free_immediately)]
pub struct TimeoutBlock {
    fiber: ObjectRef,
    handle: Weak<Handle>,
    token: Token,
    forks: u32,
    ended: Cell<bool>,
}

impl DataTypeFunctions for TimeoutBlock {
    fn mark(&self, marker: &Marker) {
        self.fiber.mark(marker);
    }

    fn free(self: Box<Self>) {
        _ = panics::catch("end of a timeout", || drop(self));
    }
}

impl TimeoutBlock {
    /// Called when the block has ended.
    pub fn end(&self) {
        self.ended.set(true);
    }
}

impl Drop for TimeoutBlock {
    /// Any thread may run this, during a garbage collection. Does nothing in a forked child: it may have no thread to
    /// release the handle's lock, and no fiber turns its reactor.
    fn drop(&mut self) {
        if !self.ended.get() && self.forks == fork_generation() {
            if let Some(handle) = self.handle.upgrade() {
                _ = handle.notify(self.token); // after an error the loop was not woken, and finds the token later
            }
        }
    }
}

impl Scheduler {
    /// If the scheduler did not create the current fiber, makes the timeout that just began in it end when the fiber is
    /// collected. The caller keeps the object on its stack while the block runs. `None` if the fiber is kept.
    pub fn begin_timeout_block(&self, slot: Slot, timeout: Token) -> Option<Obj<TimeoutBlock>> {
        if self.state().fibers.is_scheduled(slot) {
            return None;
        }
        self.set_collectable(timeout)
    }

    #[cold]
    fn set_collectable(&self, token: Token) -> Option<Obj<TimeoutBlock>> {
        let fiber = current_fiber();
        let number = hidden_ivar::given(fiber.value())?; // a frozen fiber has none
        let handle = self.state_mut().event_loop.weak_handle()?;
        let block = ruby().obj_wrap(TimeoutBlock {
            fiber,
            handle,
            token,
            forks: fork_generation(),
            ended: Cell::new(false),
        });
        self.state_mut().set_collectable(token, number);
        Some(block)
    }
}
