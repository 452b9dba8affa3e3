//! A deadlock: every fiber waits for another one.

use magnus::{Error, TryConvert, prelude::*};

use crate::{
    control::scheduler::Scheduler,
    ruby::{call::call_method, error::ruby, object::Object, thread::current_scheduler},
};

impl Scheduler {
    /// Raises what Ruby raises when every thread waits for another one: if all fibers wait for an `unblock` without a time
    /// limit, and `deadlock_message` (in Ruby) finds no thread that could bring it.
    pub fn check_deadlock(&self) -> Result<(), Error> {
        if !self.state().may_be_deadlocked() {
            return Ok(());
        }
        let scheduler = current_scheduler().value();
        if !self.is_object(scheduler) || !scheduler.respond_to("deadlock_message", true)? {
            return Ok(());
        }
        let message = call_method(scheduler, "deadlock_message", &[])?;
        match Option::<String>::try_convert(message)? {
            Some(message) => Err(Error::new(ruby().exception_fatal(), message)),
            None => Ok(()),
        }
    }
}
