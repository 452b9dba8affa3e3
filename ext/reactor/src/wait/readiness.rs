//! Waiting until one descriptor is ready.

use std::time::Duration;

use magnus::Error;
use reactor::{Attempt, CachedReadiness, Deadline, Interest, Ready};
use reactor_scheduler::{
    state::{
        wait::WakeCause,
        wait_registration::{Watch, ready_if_unpolled},
    },
    system::transfer::poll_now,
};

use crate::{
    control::hook_scope::HookScope,
    ruby::{
        error::{closed_elsewhere, system_error},
        io_info::IoInfo,
    },
};

/// The IO object and the interest, as the state knows them.
pub fn watch(io: &IoInfo, interest: Interest) -> Watch {
    Watch {
        descriptor: io.polled(),
        owner_id: io.owner_id,
        interest,
    }
}

/// Waits until a descriptor is ready; `None` if the timeout elapses first, or a wait for urgent data ends by a hang-up.
/// A timeout of zero only checks, without parking.
pub fn wait_until_ready(
    scope: &HookScope,
    io: &IoInfo,
    interest: Interest,
    timeout: Option<Duration>,
) -> Result<Option<Interest>, Error> {
    if timeout == Some(Duration::ZERO) {
        return poll_now(io.kind, io.descriptor, interest).map_err(|error| system_error(&error));
    }
    let deadline = scope.scheduler.state().event_loop.deadline(timeout);
    loop {
        let Some((ready, cause)) = wait_once(scope, io, interest, deadline)? else {
            return Ok(Some(ready_if_unpolled(interest)));
        };
        if io.io.is_closed() {
            return Err(closed_elsewhere());
        }
        if let Some(answered) = ready.answers(interest) {
            return Ok(Some(answered));
        }
        if cause == WakeCause::Elapsed || !ready.is_empty() {
            return Ok(None);
        }
    }
}

/// Waits until the descriptor is readable; false if the limit elapses first.
pub fn linger(scope: &HookScope, io: &IoInfo, limit: Option<Duration>) -> Result<bool, Error> {
    let (scheduler, interest) = (scope.scheduler, Interest::READABLE);
    let known = scheduler.state().cached_readiness(io.polled(), io.owner_id);
    // An event may have come while a send was in progress, or before a read that consumed everything. poll(2) is cheaper
    // than re-arming, parking and polling the driver.
    if known.is_some_and(|known| known.readable == CachedReadiness::Ready) {
        if wait_until_ready(scope, io, interest, Some(Duration::ZERO))?.is_some() {
            return Ok(true);
        }
        let mut state = scheduler.state_mut();
        state.record_attempt(watch(io, interest), Attempt::WouldBlock);
    }
    Ok(wait_until_ready(scope, io, interest, limit)?.is_some())
}

/// Parks once. Returns the events for which the descriptor is ready, and why the wait ended. `None` if the kernel
/// cannot poll the descriptor: it is then always ready, except for urgent data.
pub fn wait_once(
    scope: &HookScope,
    io: &IoInfo,
    interest: Interest,
    deadline: Option<Deadline>,
) -> Result<Option<(Ready, WakeCause)>, Error> {
    let scheduler = scope.scheduler;
    let watch = watch(io, interest);
    let begun = scheduler
        .state_mut()
        .begin_readiness(scope.slot, watch, deadline);
    let Some(registered) = begun.map_err(|error| system_error(&error))? else {
        io.recheck_kind();
        return Ok(None);
    };
    let parked = scheduler.park(scope.slot);
    let answer = parked.as_ref().ok().and_then(|cause| cause.answer());
    let ready = scheduler.state_mut().end_readiness(registered, answer);
    Ok(Some((ready, parked?)))
}
