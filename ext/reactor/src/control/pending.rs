//! Raising in a fiber that has control: pending exceptions, kills, timeouts.

use magnus::Error;
use reactor_scheduler::state::{
    fiber::Slot,
    wait::{Pending, WaitStatus, WakeCause},
};

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        error::{self, ruby},
        fiber::{self, current_fiber},
        object::Object,
    },
};

impl Scheduler {
    /// How the fiber's wait ended, if it has; raises what is pending for the fiber.
    #[inline(never)]
    pub fn poll_wait(&self, slot: Slot) -> Result<Option<WakeCause>, Error> {
        let status = self.state_mut().poll_wait(slot);
        match status {
            WaitStatus::Over(cause) => Ok(Some(cause)),
            WaitStatus::Waiting => Ok(None),
            WaitStatus::Raise(pending) => Err(self.pending_error(slot, pending)),
            WaitStatus::TimedOut => Err(self.timeout_error(slot)),
        }
    }

    /// As [`Scheduler::poll_wait`], but what is pending is left for later.
    #[inline(never)]
    pub fn poll_wake(&self, slot: Slot) -> Result<Option<WakeCause>, Error> {
        match self.state().poll_wake(slot) {
            WaitStatus::Over(cause) => Ok(Some(cause)),
            _ => Ok(None),
        }
    }

    /// Raises what is pending for a fiber that was queued without a wait.
    pub fn raise_pending_in_queued(&self, slot: Slot) -> Result<(), Error> {
        let pending = self.state_mut().take_pending(slot);
        match pending {
            Some(pending) => Err(self.pending_error(slot, pending)),
            None => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn pending_error(&self, slot: Slot, pending: Pending) -> Error {
        match pending {
            Pending::Raise(exception) => error::exception(exception),
            Pending::Kill => self.kill(slot),
        }
    }

    /// Ends the current fiber: unwinds it, running its `ensure` blocks, and no rescue stops it.
    fn kill(&self, slot: Slot) -> Error {
        self.state_mut().mark_killed(slot);
        fiber::kill(current_fiber())
    }

    /// The error that the fiber's outermost fired timeout raises.
    #[cold]
    #[inline(never)]
    pub fn timeout_error(&self, slot: Slot) -> Error {
        let fired = self.state_mut().take_fired_timeout(slot);
        match fired {
            Some((exception, message)) => {
                error::exception_with_message(exception.value(), message.value())
            }
            None => Error::new(ruby().exception_fatal(), "a timeout was lost"),
        }
    }
}
