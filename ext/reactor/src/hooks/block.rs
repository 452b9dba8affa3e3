//! `kernel_sleep`, `block`, `unblock`, `yield`: waits for an `unblock` or for time.

use std::time::Duration;

use magnus::{
    Error, RClass, Ruby, TypedData, Value, prelude::*, rb_sys::AsRawValue, typed_data::Obj,
};
use reactor_scheduler::state::{
    fiber::Slot, interruption::Unblocked, object_ref::ObjectRef, wait::WakeCause,
};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        IS_3_3,
        call::call_method,
        caller::{CONDITION_WAITS, is_uninterruptible},
        convert,
        fiber::is_fiber,
        object::{Object, is_visible, object_ref},
        receiver::{Receiver, wrong_number},
        thread::wake_up,
    },
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

/// `block(blocker, timeout = nil)`: true if unblocked, false if the timeout elapsed. A negative timeout counts as 0,
/// because Thread#join and Queue#pop pass it on.
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

/// Parks until unblocked (true) or until the limit elapses (false).
fn wait(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    blocker: Option<Value>,
    limit: Value,
) -> Result<bool, Error> {
    let is_block = blocker.is_some();
    let scope = HookScope::enter(ruby, &this)?;
    let simple = convert::is_simple(limit).then(|| convert(limit, is_block));
    let object = blocker.map(object_ref);
    let limit = match simple {
        Some(Ok(limit)) => Ok(Some(limit)),
        _ => convert_in_wait(&scope, limit, object),
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

/// Converting an arbitrary object to a limit may run Ruby code, and the VM has already listed the fiber as waiting, so
/// an `unblock` may come meanwhile. Therefore a wait begins first; hooks called by that code nest in the wait, like
/// hooks called by a trap handler. `None` if an `unblock` has come.
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

/// Parks until unblocked (true) or until the limit elapses (false): in `block`, or without a blocker in `kernel_sleep`.
fn block_until(
    scope: &HookScope,
    duration: Option<Duration>,
    blocker: Option<ObjectRef>,
) -> Result<bool, Error> {
    let scheduler = scope.scheduler;
    // Kernel#sleep waits for no other thread.
    let sleeps = blocker.is_none() && (duration.is_some() || !CONDITION_WAITS.have_called());
    let begun = scheduler
        .state_mut()
        .begin_block(scope.slot, sleeps, duration, blocker);
    let Some(timer) = begun else {
        return Ok(true);
    };
    let parked = scheduler.park(scope.slot);
    scheduler.state_mut().event_loop.cancel_timer(timer);
    match parked {
        Ok(cause) => Ok(cause != WakeCause::Elapsed),
        Err(error) => ended_by(scope, duration, error),
    }
}

/// Handles an error that ended the wait. If nothing may end it but an unblock, the error is raised later.
#[cold]
fn ended_by(scope: &HookScope, duration: Option<Duration>, error: Error) -> Result<bool, Error> {
    if duration.is_some() || !is_uninterruptible() {
        return Err(error);
    }
    Scheduler::keep_for_next_wait(scope, error).map(|()| true)
}

/// Called when this fiber raises although its wake-up may have handed it a mutex: hands the mutex on to the next
/// waiter.
#[cold]
fn hand_on(this: Obj<Scheduler>, blocker: Value, error: Error) -> Result<bool, Error> {
    if is_visible(blocker) {
        call_method(this.as_value(), "hand_on_mutex", &[blocker])?;
    }
    Err(error)
}

/// `unblock(blocker, fiber)`: callable from any thread and in trap handlers; never switches.
///
/// # Errors
///
/// Only what is pending for the calling thread, which comes as soon as Ruby code runs.
pub fn unblock(
    Receiver(this): Receiver<Scheduler>,
    blocker: Value,
    fiber: Value,
) -> Result<(), Error> {
    if this.is_closed() {
        return Ok(());
    }
    let (fiber, blocker) = (object_ref(fiber), object_ref(blocker));
    let blocker = (blocker != this.affinity.thread_in_hook()).then_some(blocker);
    let unblocked = this.state_mut().unblock(fiber, blocker);
    match unblocked {
        Unblocked::Woken => {
            this.wake_thread();
            return Ok(());
        }
        Unblocked::Dropped => {}
        Unblocked::NotParked(slot) => grant_permit(this, slot),
    }
    wake_blocking(this, fiber)
}

/// Handles an `unblock` for a blocking fiber. It waits in its thread, without the scheduler, but when the last user has left an
/// IO that it closes, the VM tells the scheduler nevertheless (`thread_io_wake_pending_closer`). The thread is woken then, as
/// the VM does it without a scheduler.
///
/// In Ruby 3.3 that does not end the closer's wait, and a call here would take the exception that is pending for the user.
fn wake_blocking(this: Obj<Scheduler>, fiber: ObjectRef) -> Result<(), Error> {
    let fiber = fiber.value();
    if !IS_3_3 && is_fiber(fiber) && fiber.funcall::<_, _, bool>("blocking?", ())? {
        wake_up(this.affinity.thread_in_hook());
    }
    Ok(())
}

/// Handles an `unblock` for a fiber that the VM has listed as waiting but that has not parked. The fiber is then inside a
/// subclass's override of `block` or `kernel_sleep`: without one, no other thread gets the GVL between the listing and
/// our own hook. So the wait that the fiber is about to begin has already ended. Without an override, an `unblock` of a
/// running fiber comes too late and is dropped.
fn grant_permit(this: Obj<Scheduler>, slot: Slot) {
    let is_running = !this.state().fibers[slot].is_in_wait();
    if is_running && (is_overridden(this, "block") || is_overridden(this, "kernel_sleep")) {
        this.state_mut().fibers[slot].grant_permit();
    }
}

fn is_overridden(this: Obj<Scheduler>, hook: &str) -> bool {
    let ruby = Ruby::get_with(this);
    let method: Result<Value, Error> = this.funcall("method", (ruby.to_symbol(hook),));
    let owner = method.and_then(|method| method.funcall::<_, _, RClass>("owner", ()));
    owner.is_ok_and(|owner| owner.as_raw() != Scheduler::class(&ruby).as_raw())
}

/// `yield`: lets the other ready fibers run.
pub fn r#yield(ruby: &Ruby, Receiver(this): Receiver<Scheduler>) -> Result<bool, Error> {
    if let Some(scope) = HookScope::enter_own(ruby, &this)? {
        this.yield_now(scope.slot)?;
    }
    Ok(true)
}
