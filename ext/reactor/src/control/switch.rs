//! Giving control to another fiber and getting it back.

use magnus::{Error, Ruby, Symbol, prelude::*};
use reactor_scheduler::state::{fiber::Slot, object_ref::ObjectRef, wait::Pending};

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        call::call_method,
        error::is_fiber_error,
        fiber::{clear_kill, is_blocking, is_kill, is_unborn, switch_to_empty_fiber, transfer},
        object::{Object, object_ref},
        thread::current_scheduler,
    },
};

impl Scheduler {
    /// Switches to another fiber. Returns when this fiber gets control back, whoever gave it.
    pub fn switch(&self, from: Slot, to: Slot, fiber: ObjectRef) -> Result<(), Error> {
        self.state_mut().before_switch(to);
        let result = transfer(fiber, &[]);
        self.state_mut().on_resumed(from);
        self.filter_repeated_kill(from, result)
    }

    /// Called when `slot` has control again.
    pub fn on_resumed(&self, slot: Slot) {
        self.state_mut().on_resumed(slot);
    }

    /// After `Fiber#kill`, the VM raises the kill again on every switch back to the fiber. The repeated kills are
    /// cleared, so that `ensure` blocks can wait.
    pub fn filter_repeated_kill(&self, slot: Slot, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.resumed_by_error(slot, error),
        }
    }

    #[cold]
    fn resumed_by_error(&self, slot: Slot, error: Error) -> Result<(), Error> {
        if is_kill(&error) && self.state_mut().fibers[slot].mark_killed() {
            clear_kill();
            return Ok(());
        }
        self.state_mut().note_raise(slot);
        Err(error)
    }

    /// Called when control returns after a switch to a new fiber. Returns true if that fiber did not run, because there
    /// was no memory for its stack; it then no longer belongs to the scheduler.
    pub fn forget_unborn(&self, fiber: ObjectRef, result: &Result<(), Error>) -> bool {
        let error = result.as_ref().err();
        error.is_some_and(|error| self.forget_if_unborn(fiber, error))
    }

    #[cold]
    fn forget_if_unborn(&self, fiber: ObjectRef, error: &Error) -> bool {
        // A starter that was to make the switch may have been interrupted first.
        let may_be_unborn = is_fiber_error(error) || is_blocking();
        let is_unborn = may_be_unborn && is_unborn(fiber.value());
        if is_unborn {
            self.state_mut().end_fiber(fiber);
        }
        is_unborn
    }

    /// Before a wait, if [`State::may_concern_resumer`]: checks whether a kill or timeout of the fiber's resumer affects the
    /// wait.
    ///
    /// [`State::may_concern_resumer`]: reactor_scheduler::state::State::may_concern_resumer
    pub fn check_resumer(&self, slot: Slot, may_concern_resumer: bool) -> Result<(), Error> {
        if may_concern_resumer {
            return self.find_timeout_and_kill(slot);
        }
        Ok(())
    }

    #[cold]
    fn find_timeout_and_kill(&self, slot: Slot) -> Result<(), Error> {
        let waits_again = self.state().waits_although_cancelled(slot);
        if let Some((times, reason)) = waits_again {
            self.cancel_again(slot, times, reason)?;
        }
        let (has_timeout, may_be_killed) = {
            let state = self.state();
            (
                state.may_have_timeout_of_resumer(slot),
                state.may_be_killed(slot),
            )
        };
        if has_timeout {
            self.finds_handler(slot);
        }
        match may_be_killed {
            true => self.find_kill(slot),
            false => Ok(()),
        }
    }

    /// The fiber has been cancelled and waits again. Unless it is ending, it has swallowed the cancellation, and this wait
    /// raises another one.
    fn cancel_again(&self, slot: Slot, times: u8, reason: ObjectRef) -> Result<(), Error> {
        let scheduler = current_scheduler().value();
        if !self.is_object(scheduler) {
            return Ok(());
        }
        let times = Ruby::get_with(scheduler).integer_from_i64(times.into());
        let arguments = [times.as_value(), reason.value()];
        let answer = call_method(scheduler, "cancel_again", &arguments)?;
        if answer.to_bool() {
            let is_kill = Symbol::from_value(answer).is_some();
            let pending = match is_kill {
                true => Pending::Kill,
                false => Pending::Raise(object_ref(answer)),
            };
            let record = &mut self.state_mut().fibers[slot];
            record.count_cancel();
            record.put_back(pending);
        }
        Ok(())
    }

    /// Checks whether the fiber was killed while it waited for another fiber, for example an Enumerator's. If so, the
    /// VM raised the kill outside a hook. Switching to an empty fiber and back makes the VM raise the kill here.
    fn find_kill(&self, slot: Slot) -> Result<(), Error> {
        match switch_to_empty_fiber() {
            Err(error) if is_kill(&error) => {
                clear_kill();
                self.state_mut().fibers[slot].mark_killed();
                Ok(())
            }
            other => {
                self.state_mut().fibers[slot].is_kill_suspected = false;
                other
            }
        }
    }
}
