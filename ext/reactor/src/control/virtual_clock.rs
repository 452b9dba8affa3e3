//! Virtual time: when no fiber can run, the loop sleeps for the settle time, and then advances the clock to the next timer.

use std::time::{Duration, Instant};

use magnus::{Error, prelude::*};

use crate::{
    control::scheduler::Scheduler,
    ruby::{call::call_method, object::Object, thread::current_scheduler},
};

/// Until when the outside has time to wake a fiber, before the virtual clock advances.
#[derive(Clone, Copy, Debug)]
pub struct SettleUntil(Instant);

impl SettleUntil {
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

impl Scheduler {
    /// Before an idle sleep: how long it is, if the virtual clock is to advance after it. `None` if it is not.
    pub fn settle_until(&self) -> Result<Option<SettleUntil>, Error> {
        let settle = self.state().settle_before_advance();
        let Some(settle) = settle else {
            return Ok(None);
        };
        let scheduler = current_scheduler().value();
        let is_awaited = self.is_object(scheduler)
            && call_method(scheduler, "wakeable_from_outside?", &[])?.to_bool();
        let settle = if is_awaited { settle } else { Duration::ZERO };
        Ok(Some(SettleUntil(Instant::now() + settle)))
    }

    /// After it: the clock advances if all the time has passed and still no fiber can run.
    pub fn advance_virtual_clock(&self, settle: Option<SettleUntil>) {
        if settle.is_some_and(|settle| settle.left().is_zero()) {
            self.state_mut().advance_if_idle();
        }
    }
}
