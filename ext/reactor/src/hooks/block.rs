//! `kernel_sleep`, `block`, `unblock`, `yield`.

use std::time::Duration;

use magnus::{Error, Ruby, Value, prelude::*, typed_data::Obj};
use reactor_scheduler::state::object_ref::ObjectRef;

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
    wait::block::{self, block_in_forked_child, block_until},
};

/// `kernel_sleep(duration = nil)`
pub fn kernel_sleep(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    arguments: &[Value],
) -> Result<bool, Error> {
    let duration = match *arguments {
        [] => ruby.qnil().as_value(),
        [duration] => duration,
        _ => return Err(wrong_number(ruby, arguments.len(), "0..1")),
    };
    wait(ruby, this, None, duration).map(|_| true)
}

/// `block(blocker, timeout = nil)`: true if unblocked, false if the time is up. A negative timeout counts as 0, as
/// Thread#join and Queue#pop hand it on.
pub fn block(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    arguments: &[Value],
) -> Result<bool, Error> {
    let (blocker, timeout) = match *arguments {
        [blocker] => (blocker, ruby.qnil().as_value()),
        [blocker, timeout] => (blocker, timeout),
        _ => return Err(wrong_number(ruby, arguments.len(), "1..2")),
    };
    wait(ruby, this, Some(blocker), timeout)
}

/// Parks until unblocked (true) or until the time is up (false).
fn wait(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    blocker: Option<Value>,
    limit: Value,
) -> Result<bool, Error> {
    let is_block = blocker.is_some();
    let Entered::Usable(scope) = HookScope::enter(ruby, &this)? else {
        return block_in_forked_child(this, convert(limit, is_block)?);
    };
    let simple = match is_block {
        true => convert::simple_lenient_timeout(limit),
        false => convert::simple_timeout(limit),
    };
    let object = blocker.map(object_ref);
    let limit = match simple {
        Some(limit) => Ok(Some(limit)),
        None => convert_in_wait(&scope, limit, object),
    };
    let waited = match limit {
        Ok(None) => Ok(true),
        Ok(Some(Some(Duration::ZERO))) if !is_block => this.yield_now(scope.slot).map(|()| true),
        Ok(Some(limit)) => block_until(&scope, limit, object),
        Err(error) => Err(error),
    };
    match (waited, blocker) {
        (Err(error), Some(blocker)) => hand_on(this, blocker, error),
        (waited, _) => waited,
    }
}

/// Converting a limit that is any object may run Ruby code. Then an `unblock` may come, because the VM has listed the fiber as
/// waiting already. So a wait begins before; a hook in that code finds the fiber in it, as a trap handler's does. `None`: an
/// `unblock` has come.
#[cold]
fn convert_in_wait(
    scope: &HookScope,
    limit: Value,
    blocker: Option<ObjectRef>,
) -> Result<Option<Option<Duration>>, Error> {
    let mut state = scope.scheduler.state_mut();
    if state
        .begin_block(scope.slot, blocker.is_none(), None, blocker)
        .is_none()
    {
        return Ok(None);
    }
    drop(state);
    let limit = convert(limit, blocker.is_some());
    let is_unblocked = scope.scheduler.state_mut().end_block(scope.slot);
    limit.map(|limit| (!is_unblocked).then_some(limit))
}

fn convert(limit: Value, is_block: bool) -> Result<Option<Duration>, Error> {
    match is_block {
        true => convert::lenient_timeout(limit),
        false => convert::timeout(limit),
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
    block::unblock(this, blocker, fiber);
}

/// `yield`: lets the other ready fibers run.
pub fn r#yield(ruby: &Ruby, Receiver(this): Receiver<Scheduler>) -> Result<bool, Error> {
    if let Entered::Usable(scope) = HookScope::enter(ruby, &this)? {
        this.yield_now(scope.slot)?;
    }
    Ok(true)
}
