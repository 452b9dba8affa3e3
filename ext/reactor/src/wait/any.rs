//! A wait for several things at once: descriptors, questions to the resolver, time.

use std::time::Duration;

use magnus::{Error, typed_data::Obj};
use reactor::Interest;
use reactor_scheduler::state::{wait::WakeCause, wait_registration::BegunAny};

use crate::{
    control::hook_scope::HookScope,
    ruby::{error::system_error, io_facts::IoFacts},
    wait::{lookup::Lookup, readiness::watch},
};

/// Parks until one of them is ready or has ended; false if the time is up before.
pub fn wait_for_any(
    scope: &HookScope,
    ios: &[(IoFacts, Interest)],
    lookups: &[Obj<Lookup>],
    timeout: Option<Duration>,
) -> Result<bool, Error> {
    let scheduler = scope.scheduler;
    let watches = ios.iter().map(|(io, interest)| watch(io, *interest));
    let (registered, begun) = scheduler.state_mut().begin_any(
        scope.slot,
        watches,
        timeout,
        !lookups.is_empty(),
        |token| lookups.iter().for_each(|lookup| lookup.redirect(token)),
    );
    let parked = match begun {
        BegunAny::Parked => scheduler.park(scope.slot),
        BegunAny::Ready => Ok(WakeCause::Ready),
        BegunAny::Failed(error) => Err(system_error(&error)),
    };
    scheduler.state_mut().end_any(registered);
    Ok(parked? != WakeCause::Elapsed)
}
