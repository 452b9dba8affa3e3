//! `fiber`, ending a fiber, `drain`, `cancel` and `shutdown`.

use magnus::{
    Error, RArray, RHash, Ruby, Value,
    prelude::*,
    scan_args::{get_kwargs, scan_args},
    typed_data::Obj,
};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        error::argument_error,
        fiber::new_fiber,
        object::{Object, object_ref},
        receiver::Receiver,
    },
};

/// `fiber(*arguments, **options, &block)`
pub fn fiber(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    arguments: &[Value],
) -> Result<Value, Error> {
    if !ruby.block_given() {
        let message = "tried to create Proc object without a block";
        return Err(argument_error(message));
    }
    let scope = HookScope::enter(ruby, &this)?;
    let block = ruby.block_proc()?.as_value();
    // The arguments stay on this stack, where the garbage collector finds them.
    if arguments.is_empty() {
        let fiber = new_fiber(ruby, None)?;
        scope.start(fiber, block, &[this.as_value(), block])?;
        return Ok(fiber.value());
    }
    let parsed = scan_args::<(), (), RArray, (), RHash, ()>(arguments)?;
    type Options = (Option<Value>, Option<Value>);
    let names = ["storage", "blocking"];
    let options = get_kwargs::<_, (), Options, ()>(parsed.keywords, &[], &names)?;
    let fiber = new_fiber(ruby, options.optional.0)?;
    let given = [this.as_value(), block, parsed.splat.as_value()];
    scope.start(fiber, block, &given)?;
    Ok(fiber.value())
}

/// `ended(scheduler, error)`: the current fiber's block has ended. Returns whether the fiber must raise the error.
pub fn ended(_: Value, Receiver(this): Receiver<Scheduler>, error: Value) -> Result<bool, Error> {
    Scheduler::on_fiber_end(this, error)
}

/// `drain`
pub fn drain(ruby: &Ruby, this: Obj<Scheduler>) -> Result<(), Error> {
    let scope = HookScope::enter_own(ruby, &this)?;
    scope.map_or(Ok(()), |scope| scope.drain())
}

/// `cancel(reason)`
pub fn cancel(ruby: &Ruby, this: Obj<Scheduler>, reason: Value) -> Result<(), Error> {
    let scope = HookScope::enter_own(ruby, &this)?;
    scope.map_or(Ok(()), |scope| scope.cancel(reason))
}

/// `forbid_own_fibers`: raises FiberError in a fiber created by `fiber`.
pub fn forbid_own_fibers(ruby: &Ruby, this: Obj<Scheduler>) -> Result<(), Error> {
    let scope = HookScope::enter_own(ruby, &this)?;
    scope.map_or(Ok(()), |scope| scope.forbid_own_fibers())
}

/// `cancel_fiber(fiber, exception)`: raises the exception where the fiber waits; nil kills it. Returns false if the hook
/// `fiber` did not create it, or if it has ended or is being killed.
pub fn cancel_fiber(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    fiber: Value,
    exception: Value,
) -> Result<bool, Error> {
    let scope = HookScope::enter_own(ruby, &this)?;
    scope.map_or(Ok(false), |scope| {
        scope.cancel_fiber(object_ref(fiber), exception)
    })
}

/// `cancelled?(fiber)`: whether `cancel` or `cancel_fiber` has ended it.
pub fn is_cancelled(this: Obj<Scheduler>, fiber: Value) -> bool {
    let mut state = this.state_mut();
    let slot = state.fibers.find(object_ref(fiber));
    slot.is_some_and(|slot| state.fibers[slot].is_cancelled())
}

/// `shutdown`: ends all watchers and releases the descriptors. Every later use raises. ThreadError in another thread,
/// FiberError in a fiber created by `fiber`.
pub fn shutdown(ruby: &Ruby, this: Obj<Scheduler>) -> Result<(), Error> {
    if this.is_closed() || !this.check_thread(ruby, this.as_value())? {
        return Ok(());
    }
    forbid_own_fibers(ruby, this)?;
    let ended = this.cancel_watchers();
    this.shutdown();
    ended
}
