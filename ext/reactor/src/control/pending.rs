//! Raising in the running fiber: pending exceptions, kills, timeouts.

use magnus::{Error, prelude::*};
use reactor_scheduler::state::{
    fiber::Slot,
    wait::{Pending, WaitStatus, WakeCause},
};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        caller::closes_io,
        error::{self, into_exception, ruby},
        fiber::{self, clear_kill, current_fiber, is_kill},
        object::{Object, object_ref, write_barrier},
        thread::check_interrupts,
    },
};

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
            WaitStatus::TimedOut => Err(self.timeout_error(slot)),
            WaitStatus::Ended(_) | WaitStatus::Waiting => Ok(self.wake_cause(slot)),
        }
    }

    /// Whether the running fiber closes an IO, and must keep waiting until no other fiber or thread uses it. See
    /// [`closes_io`].
    fn must_wait_on(&self, slot: Slot) -> bool {
        self.state().fibers[slot].waits_for_unblock_only() && closes_io()
    }

    /// Handles an error that reached a fiber during the wait of a close: it is raised in the fiber's next wait that an
    /// exception may end.
    pub fn raise_after_close(scope: &HookScope, error: Error) -> Result<(), Error> {
        let pending = if is_kill(&error) {
            clear_kill();
            Pending::Kill
        } else {
            let exception = object_ref(into_exception(error)?); // Thread#kill proceeds
            write_barrier(scope.object, exception);
            Pending::Raise(exception)
        };
        scope.scheduler.state_mut().fibers[scope.slot].put_back(pending);
        Ok(())
    }

    /// Like [`Scheduler::poll_wait`], but a pending exception only ends the wait, and is kept for later.
    pub fn poll_wake(&self, slot: Slot) -> Option<WakeCause> {
        let has_timed_out = self.state().fibers.has_timed_out(slot);
        if has_timed_out && !self.finds_handler(slot) {
            return Some(WakeCause::Interrupted);
        }
        self.wake_cause(slot)
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
    fn kill(&self, slot: Slot) -> Error {
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
