//! Raising in the running fiber: pending exceptions, kills, timeouts.

use magnus::{Error, prelude::*};
use reactor_scheduler::state::{
    fiber::Slot,
    wait::{Pending, WaitStatus, WakeCause},
};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        call::call_method,
        caller::is_uninterruptible,
        error::{self, into_exception, is_unwinding, ruby},
        fiber::{self, clear_kill, current_fiber, is_kill},
        object::{Object, object_ref, write_barrier},
        thread::{check_interrupts, current_scheduler},
    },
};

/// What reached a fiber that has to wait on, to be raised afterwards.
pub enum Kept {
    Error(Error),
    Kill,
}

impl Kept {
    /// `Err` for Thread#kill: the VM forgets it when other Ruby code runs.
    pub fn new(error: Error) -> Result<Self, Error> {
        if is_kill(&error) {
            clear_kill();
            return Ok(Self::Kill);
        }
        match is_unwinding(&error) {
            true => Err(error),
            false => Ok(Self::Error(error)),
        }
    }

    /// The error to return in the current fiber.
    pub fn raise(self, scope: &HookScope) -> Error {
        match self {
            Self::Error(error) => error,
            Self::Kill => scope.scheduler.kill(scope.slot),
        }
    }
}

impl Scheduler {
    /// Raises the exception pending for the fiber, if any. Otherwise returns how its wait ended, if it has.
    pub fn poll_wait(&self, slot: Slot) -> Result<Option<WakeCause>, Error> {
        let status = self.state_mut().take_wait_status(slot);
        match status {
            WaitStatus::Ended(cause) => Ok(Some(cause)),
            WaitStatus::Waiting => Ok(None),
            status => self.raise_unless_closing(slot, status),
        }
    }

    /// Raises something in the fiber.
    #[cold]
    fn raise_unless_closing(
        &self,
        slot: Slot,
        status: WaitStatus,
    ) -> Result<Option<WakeCause>, Error> {
        match status {
            WaitStatus::Raise(pending) if self.must_wait_on(slot) => {
                self.state_mut().fibers[slot].put_back(pending);
                self.state_mut().fibers[slot].ignore_timeouts();
                Ok(self.wake_cause(slot))
            }
            WaitStatus::TimedOut if self.finds_handler(slot) => self.poll_wait(slot),
            WaitStatus::TimedOut if self.must_wait_on(slot) => {
                self.state_mut().fibers[slot].ignore_timeouts();
                Ok(self.wake_cause(slot))
            }
            WaitStatus::Raise(pending) => {
                self.raise(slot, pending)?;
                Ok(self.wake_cause(slot))
            }
            WaitStatus::TimedOut if self.spares_clause(slot)? => self.poll_wait(slot),
            WaitStatus::TimedOut => Err(self.timeout_error(slot)),
            WaitStatus::Ended(_) | WaitStatus::Waiting => Ok(self.wake_cause(slot)),
        }
    }

    /// Whether the running fiber must keep waiting: it closes an IO that another fiber or thread uses, or locks a mutex again. See
    /// [`is_uninterruptible`].
    fn must_wait_on(&self, slot: Slot) -> bool {
        let may_be = self.state().fibers[slot].waits_for_unblock_only();
        may_be && is_uninterruptible()
    }

    /// Keeps an error that reached a fiber during a wait that only its own completion may end: the fiber's next wait that
    /// an exception may end raises it. Thread#kill cannot be kept, and is returned.
    pub fn keep_for_next_wait(scope: &HookScope, error: Error) -> Result<(), Error> {
        let pending = match Kept::new(error)? {
            Kept::Kill => Pending::Kill,
            Kept::Error(error) => {
                let exception = object_ref(into_exception(error)?);
                write_barrier(scope.object, exception);
                Pending::Raise(exception)
            }
        };
        scope.scheduler.state_mut().fibers[scope.slot].put_back(pending);
        Ok(())
    }

    /// Like [`Scheduler::poll_wait`], but a pending exception only ends the wait, and is kept for later.
    pub fn poll_wake(&self, slot: Slot) -> Result<Option<WakeCause>, Error> {
        let has_timed_out = self.state().fibers.has_timed_out(slot);
        if has_timed_out && !self.finds_handler(slot) {
            return match self.spares_clause(slot)? {
                true => self.poll_wake(slot),
                false => Ok(Some(WakeCause::Interrupted)),
            };
        }
        Ok(self.wake_cause(slot))
    }

    /// Whether the timeout due is the end of a block in which another ending runs a clause. Then it does not end this wait.
    /// An error is the thread's: it has been interrupted in the Ruby code that says so.
    #[cold]
    fn spares_clause(&self, slot: Slot) -> Result<bool, Error> {
        let exception = self.state().fibers.due_exception(slot);
        let scheduler = current_scheduler().value();
        let Some(exception) = exception.filter(|_| self.is_object(scheduler)) else {
            return Ok(false);
        };
        let spares = call_method(scheduler, "spares_clause?", &[exception.value()])?.to_bool();
        if spares {
            self.state_mut().fibers.spare_wait(slot);
        }
        Ok(spares)
    }

    /// Whether the timeout due in a fiber that has resumed an Enumerator must not end the Enumerator's wait, which is in a shield. It
    /// is tried again when either fiber waits again.
    #[cold]
    pub fn spares_suspended(&self, slot: Slot) -> Result<bool, Error> {
        let (exception, waiting) = {
            let fibers = &self.state().fibers;
            (fibers.due_exception(slot), fibers.running_for(slot))
        };
        let scheduler = current_scheduler().value();
        let (Some(exception), Some(waiting)) = (exception, waiting) else {
            return Ok(false);
        };
        if !self.is_object(scheduler) {
            return Ok(false);
        }
        let waiting = self.state().fibers[waiting].fiber();
        let given = [exception.value(), waiting.value()];
        call_method(scheduler, "spares_suspended?", &given).map(|spares| spares.to_bool())
    }

    /// How the fiber's wait ended, if it has.
    fn wake_cause(&self, slot: Slot) -> Option<WakeCause> {
        self.state().fibers[slot].wake_cause()
    }

    /// Raises the exception pending for a fiber that was queued without a wait.
    pub fn raise_pending_in_queued(&self, slot: Slot) -> Result<(), Error> {
        let pending = self.state_mut().take_pending(slot);
        match pending {
            Some(pending) => self.raise(slot, pending),
            None => Ok(()),
        }
    }

    #[cold]
    fn raise(&self, slot: Slot, pending: Pending) -> Result<(), Error> {
        match pending {
            Pending::Raise(exception) | Pending::Late(exception) => {
                Err(error::exception(exception))
            }
            Pending::Kill => Err(self.kill(slot)),
            Pending::Interrupts => check_interrupts(),
        }
    }

    /// Ends the current fiber: unwinds it, running its `ensure` blocks, and no rescue can stop it.
    pub fn kill(&self, slot: Slot) -> Error {
        self.state_mut().fibers[slot].mark_killed();
        fiber::kill(current_fiber())
    }

    /// The error raised by the fiber's outermost expired timeout.
    #[cold]
    pub fn timeout_error(&self, slot: Slot) -> Error {
        let expired = self.state_mut().take_expired_timeout(slot);
        match expired {
            Some((exception, message)) => {
                let arguments = [exception.value(), message.value()];
                let has_message = !arguments[1].is_nil();
                error::raised_by(&arguments[..1 + usize::from(has_message)])
            }
            None => Error::new(ruby().exception_fatal(), "a timeout was lost"),
        }
    }
}
