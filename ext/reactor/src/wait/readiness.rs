//! A wait until one descriptor is ready.
//!
//! Every frame below a parked fiber costs memory in that fiber. So `begin_wait` and `end_wait` are never inlined: their frames
//! are gone while the fiber is parked. The function that parks is always inlined into its caller.

use std::time::Duration;

use magnus::Error;
use reactor::{Attempt, CachedReadiness, Deadline, Interest, Ready};
use reactor_scheduler::state::{
    unpolled_waits::UnpolledWaits,
    wait::WakeCause,
    wait_registration::{Registered, Watch},
};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        error::{closed_elsewhere, system_error},
        io_facts::IoFacts,
    },
};

/// The IO object and the interest, as the state knows them.
pub fn watch(io: &IoFacts, interest: Interest) -> Watch {
    Watch {
        descriptor: io.descriptor,
        owner_id: io.owner_id,
        interest,
    }
}

/// Waits until a descriptor is ready; `None` if the time is up before. A timeout of zero only asks, without parking.
pub fn wait_until_ready(
    scope: &HookScope,
    io: &IoFacts,
    interest: Interest,
    timeout: Option<Duration>,
) -> Result<Option<Interest>, Error> {
    if timeout == Some(Duration::ZERO) {
        return reactor::poll_now(io.descriptor, interest).map_err(|error| system_error(&error));
    }
    let deadline = scope.scheduler.state().event_loop.deadline(timeout);
    loop {
        let (ready, cause) = match wait_once(scope, io, interest, deadline)? {
            Some(answer) => answer,
            None => return Ok(Some(UnpolledWaits::ready(interest))),
        };
        if io.io.is_closed() {
            return Err(closed_elsewhere());
        }
        if let Some(answered) = ready.answers(interest) {
            return Ok(Some(answered));
        }
        if cause == WakeCause::Elapsed {
            return Ok(None);
        }
    }
}

/// Waits until the descriptor is readable; false if the time is up before.
pub fn linger(scope: &HookScope, io: &IoFacts, limit: Option<Duration>) -> Result<bool, Error> {
    let known = scope
        .scheduler
        .state()
        .cached_readiness(io.descriptor, io.owner_id);
    if known.is_some_and(|known| known.readable == CachedReadiness::Ready)
        && is_readable(scope, io)?
    {
        return Ok(true);
    }
    Ok(wait_until_ready(scope, io, Interest::READABLE, limit)?.is_some())
}

/// An event has come, while a send was waited for, or before a read that has taken all. To ask poll(2) which is cheaper than
/// to arm the descriptor, to park and to poll the driver.
fn is_readable(scope: &HookScope, io: &IoFacts) -> Result<bool, Error> {
    let answer = reactor::poll_now(io.descriptor, Interest::READABLE);
    let is_readable = answer.map_err(|error| system_error(&error))?.is_some();
    if !is_readable {
        let mut state = scope.scheduler.state_mut();
        state.record_attempt(watch(io, Interest::READABLE), Attempt::WouldBlock);
    }
    Ok(is_readable)
}

/// The readiness of the descriptor, and the cause of the wait's end; `None` if the kernel does not poll it and it is ready.
fn wait_once(
    scope: &HookScope,
    io: &IoFacts,
    interest: Interest,
    deadline: Option<Deadline>,
) -> Result<Option<(Ready, WakeCause)>, Error> {
    let Some(registered) = begin_wait(scope, io, interest, deadline)? else {
        return Ok(None);
    };
    let parked = scope.scheduler.park(scope.slot);
    let ready = end_wait(scope.scheduler, registered);
    Ok(Some((ready, parked?)))
}

/// `None` if the kernel does not poll the descriptor, which is then always ready, but not for urgent data.
pub fn begin_wait(
    scope: &HookScope,
    io: &IoFacts,
    interest: Interest,
    deadline: Option<Deadline>,
) -> Result<Option<Registered>, Error> {
    let watch = watch(io, interest);
    let begun = scope
        .scheduler
        .state_mut()
        .begin_readiness(scope.slot, watch, deadline);
    match begun {
        Ok(None) => {
            io.recheck_kind();
            Ok(None)
        }
        Ok(registered) => Ok(registered),
        Err(error) => Err(system_error(&error)),
    }
}

/// Undoes what [`begin_wait`] did: what the descriptor was ready for.
pub fn end_wait(scheduler: &Scheduler, registered: Registered) -> Ready {
    scheduler.state_mut().end_readiness(registered)
}
