//! Ending a wait from outside, and raising in a fiber when it has control.

use reactor::Token;

use crate::state::{
    State,
    control::Interrupt,
    fiber::{FiberRecord, FiberState, KillStep, Slot},
    object_ref::ObjectRef,
    timeout_after::Raise,
    wait::{Pending, SEVERAL, WaitKind, WaitStatus, WakeCause},
};

/// The effect of an `unblock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unblocked {
    /// The wait is over.
    Woken,
    /// No effect: the fiber waits for something else, or does not belong to the scheduler.
    Dropped,
    /// No effect yet: the fiber is not parked. It may be on its way into `block`; see [`State::grant_permit`].
    NotParked(Slot),
}

impl State {
    // --- what a fiber raises -------------------------------------------------------------------------------------

    /// Looks whether the fiber's wait is over. What is raised is no longer pending then.
    pub fn poll_wait(&mut self, slot: Slot) -> WaitStatus {
        if let Some(pending) = self.take_pending_for_root(slot) {
            return WaitStatus::Raise(pending);
        }
        self.fibers
            .get_mut(slot)
            .map_or(WaitStatus::UNKNOWN, FiberRecord::poll_wait)
    }

    /// Takes what waits for a fiber which was queued without a wait.
    pub fn take_pending(&mut self, slot: Slot) -> Option<Pending> {
        match self.take_pending_for_root(slot) {
            Some(pending) => Some(pending),
            None => self.fibers.get_mut(slot)?.take_pending(),
        }
    }

    /// Has what was to be raised in the fiber raised in a later wait.
    pub fn put_back(&mut self, slot: Slot, pending: Pending) {
        if let Some(record) = self.fibers.get_mut(slot) {
            record.put_back(pending);
        }
    }

    /// Whether the fiber waits for an `unblock`, and for nothing else.
    pub fn waits_for_unblock_only(&self, slot: Slot) -> bool {
        let record = self.fibers.get(slot);
        record.is_some_and(FiberRecord::waits_for_unblock_only)
    }

    /// No timeout ends the wait of the fiber, which closes an IO.
    pub fn outlast_timeouts(&mut self, slot: Slot) {
        if let Some(record) = self.fibers.get_mut(slot) {
            record.outlast_timeouts();
        }
    }

    /// Whether a timeout has fired during a close by the fiber, and waits to be raised.
    pub fn has_outlasted_timeouts(&self, slot: Slot) -> bool {
        let record = self.fibers.get(slot);
        record.is_some_and(FiberRecord::has_outlasted_timeouts)
    }

    /// Whether the fiber is parked, and a timeout that has fired ends the wait.
    pub fn has_timed_out(&self, slot: Slot) -> bool {
        let record = self.fibers.get(slot);
        record.is_some_and(FiberRecord::has_timed_out)
    }

    /// Whether no hook of this fiber is known to be that of a trap handler or a finalizer.
    pub fn may_interrupt_code(&self, slot: Slot) -> bool {
        self.fibers.depth(slot) == 0
    }

    /// Whether a timeout of the fiber that waits for this one may be around its wait, as far as the number of hooks tells.
    #[cold]
    pub fn may_have_timeout_of_owner(&self, slot: Slot) -> bool {
        self.may_interrupt_code(slot)
            && self.fibers.has_owner_in_hook(slot)
            && !self.is_owner_in_handler(slot)
    }

    /// Whether the fiber that waits for this one is known to be in a handler. Then this one is there as well, and the timeouts around
    /// the handler are known.
    fn is_owner_in_handler(&self, slot: Slot) -> bool {
        self.fibers.depth_of_owner(slot) > 0
    }

    /// The hook that this fiber has entered last was called by a trap handler or a finalizer. Timeouts around the code that it has
    /// interrupted are raised when the hook has ended.
    pub fn set_code_aside(&mut self, slot: Slot) {
        self.fibers.set_code_aside(slot);
    }

    /// The same, unless the handler is known from the fiber that waits for this one.
    #[cold]
    pub fn set_code_aside_unless_owners(&mut self, slot: Slot) {
        if !self.is_owner_in_handler(slot) {
            self.set_code_aside(slot);
        }
    }

    fn take_pending_for_root(&mut self, slot: Slot) -> Option<Pending> {
        if !self.control.has_pending_for_root() {
            return None;
        }
        let is_scheduled = self.fibers.is_scheduled(slot);
        self.control.take_pending_for_root(slot, is_scheduled)
    }

    /// Takes the first fired timeout of a fiber: the outermost, if several have fired.
    pub fn take_fired_timeout(&mut self, slot: Slot) -> Option<Raise> {
        self.timeouts.take_fired(slot, &mut self.fibers)
    }

