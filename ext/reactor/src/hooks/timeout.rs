//! `timeout_after`; `interruptible`, `interrupt`, `limit` and `withdraw`.

use std::time::Duration;

use magnus::{Error, Ruby, TryConvert, Value, prelude::*, typed_data::Obj};
use reactor::Token;
use reactor_scheduler::state::{
    object_ref::ObjectRef,
    token_mark::{marked, unmarked},
};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        convert,
        object::{object_ref, write_barrier},
        receiver::{Receiver, wrong_number},
        with_block::Block,
    },
};

/// `timeout_after(duration, exception, message = nil) { |duration| … }`. A negative duration expires at once.
pub fn timeout_after(
    ruby: &Ruby,
    this: Value,
    arguments: &[Value],
    block: &mut Block,
) -> Result<Value, Error> {
    let Receiver(this) = Receiver::<Scheduler>::try_convert(this)?;
    let nil = ruby.qnil().as_value();
    let (duration, exception, message) = match *arguments {
        [duration, exception] => (duration, exception, nil),
        [duration, exception, message] => (duration, exception, message),
        _ => return Err(wrong_number(ruby, arguments.len(), "2..3")),
    };
    if !ruby.block_given() {
        return Err(Error::new(
            ruby.exception_local_jump_error(),
            "no block given (yield)",
        ));
    }
    let Some(limit) = convert::added_timeout(duration)? else {
        return block.call(&[duration]);
    };
    let scope = HookScope::enter(ruby, &this)?;
    let raise = (object_ref(exception), object_ref(message));
    run(&scope, raise, Some(limit), |_| block.call(&[duration]))
}

/// `interruptible(limit, exception) { |interruption| … }`: like `timeout_after`, but the block gets a number with which
/// [`interrupt`] raises the exception early, and nil means no limit.
pub fn interruptible(
    ruby: &Ruby,
    this: Value,
    arguments: &[Value],
    block: &mut Block,
) -> Result<Value, Error> {
    let Receiver(this) = Receiver::<Scheduler>::try_convert(this)?;
    let [limit, exception] = *arguments else {
        return Err(wrong_number(ruby, arguments.len(), "2"));
    };
    let limit = convert::added_timeout(limit)?;
    let nil = ruby.qnil().as_value();
    let scope = HookScope::enter(ruby, &this)?;
    let raise = (object_ref(exception), object_ref(nil));
    run(&scope, raise, limit, |token| {
        block.call(&[ruby.integer_from_u64(unmarked(token)).as_value()])
    })
}

/// `interrupt(number)`: raises once, at the place where the block of [`interruptible`] waits, and not after the block.
pub fn interrupt(ruby: &Ruby, this: Obj<Scheduler>, number: u64) -> Result<(), Error> {
    if this.check_thread(ruby, this.as_value())? {
        this.state_mut().expire_timeout(marked(number, 0), true);
    }
    Ok(())
}

/// `limit(number, seconds)`: restarts the limit of an [`interruptible`] block, unless it has expired. nil: no limit.
pub fn limit(ruby: &Ruby, this: Obj<Scheduler>, number: u64, limit: Value) -> Result<(), Error> {
    let limit = convert::added_timeout(limit)?;
    if this.check_thread(ruby, this.as_value())? {
        this.state_mut().limit_timeout(marked(number, 0), limit);
    }
    Ok(())
}

/// `withdraw(number)`: takes back the expiry of an [`interruptible`] block, and its limit, unless it has been raised. Returns whether
/// there was one.
pub fn withdraw(ruby: &Ruby, this: Obj<Scheduler>, number: u64) -> Result<bool, Error> {
    let is_own = this.check_thread(ruby, this.as_value())?;
    Ok(is_own && this.state_mut().withdraw_timeout(marked(number, 0)))
}

/// Calls the block. If the timeout elapses first, raises where the block waits. Nothing can end the wait of a
/// close: if the timeout elapsed during one, and the block did not wait again, raises when the block ends.
fn run(
    scope: &HookScope,
    raise: (ObjectRef, ObjectRef),
    limit: Option<Duration>,
    call: impl FnOnce(Token) -> Result<Value, Error>,
) -> Result<Value, Error> {
    let this = scope.object;
    write_barrier(this, raise.0);
    write_barrier(this, raise.1);
    this.before_timeout(scope.slot);
    let timeout = this.state_mut().begin_timeout(scope.slot, raise, limit);
    let block = this.begin_timeout_block(scope.slot, timeout);
    let mut result = call(timeout);
    let must_raise = result.is_ok() && this.state().has_late_timeout(scope.slot);
    if must_raise {
        result = Err(this.timeout_error(scope.slot));
    }
    this.state_mut().end_timeout(timeout);
    if let Some(block) = block {
        block.end();
    }
    result
}
