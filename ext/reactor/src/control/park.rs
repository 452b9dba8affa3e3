//! Parking: a fiber that has begun a wait runs other fibers until the wait ends.

use magnus::Error;
use reactor_scheduler::state::{fiber::Slot, wait::WakeCause};

use crate::control::scheduler::Scheduler;

impl Scheduler {
    /// Suspends the current fiber until the wait begun for it ends. Anything raised here instead (by a timeout, an
    /// interrupt, Fiber#raise, Fiber#kill, Thread#kill) is returned as the error. Either way the caller undoes its
    /// registrations.
    #[inline(always)]
    pub fn park(&self, slot: Slot) -> Result<WakeCause, Error> {
        self.park_by(slot, Self::poll_wait)
    }

    /// Like [`Scheduler::park`], but a pending exception only ends the wait and is raised later. An error returned here
    /// comes from the VM itself (Fiber#raise, Fiber#kill), or from the turn.
    pub fn park_through(&self, slot: Slot) -> Result<WakeCause, Error> {
        self.park_by(slot, Self::poll_wake)
    }

    #[inline(always)]
    fn park_by(
        &self,
        slot: Slot,
        poll: impl Fn(&Self, Slot) -> Result<Option<WakeCause>, Error>,
    ) -> Result<WakeCause, Error> {
        let (wait, may_concern_resumer) = self.state_mut().before_park(slot);
        let result = match self.check_resumer(slot, may_concern_resumer) {
            Ok(()) => self.run_others_until(slot, poll),
            Err(error) => Err(error),
        };
        self.state_mut().after_park(wait);
        result
    }

    #[inline(always)] // shares one frame with its caller on every parked fiber's stack
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