    /// Raises in the fiber with its next wait.
    pub fn raise_later(&mut self, slot: Slot, exception: ObjectRef) {
        if let Some(record) = self.fibers.get_mut(slot) {
            record.raise_later(exception);
        }
    }

    /// An error that reached `slot` is raised in the root fiber instead. `None` if that is `slot`, or if there is none.
    pub fn raise_in_root(&mut self, slot: Slot, exception: ObjectRef) -> Option<(Slot, ObjectRef)> {
        let root = self.control.root.filter(|root| *root != slot)?;
        self.queue_if_over(slot);
        self.control.fatal_error = Some(exception);
        Some((root, self.fibers.get(root)?.fiber()))
    }

    /// What is pending for the thread is left to the root fiber, which is to get control now. `None` if that is `slot`, if there is
    /// none, or if it can't get control, because it waits for a fiber that it has resumed.
    pub fn leave_interrupts_to_root(&mut self, slot: Slot) -> Option<(Slot, ObjectRef)> {
        let root = self.control.root.filter(|root| *root != slot)?;
        let fiber = self.fibers.get(root)?.fiber();
        if self.waits_for_parked(root) {
            return None;
        }
        self.queue_if_over(slot);
        self.control.has_interrupts_for_root = true;
        Some((root, fiber))
    }

    /// An exception has ended a fiber. Before its first park it belongs to the fiber that called `Fiber.schedule`. Later an
    /// ordinary error is kept until all fibers have ended, and any other is raised in the root fiber at once.
    ///
    /// Whether the error is to be reported.
    pub fn on_error(&mut self, fiber: ObjectRef, exception: ObjectRef, is_ordinary: bool) -> bool {
        let ended = self.fibers.find(fiber);
        let spawner = ended.and_then(|slot| self.fibers.get(slot)?.spawner());
        if let Some(spawner) = spawner.filter(|token| self.fibers.is_queued(*token)) {
            self.raise_later(spawner.index(), exception);
            return false;
        }
        let error = match is_ordinary {
            true => &mut self.control.first_error,
            false => &mut self.control.fatal_error,
        };
        error.get_or_insert(exception); // an earlier one goes first
        is_ordinary
    }

    // --- from outside --------------------------------------------------------------------------------------------

    /// Raises in a fiber that waits for the readiness of an IO object (0: of any); false if it does not.
    pub fn interrupt(&mut self, slot: Slot, io_number: u64, exception: ObjectRef) -> bool {
        match self.fibers.parked(slot) {
            Some((token, WaitKind::Io)) if self.waits_for_io(slot, io_number) => {
                self.raise_later(slot, exception);
                self.wake(token, WakeCause::Interrupted)
            }
            _ => {
                let record = self.fibers.get_mut(slot);
                record.is_some_and(|record| record.raise_in_outer(io_number, exception))
            }
        }
    }

    fn waits_for_io(&self, slot: Slot, io_number: u64) -> bool {
        let record = self.fibers.get(slot);
        record.is_some_and(|record| record.waits_for_io(io_number))
    }

    /// Ends the wait of a fiber in `block` or `kernel_sleep`. The blocker tells which wait is meant, if a trap handler waits
    /// in the middle of another wait.
    pub fn unblock(&mut self, fiber: ObjectRef, blocker: ObjectRef) -> Unblocked {
        let Some(slot) = self.fibers.find_other(fiber) else {
            return Unblocked::Dropped;
        };
        let record = self.fibers.get(slot);
        if record.is_some_and(FiberRecord::has_outer_wait) {
            return self.unblock_nested(slot, blocker.address());
        }
        self.unblock_innermost(slot)
    }

    fn unblock_innermost(&mut self, slot: Slot) -> Unblocked {
        match self.fibers.parked(slot) {
            Some((token, WaitKind::Block)) if self.wake(token, WakeCause::Unblocked) => {
                Unblocked::Woken
            }
            Some(_) => Unblocked::Dropped,
            None => Unblocked::NotParked(slot),
        }
    }

    /// Of the fiber's waits, ends those for this blocker. If none is, any may be meant: the VM does not always name what was
    /// waited for. A wait that goes on too early is begun again by the VM, but a lost `unblock` does not come again.
    #[cold]
    fn unblock_nested(&mut self, slot: Slot, blocker: usize) -> Unblocked {
        let Some(record) = self.fibers.get_mut(slot) else {
            return Unblocked::Dropped;
        };
        let is_innermost = record.is_blocked_by(blocker);
        if record.unblock_outer(|wait| wait.is_for(blocker)) && !is_innermost {
            return Unblocked::Woken;
        }
        let is_outer = !is_innermost && record.unblock_outer(|_| true);
        match self.unblock_innermost(slot) {
            Unblocked::Dropped if is_outer => Unblocked::Woken,
            unblocked => unblocked,
        }
    }

