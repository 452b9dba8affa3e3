//! A wait for an `unblock` or for time: `block` and `kernel_sleep`.

use std::time::Duration;

use magnus::{
    Error, IntoValue, RClass, Ruby, TypedData, Value, prelude::*, rb_sys::AsRawValue,
    typed_data::Obj,
};
use reactor_scheduler::state::{
    fiber::Slot, interruption::Unblocked, object_ref::ObjectRef, wait::WakeCause,
};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        call::call_method,
        caller::closes_io,
        fiber::current_fiber,
        object::{Object, object_ref, write_barrier},
    },
};

/// Parks until unblocked (true) or until the time is up (false): in `block`, or without a blocker in `kernel_sleep`.
pub fn block_until(
    scope: &HookScope,
    duration: Option<Duration>,
    blocker: Option<ObjectRef>,
) -> Result<bool, Error> {
    let scheduler = scope.scheduler;
    let begun = scheduler
        .state_mut()
        .begin_block(scope.slot, blocker.is_none(), duration, blocker);
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

/// An error has ended the wait, unless the fiber closes an IO: then the error is raised later.
#[cold]
fn ended_by(scope: &HookScope, duration: Option<Duration>, error: Error) -> Result<bool, Error> {
    if duration.is_some() || !closes_io() {
        return Err(error);
    }
    Scheduler::raise_after_close(scope, error).map(|()| true)
}

/// [`block_until`] in a forked child, where no fiber turns the reactor: looks now and then whether an `unblock` has come.
#[cold]
pub fn block_in_forked_child(
    this: Obj<Scheduler>,
    duration: Option<Duration>,
) -> Result<bool, Error> {
    let ruby = Ruby::get_with(this);
    let fiber = current_fiber();
    let entered = this.state_mut().enter_in_forked_child(fiber);
    if entered.is_new {
        write_barrier(this, fiber);
    }
    let token = this.state_mut().begin_block_in_forked_child(entered.slot);
    let seconds = duration.map(|duration| ruby.float_from_f64(duration.as_secs_f64()));
    let scheduler = object_ref(this);
    let is_over = ruby.proc_from_fn(move |_, _, _| {
        let this = Obj::<Scheduler>::try_convert(scheduler.value())?;
        Ok::<_, Error>(!this.state().is_blocked(token))
    });
    let arguments = [seconds.into_value_with(&ruby), is_over.as_value()];
    let waited = call_method(this.as_value(), "block_in_forked_child", &arguments);
    let is_unblocked = !this.state().is_blocked(token);
    let mut state = this.state_mut();
    state.end_wait(token);
    state.leave(entered.slot);
    waited.map(|_| is_unblocked)
}

/// Ends a fiber's `block` or `kernel_sleep`, from any thread.
pub fn unblock(this: Obj<Scheduler>, blocker: Value, fiber: Value) {
    if this.is_closed() && !this.is_forked_child() {
        return;
    }
    let (fiber, blocker) = (object_ref(fiber), object_ref(blocker));
    let blocker = (blocker != this.owner.thread_in_hook()).then_some(blocker);
    let unblocked = this.state_mut().unblock(fiber, blocker);
    match unblocked {
        Unblocked::Woken => this.wake_thread(),
        Unblocked::Dropped => {}
        Unblocked::NotParked(slot) => grant_permit(this, slot),
    }
}

/// The VM has listed the fiber as waiting, and it is not parked yet: it is on its way through a subclass's override of
/// `block` or `kernel_sleep`, because between the list and the wait that our own hook begins no other thread gets the GVL. So
/// the wait that it is about to begin is over already. Without an override, an `unblock` of a running fiber is late, and dropped.
fn grant_permit(this: Obj<Scheduler>, slot: Slot) {
    let is_running = this.state().is_running(slot);
    if is_running && (is_overridden(this, "block") || is_overridden(this, "kernel_sleep")) {
        this.state_mut().grant_permit(slot);
    }
}

fn is_overridden(this: Obj<Scheduler>, hook: &str) -> bool {
    let ruby = Ruby::get_with(this);
    let method: Result<Value, Error> = this.funcall("method", (ruby.to_symbol(hook),));
    let owner = method.and_then(|method| method.funcall::<_, _, RClass>("owner", ()));
    owner.is_ok_and(|owner| owner.as_raw() != Scheduler::class(&ruby).as_raw())
}
