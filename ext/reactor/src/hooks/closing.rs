//! An IO that is closed while fibers use it: `prepare_close`, `push_when_unused`, `fiber_interrupt`, `io_close`.
//!
//! Ruby tells a scheduler nothing of `IO#reopen`. A wait that has begun goes on; the registry arms its registration once
//! more after 100 ms (`src/registry.rs`), and an event then ends it.

use magnus::{Error, Ruby, Symbol, Value, prelude::*, typed_data::Obj};
use reactor::OwnerId;
use reactor_scheduler::system::close_unless_blocking::close_unless_blocking;

use crate::{
    control::{
        hook_scope::{Entered, HookScope},
        scheduler::Scheduler,
    },
    ruby::{
        error::closed_elsewhere_exception,
        fiber::is_fiber,
        io::{RealIo, known_number, real_io},
        io_object::IoObject,
    },
    wait::{
        interrupt::{interrupt, interrupt_fiber, interrupt_operation},
        work::wait_until_unpinned,
    },
};

/// `prepare_close(io)`: the IO object is about to be closed, by any thread. Raises IOError in the fibers that wait for it.
/// Fibers that wait for another object on the same descriptor are left alone. It takes constant time, and time for each fiber
/// that is interrupted.
///
/// nil: no fiber waits for it. :interrupted: the fibers that wait for it have been interrupted. :in_use: the fiber of another thread
/// has a worker of the pool use the descriptor, which must not be closed under it, so the caller waits for the end of that
/// ([`push_when_unused`]) and asks again. (On the scheduler's own thread the caller parks in here.)
pub fn prepare_close(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    [io]: [Value; 1],
) -> Result<Option<Symbol>, Error> {
    if this.is_closed() {
        return Ok(None);
    }
    this.state_mut().flush_sends();
    let Some(number) = known_number(io) else {
        return Ok(None); // no scheduler has ever waited for it
    };
    let io_number = IoObject::io_number_of(number);
    let Ok(descriptor) = real_io(io).and_then(RealIo::descriptor) else {
        return Ok(None);
    };
    let users = this.state().users_of(descriptor, io_number);
    if users.is_empty() {
        this.state_mut().note_close(descriptor, OwnerId(io_number));
        return Ok(None);
    }
    for slot in users {
        let exception = closed_elsewhere_exception(ruby)?;
        interrupt(this, slot, io_number, exception.as_value());
    }
    this.wake_thread();
    let is_in_use = this.state().is_pinned(io_number);
    if is_in_use {
        if !this.is_owner_thread() {
            return Ok(Some(ruby.to_symbol("in_use")));
        }
        if let Entered::Usable(scope) = HookScope::enter(ruby, &this)? {
            wait_until_unpinned(&scope, io_number)?;
        }
    }
    Ok(Some(ruby.to_symbol("interrupted")))
}

/// `push_when_unused(io, queue)`: the queue gets an element when no worker uses the descriptor of the IO any more. False,
/// and nothing done, if none does now.
pub fn push_when_unused(this: Obj<Scheduler>, io: Value, queue: Value) -> bool {
    let Some(number) = known_number(io).filter(|_| !this.is_closed()) else {
        return false;
    };
    Scheduler::push_when_unpinned(this, IoObject::io_number_of(number), queue)
}

/// `fiber_interrupt(fiber, exception)`: raises in a fiber that waits for readiness; dropped if it no longer does.
///
/// From Ruby 4.1 on the VM hands over a proxy of the operation instead of the fiber (Bug #21918), which knows by itself
/// whether the operation still goes on: it is asked to raise at the next turn.
pub fn fiber_interrupt(this: Obj<Scheduler>, fiber: Value, exception: Value) -> bool {
    if this.is_closed() {
        return false;
    }
    if !is_fiber(fiber) {
        interrupt_operation(this, fiber, exception);
        return true;
    }
    let is_interrupted = interrupt_fiber(this, fiber, exception);
    if is_interrupted {
        this.wake_thread();
    }
    is_interrupted
}

/// `io_close(descriptor)`, called by the VM since Ruby 4.0: closes what can be closed without waiting, and leaves the rest
/// (false) to the VM, which releases the GVL for it. May come from a finalizer, in the middle of anything.
pub fn io_close(this: Obj<Scheduler>, descriptor: i32) -> bool {
    !this.is_forked_child() && close_unless_blocking(descriptor)
}
