//! `io_wait`, and `wait_any` for several objects.

use std::time::Duration;

use magnus::{
    Error, RArray, Ruby, TryConvert, Value, prelude::*, scan_args::scan_args, typed_data::Obj,
};
use reactor::{Attempt, CachedReadiness, Interest, Ready};
use reactor_scheduler::state::{wait::WakeCause, wait_registration::BegunAny};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        IS_3_3,
        caller::{CALLERS_AFTER_EAGAIN, WAITING},
        convert,
        error::{io_timeout_error, set_errno_to_would_block, system_error},
        io_info::IoInfo,
        platform::SOCKETS_WAIT_FIRST,
        receiver::{Receiver, wrong_number},
    },
    wait::{lookup::Lookup, readiness},
};

/// `io_wait(io, events, timeout = nil)`: the VM gives the timeout, callers of their own often do not.
///
/// Before Ruby 3.4, a socket method that gets false from this hook raises the error in errno, as if nothing had run
/// since its own EAGAIN.
pub fn io_wait(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    arguments: &[Value],
) -> Result<Value, Error> {
    let arguments = match *arguments {
        [io, events] => [io, events, ruby.qnil().as_value()],
        [io, events, timeout] => [io, events, timeout],
        _ => return Err(wrong_number(ruby, arguments.len(), "2..3")),
    };
    let ready = ready_events(ruby, this, arguments)?;
    if !ready.to_bool() {
        set_errno_to_would_block();
    }
    Ok(ready)
}

/// The events, or false if the timeout elapsed. Nothing in this hook runs after it that could change errno.
fn ready_events(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    [io, events, timeout]: [Value; 3],
) -> Result<Value, Error> {
    let interest = convert::interest(ruby, events)?;
    let scope = HookScope::enter(ruby, &this)?;
    let io = IoInfo::new(io)?;
    let limit = if timeout.is_nil() {
        io.io.timeout()
    } else {
        timeout
    };
    let limit = convert::timeout(limit)?;
    if SOCKETS_WAIT_FIRST && io.is_ruby_socket {
        if let Some(ready) = ready_now(&scope, &io, interest)? {
            return Ok(ruby.integer_from_u64(ready.bits().into()).as_value());
        }
    } else {
        record_callers_attempt(&scope, &io, interest);
    }
    match readiness::wait_until_ready(&scope, &io, interest, limit)? {
        Some(ready) => Ok(ruby.integer_from_u64(ready.bits().into()).as_value()),
        // Ruby 3.3's IO methods take the false of `io_wait`, "timed out", for Errno::EAGAIN.
        None if timeout.is_nil() && IS_3_3 && WAITING.have_called() => Err(io_timeout_error()),
        None => Ok(ruby.qfalse().as_value()),
    }
}

/// The events for which the descriptor is ready now. If there are none, records that it is not ready.
fn ready_now(
    scope: &HookScope,
    io: &IoInfo,
    interest: Interest,
) -> Result<Option<Interest>, Error> {
    let ready = readiness::wait_until_ready(scope, io, interest, Some(Duration::ZERO))?;
    if ready.is_none() {
        let watch = readiness::watch(io, interest);
        let mut state = scope.scheduler.state_mut();
        state.record_attempt(watch, Attempt::WouldBlock);
    }
    Ok(ready)
}

/// If the caller has just got EAGAIN, records that the descriptor is not ready, so that this wait needs no system call.
///
/// That may be untrue if a signal handler has let other fibers run since the caller's EAGAIN. The wait is then re-armed
/// after 100 ms, like any idle wait.
fn record_callers_attempt(scope: &HookScope, io: &IoInfo, interest: Interest) {
    if !io.is_ruby_socket || interest != Interest::READABLE {
        return;
    }
    let known = scope
        .scheduler
        .state()
        .cached_readiness(io.polled(), io.owner_id);
    let is_open = known.is_some_and(|known| known.readable != CachedReadiness::Drained);
    if is_open && CALLERS_AFTER_EAGAIN.have_called() {
        let mut state = scope.scheduler.state_mut();
        state.record_attempt(readiness::watch(io, interest), Attempt::WouldBlock);
    }
}

/// `wait_any(ios, masks, timeout, lookups = [])`: parks once for many descriptors and resolver queries; the caller then
/// checks what is ready. Returns nil if the timeout elapsed, else those of the objects from which no urgent data can
/// come any more, because they have hung up. (IO.select does not report these: a second wait would end at once.)
pub fn wait_any(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    arguments: &[Value],
) -> Result<Option<RArray>, Error> {
    let given = scan_args::<(RArray, RArray, Value), (Option<RArray>,), (), (), (), ()>(arguments)?;
    let (ios, masks, timeout) = given.required;
    let timeout = convert::timeout(timeout)?;
    let mut lookups = Vec::new(); // kept alive by the Array that holds them
    for lookup in given.optional.0.into_iter().flatten() {
        lookups.push(Obj::<Lookup>::try_convert(lookup)?);
    }
    let hung_up = ruby.ary_new();
    let scope = HookScope::enter(ruby, &this)?;
    let mut watched = Vec::with_capacity(ios.len());
    for (io, mask) in ios.into_iter().zip(masks) {
        watched.push((IoInfo::new(io)?, convert::interest(ruby, mask)?));
    }
    let watches = watched
        .iter()
        .map(|(io, interest)| readiness::watch(io, *interest));
    let (registered, begun) =
        this.state_mut()
            .begin_any(scope.slot, watches, timeout, !lookups.is_empty(), |token| {
                lookups.iter().for_each(|lookup| lookup.redirect(token))
            });
    let parked = match begun {
        BegunAny::Parked => this.park(scope.slot),
        BegunAny::Ready => Ok(WakeCause::Ready(Ready::EMPTY)),
        BegunAny::Failed(error) => Err(system_error(&error)),
    };
    let had_event = this.state_mut().end_any(registered);
    if parked? == WakeCause::Elapsed {
        return Ok(None);
    }
    for (io, ((info, interest), had_event)) in ios.into_iter().zip(watched.iter().zip(had_event)) {
        let has_hung_up = || {
            let state = this.state();
            let known = state.cached_readiness(info.polled(), info.owner_id);
            known.is_some_and(|known| known.hung_up)
        };
        if had_event && *interest == Interest::PRIORITY && has_hung_up() {
            hung_up.push(io)?;
        }
    }
    Ok(Some(hung_up))
}
