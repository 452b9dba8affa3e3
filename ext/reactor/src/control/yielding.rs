//! Letting other ready fibers run although the fiber could continue.

use magnus::Error;
use reactor::Token;
use reactor_scheduler::state::{fiber::Slot, ready_queue::Next, time_slice::TimeSlice};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::thread::is_interrupted,
};

impl Scheduler {
    /// Queues the fiber at the back of the ready queue. When fibers yield to one another, one of them polls in each
    /// round.
    #[inline(always)]
    pub fn yield_now(&self, slot: Slot) -> Result<(), Error> {
        let polls =
            self.state().yields_with_poll() || is_interrupted(self.affinity.thread_in_hook());
        let wait = self.state_mut().yield_now(slot);
        self.run_queued(wait, polls)
    }

    /// Queues the fiber behind all ready fibers, and behind the fibers that the next polls wake.
    pub fn yield_low_priority(&self, slot: Slot) -> Result<(), Error> {
        let wait = self.state_mut().yield_low_priority(slot);
        self.run_queued(wait, true)
    }

    /// Yields because a time slice is spent: see [`State::yield_slice`](reactor_scheduler::state::State::yield_slice).
    fn yield_slice(&self, slot: Slot) -> Result<(), Error> {
        let wait = self.state_mut().yield_slice(slot);
        self.run_queued(wait, true)
    }

    /// Runs the fibers queued before this one, whose wait has already ended.
    fn run_queued(&self, wait: Token, polls: bool) -> Result<(), Error> {
        let slot = wait.index();
        let may_concern_resumer = self.state().may_concern_resumer(slot);
        let result = self
            .check_resumer(slot, may_concern_resumer)
            .and_then(|()| {
                if polls {
                    self.turn(slot, false)
                } else {
                    Ok(())
                }
            })
            .and_then(|()| self.run_queued_before(slot))
            .and_then(|()| self.poll_wait(slot).map(drop));
        self.state_mut().fibers.end_wait(wait);
        result
    }

    /// Runs the fibers queued before this one until its turn comes. (Control may also come back out of turn, from a fiber
    /// that ended.)
    pub fn run_queued_before(&self, slot: Slot) -> Result<(), Error> {
        while self.state().is_queued(slot) {
            let next = self.state_mut().next_ready();
            match next {
                Next::Fiber(next, fiber) if next != slot => self.switch(slot, next, fiber)?,
                Next::Watcher(token) => self.start_watcher(slot, token)?,
                Next::Poll => self.turn(slot, false)?,
                Next::Fiber(..) | Next::Nothing => break,
            }
        }
        Ok(())
    }

    /// Switches to the next ready fiber, unless that is this one. If none is ready or a poll is due, makes a turn.
    pub fn run_next(&self, slot: Slot) -> Result<(), Error> {
        let next = self.state_mut().next_ready();
        match next {
            Next::Fiber(next, _) if next == slot => Ok(()),
            Next::Fiber(next, fiber) => self.switch(slot, next, fiber),
            Next::Watcher(token) => self.start_watcher(slot, token),
            Next::Poll => self.turn_in_order(slot, false),
            Next::Nothing => self.turn_in_order(slot, true),
        }
    }

    /// Makes a turn of the reactor. In virtual time, where order matters more than the cost of a switch, even the
    /// polling fiber waits until it is next in the ready queue.
    fn turn_in_order(&self, slot: Slot, idle: bool) -> Result<(), Error> {
        self.turn(slot, idle)?;
        let is_virtual = self.state().event_loop.is_virtual();
        if is_virtual {
            self.run_queued_before(slot)?;
        }
        Ok(())
    }
}

impl HookScope<'_> {
    /// Lets other fibers run if no fiber has waited for a whole time slice. Returns whether it did.
    ///
    /// Call this before a transfer, when an exception loses no data: an exception pending for the fiber is raised here.
    pub fn yield_if_slice_spent(&self) -> Result<bool, Error> {
        if !self.scheduler.slice.is_check_due() {
            return Ok(false);
        }
        self.check_slice()
    }

    /// Like [`HookScope::yield_if_slice_spent`], for a write. Does not let the main program continue.
    ///
    /// The VM holds a mutex of the IO during a write. A fiber waits for that mutex, but in the main program, which is a
    /// blocking fiber, the VM raises ThreadError instead ("deadlock; lock already owned by another fiber belonging to the same
    /// thread"). So unless the main program waits for all fibers to end, a fiber writes without yielding.
    pub fn yield_in_write(&self) -> Result<bool, Error> {
        if !self.must_write_at_once() {
            return self.yield_if_slice_spent();
        }
        self.scheduler.slice.begin_check();
        Ok(false)
    }

    /// Whether a write must not wait if it can do without: see [`HookScope::yield_in_write`].
    pub fn must_write_at_once(&self) -> bool {
        self.scheduler.state().may_main_continue()
    }

    /// Like [`HookScope::yield_if_slice_spent`], but reads the clock each time. Does nothing in virtual time, where the
    /// order must not depend on the machine.
    pub fn check_slice(&self) -> Result<bool, Error> {
        self.scheduler.slice.begin_check();
        let is_spent = {
            let state = self.scheduler.state();
            state
                .event_loop
                .slice_began()
                .is_some_and(TimeSlice::is_spent)
                && !state.event_loop.is_virtual()
        };
        if !is_spent {
            return Ok(false);
        }
        self.scheduler.yield_slice(self.slot)?;
        Ok(true)
    }
}
