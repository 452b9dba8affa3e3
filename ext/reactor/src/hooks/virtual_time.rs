//! Time for tests: `virtual_time`, `virtual_elapsed`, `virtual_hold`. `lib/reactor/testing.rb` has the rules.

use magnus::{Error, Value, typed_data::Obj};

use crate::{
    control::scheduler::Scheduler,
    ruby::{convert, error::runtime_error},
};

/// `virtual_time(settle)`: freezes the clock of sleeps and timeouts. RuntimeError if it was frozen before.
pub fn freeze(this: Obj<Scheduler>, settle: Value) -> Result<(), Error> {
    let settle = convert::interval(settle)?;
    if !this.state_mut().event_loop.freeze_clock(settle) {
        let message = "this scheduler is closed, or its time is virtual already";
        return Err(runtime_error(message));
    }
    Ok(())
}

/// `virtual_elapsed`: nanoseconds of virtual time since it began; nil if time is real.
pub fn elapsed(this: Obj<Scheduler>) -> Option<u64> {
    let elapsed = this.state().event_loop.virtual_elapsed()?;
    Some(elapsed.as_nanos() as u64)
}

/// `virtual_hold(begins)`: from true to false the clock does not advance.
pub fn hold(this: Obj<Scheduler>, begins: bool) {
    this.state_mut().event_loop.hold_clock(begins);
}
