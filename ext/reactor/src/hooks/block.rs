//! `kernel_sleep`, `block`, `unblock`, `yield`.

use std::time::Duration;

use magnus::{Error, Ruby, Value, prelude::*, typed_data::Obj};

use crate::{
    control::{
        hook_scope::{Entered, HookScope},
        scheduler::Scheduler,
    },
    ruby::{
        call::call_method,
        convert,
        method::{Receiver, wrong_number},
        object::{is_visible, object_ref},
    },
    wait,
};

/// `kernel_sleep(duration = nil)`
pub fn kernel_sleep(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    arguments: &[Value],
) -> Result<bool, Error> {
    let duration = match arguments {
        [] => None,
        [duration] => match convert::simple_timeout(*duration) {
            Some(duration) => duration,
            None => return convert_and_wait(ruby, this, *duration, None),
        },
        _ => return Err(wrong_number(ruby, arguments.len(), "0..1")),
    };
    let Entered::Usable(scope) = HookScope::enter(ruby, &this)? else {
        return wait::block::block_in_forked_child(this, duration).map(|_| true);
    };
    if duration == Some(Duration::ZERO) {
        this.yield_now(scope.slot)?;
    } else {
        wait::block::block(&scope, true, duration, None)?;
    }
    Ok(true)
}

/// `block(blocker, timeout = nil)`: true if unblocked, false if the time is up. A negative timeout counts as 0, as
/// Thread#join and Queue#pop hand it on.
pub fn block(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    arguments: &[Value],
) -> Result<bool, Error> {
    let timeout = match arguments {
        [_blocker] => None,
        [blocker, timeout] => match convert::simple_lenient_timeout(*timeout) {
            Some(timeout) => timeout,
            None => return convert_and_wait(ruby, this, *timeout, Some(*blocker)),
        },
        _ => return Err(wrong_number(ruby, arguments.len(), "1..2")),
    };
    let Entered::Usable(scope) = HookScope::enter(ruby, &this)? else {
        return wait::block::block_in_forked_child(this, timeout);
    };
    let blocker = Some(object_ref(arguments[0]));
    match wait::block::block(&scope, false, timeout, blocker) {
        Ok(is_unblocked) => Ok(is_unblocked),
        Err(error) => hand_on(this, arguments[0], error),
    }
}

/// `block` (with its blocker) or `kernel_sleep` whose limit is any object: to convert it may run Ruby code. Then an `unblock` may
/// come, because the VM has listed the fiber as waiting already. So the wait begins before the limit is converted. A hook in that
/// code finds the fiber in a wait, as a trap handler's does.
#[cold]
fn convert_and_wait(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    limit: Value,
    blocker: Option<Value>,
) -> Result<bool, Error> {
    let sleeps = blocker.is_none();
    let convert = match sleeps {
        true => convert::timeout,
        false => convert::lenient_timeout,
    };
    let Entered::Usable(scope) = HookScope::enter(ruby, &this)? else {
        return wait::block::block_in_forked_child(this, convert(limit)?)
            .map(|is_unblocked| is_unblocked || blocker.is_none());
    };
    let object = blocker.map(object_ref);
    if !wait::block::begin(&scope, sleeps, object) {
        return Ok(true);
    }
    let limit = convert(limit);
    let is_unblocked = this.state_mut().end_block(scope.slot);
    let waited = match limit {
        Ok(_) if is_unblocked => Ok(true),
        Ok(Some(Duration::ZERO)) if blocker.is_none() => this.yield_now(scope.slot).map(|()| true),
        Ok(limit) => wait::block::block(&scope, sleeps, limit, object),
        Err(error) => Err(error),
    };
    match (waited, blocker) {
        (Err(error), Some(blocker)) => hand_on(this, blocker, error),
        (waited, None) => waited.map(|_| true),
        (waited, _) => waited,
    }
}

/// This fiber raises, and the wake-up may have handed over a mutex: then the mutex is handed on.
#[cold]
fn hand_on(this: Obj<Scheduler>, blocker: Value, error: Error) -> Result<bool, Error> {
    if is_visible(blocker) {
        call_method(this.as_value(), "hand_on_mutex", &[blocker])?;
    }
    Err(error)
}

/// `unblock(blocker, fiber)`: from any thread, also in a trap handler; never raises, never switches.
pub fn unblock(Receiver(this): Receiver<Scheduler>, blocker: Value, fiber: Value) {
    wait::block::unblock(this, blocker, fiber);
}

/// `yield`: lets the other ready fibers run.
pub fn r#yield(ruby: &Ruby, Receiver(this): Receiver<Scheduler>) -> Result<bool, Error> {
    if let Entered::Usable(scope) = HookScope::enter(ruby, &this)? {
        this.yield_now(scope.slot)?;
    }
    Ok(true)
}