    /// As [`State::unblock`], where the VM names the fiber's thread, and not what the fiber waits for: it joins another thread, or
    /// closes an IO that one uses. So of several waits, no sleep with a limit is meant, which nothing would begin again.
    pub fn unblock_thread(&mut self, fiber: ObjectRef) -> Unblocked {
        let Some(slot) = self.fibers.find_other(fiber) else {
            return Unblocked::Dropped;
        };
        let record = self.fibers.get_mut(slot);
        let Some(record) = record.filter(|record| record.has_outer_wait()) else {
            return self.unblock_innermost(slot);
        };
        let is_outer = record.unblock_outer(|wait| !wait.sleeps_with_limit());
        let unblocked = match record.sleeps_with_limit() {
            true => Unblocked::Dropped,
            false => self.unblock_innermost(slot),
        };
        match unblocked {
            Unblocked::Dropped if is_outer => Unblocked::Woken,
            unblocked => unblocked,
        }
    }

    /// In user code, or suspended by a transfer that the scheduler did not make.
    pub fn is_running(&self, slot: Slot) -> bool {
        let record = self.fibers.get(slot);
        record.is_some_and(|record| record.state() == FiberState::Running)
    }

    /// The `block` or `kernel_sleep` that the fiber is about to begin is over already.
    pub fn grant_permit(&mut self, slot: Slot) {
        if let Some(record) = self.fibers.get_mut(slot) {
            record.grant_permit();
        }
    }

    /// Whether the fiber is one of the scheduler's, and no kill has reached it.
    pub fn may_kill(&self, slot: Slot) -> bool {
        let record = self.fibers.get(slot);
        self.fibers.is_scheduled(slot) && record.is_some_and(|record| !record.is_killed())
    }

    /// Kills a fiber: it unwinds when it next gets control. The fiber, if the VM has to find the way, because it is not
    /// parked itself.
    pub fn kill(&mut self, slot: Slot) -> Option<ObjectRef> {
        let waits_for_resumed = self.fibers.waits_for_resumed(slot);
        let record = self.fibers.get_mut(slot)?;
        self.control.count_cancelled(record.mark_cancelled());
        if waits_for_resumed {
            record.mark_killed();
            return Some(record.fiber());
        }
        match record.kill() {
            KillStep::ThroughVm => Some(record.fiber()),
            KillStep::Pending(None) => None,
            KillStep::Pending(Some(wait_number)) => {
                let token = Token::new(slot, wait_number);
                self.wake(token, WakeCause::Interrupted);
                None
            }
        }
    }

    /// The fibers that wait for an IO object: for its descriptor to be ready, or for work on it. Those that wait for
    /// another object on the same descriptor do not count.
    pub fn users_of(&self, descriptor: i32, io_number: u64) -> Vec<Slot> {
        self.waiters_of(descriptor, &[io_number, SEVERAL])
            .chain(self.pins.users(io_number))
            .collect()
    }

    /// Of these, those that wait for nothing else.
    pub fn single_waiters_of(&self, descriptor: i32, io_number: u64) -> Vec<Slot> {
        self.waiters_of(descriptor, &[io_number]).collect()
    }

    fn waiters_of(&self, descriptor: i32, io_numbers: &[u64]) -> impl Iterator<Item = Slot> {
        let waits_for_it = |slot: &Slot| {
            let record = self.fibers.get(*slot);
            record.is_some_and(|record| {
                io_numbers.contains(&record.io_number()) || record.has_outer_wait_for(io_numbers)
            })
        };
        self.waiters(descriptor)
            .into_iter()
            .map(|token| token.index())
            .filter(waits_for_it)
    }

    // --- interrupts of operations --------------------------------------------------------------------------------

    /// The operation behind this proxy is to raise at the next turn.
    pub fn push_interrupt(&mut self, interrupt: Interrupt) {
        self.control.interrupts.push_back(interrupt);
    }

    /// Whether an operation is to raise, or a timeout has fired that may have to be raised from outside.
    pub fn has_interrupts(&self) -> bool {
        !self.control.interrupts.is_empty() || self.timeouts.have_fired()
    }

    pub fn pop_interrupt(&mut self) -> Option<Interrupt> {
        self.control.interrupts.pop_front()
    }

    /// The next fiber with a fired timeout that was not parked itself, because it had resumed an Enumerator that is parked.
    ///
    /// `None` as soon as `slot`, which asks, may run: no other fiber would queue it, and the next poll goes on here.
    pub fn next_indirect_timeout(&mut self, slot: Slot) -> Option<(Slot, ObjectRef)> {
        if self.fibers.may_run(slot) {
            return None;
        }
        self.timeouts.next_indirect(&self.fibers)
    }
}
