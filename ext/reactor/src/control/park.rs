//! Parking: a fiber that has begun a wait runs other fibers until the wait is over.

use magnus::Error;
use reactor_scheduler::state::{fiber::Slot, wait::WakeCause};

use crate::control::scheduler::Scheduler;

impl Scheduler {
    /// Suspends the current fiber until the wait begun for it is over. What is raised here instead (by a timeout, an
    /// interrupt, Fiber#raise, Fiber#kill, Thread#kill) comes back as the error. The caller undoes its registrations
    /// either way.
    #[inline(always)]
    pub fn park(&self, slot: Slot) -> Result<WakeCause, Error> {
        self.park_by(slot, Self::poll_wait)
    }

    /// As [`Scheduler::park`], but what is pending for the fiber only ends the wait and is raised later. An error is one of
    /// the VM's own (Fiber#raise, Fiber#kill), or of the turn.
    pub fn park_through(&self, slot: Slot) -> Result<WakeCause, Error> {
        self.park_by(slot, |this, slot| Ok(this.poll_wake(slot)))
    }

    #[inline(always)]
    fn park_by(
        &self,
        slot: Slot,
        poll: impl Fn(&Self, Slot) -> Result<Option<WakeCause>, Error>,
    ) -> Result<WakeCause, Error> {
        let (wait, may_concern_owner) = self.state_mut().before_park(slot);
        let result = match self.look_at_owner(slot, may_concern_owner) {
            Ok(()) => self.run_others_until(slot, poll),
            Err(error) => Err(error),
        };
        self.state_mut().after_park(wait);
        result
    }

    #[inline(always)] // with what calls it one frame, on the stack of every fiber that is parked here
    fn run_others_until(
        &self,
        slot: Slot,
        poll: impl Fn(&Self, Slot) -> Result<Option<WakeCause>, Error>,
    ) -> Result<WakeCause, Error> {
        loop {
            if let Some(cause) = poll(self, slot)? {
                return Ok(cause);
            }
            self.run_next(slot)?;
        }
    }
}
