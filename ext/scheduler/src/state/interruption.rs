//! Ending a wait from outside, and raising in a fiber when it has control.

use reactor::{Descriptor, Token};

use crate::state::{
    State,
    control::ProxyRaise,
    fiber::Slot,
    object_ref::ObjectRef,
    strand::TimeoutError,
    wait::{Pending, SEVERAL, Wait, WaitStatus, WakeCause},
};

/// The effect of an `unblock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unblocked {
    /// The wait is over.
    Woken,
    /// No effect: the fiber waits for something else, or does not belong to the scheduler.
    Dropped,
    /// No effect yet: the fiber is not parked. It may be on its way into `block`; see `State::grant_permit`.
    NotParked(Slot),
}

impl State {
    // --- what a fiber raises -------------------------------------------------------------------------------------

    /// Looks whether the fiber's wait is over. What is raised is no longer pending then.
    pub fn take_wait_status(&mut self, slot: Slot) -> WaitStatus {
        if let Some(pending) = self.take_pending_for_root(slot) {
            return WaitStatus::Raise(pending);
        }
        self.fibers.take_status(slot)
    }

    /// Takes what waits for a fiber which was queued without a wait.
    pub fn take_pending(&mut self, slot: Slot) -> Option<Pending> {
        match self.take_pending_for_root(slot) {
            Some(pending) => Some(pending),
            None => self.fibers[slot].take_pending(),
        }
    }

    /// Whether a timeout has expired during a close by the fiber, and waits to be raised.
    pub fn has_late_timeout(&self, slot: Slot) -> bool {
        self.fibers[slot].may_have_late_timeout && self.fibers.due_timeout(slot).is_some()
    }

    /// Whether a timeout of the fiber that waits for this one may be around its wait, as far as the number of hooks tells.
    #[cold]
    pub fn may_have_timeout_of_owner(&self, slot: Slot) -> bool {
        let owner = self.fibers.owner(slot);
        !self.fibers[slot].is_in_handler()
            && owner.is_some_and(|owner| owner.active_hooks > 0 && !owner.is_in_handler())
    }

    /// As `FiberTable::cover_code`, unless the handler is known from the fiber
    /// that waits for this one.
    #[cold]
    pub fn cover_code_unless_owners(&mut self, slot: Slot) {
        let owner = self.fibers.owner(slot);
        if owner.is_none_or(|owner| !owner.is_in_handler()) {
            self.fibers.cover_code(slot);
        }
    }

    fn take_pending_for_root(&mut self, slot: Slot) -> Option<Pending> {
        if !self.control.has_pending_for_root() {
            return None;
        }
        let is_scheduled = self.fibers.is_scheduled(slot);
        self.control.take_pending_for_root(slot, is_scheduled)
    }

    /// Takes the outermost expired timeout that is to be raised in the fiber.
    pub fn take_expired_timeout(&mut self, slot: Slot) -> Option<TimeoutError> {
        let raise = self.fibers.take_expired(slot);
        let are_others = self.fibers.due_timeout(slot).is_some();
        self.fibers[slot].may_have_late_timeout &= are_others;
        raise
    }

    /// Raises in the fiber with its next wait.
    pub fn raise_later(&mut self, slot: Slot, exception: ObjectRef) {
        self.fibers[slot].wait.exception = Some(exception);
    }

    /// An error that reached `slot` is raised in the root fiber instead. `None` if that is `slot`, or if there is none.
    pub fn raise_in_root(&mut self, slot: Slot, exception: ObjectRef) -> Option<(Slot, ObjectRef)> {
        let root = self.control.root.filter(|root| *root != slot)?;
        self.queue_if_over(slot);
        self.control.fatal_error = Some(exception);
        Some((root, self.fibers.get(root)?.fiber))
    }

    /// What is pending for the thread is left to the root fiber, which is to get control now. `None` if that is `slot`, if there is
    /// none, or if it can't get control, because it waits for a fiber that it has resumed.
    pub fn leave_interrupts_to_root(&mut self, slot: Slot) -> Option<(Slot, ObjectRef)> {
        let root = self.control.root.filter(|root| *root != slot)?;
        let fiber = self.fibers.get(root)?.fiber;
        if self.fibers.waits_for_parked(root) {
            return None;
        }
        self.queue_if_over(slot);
        self.control.has_interrupts_for_root = true;
        Some((root, fiber))
    }

    /// An exception has ended a fiber. Before its first park it belongs to the fiber that called `Fiber.schedule`: then this is true.
    pub fn raise_in_spawner(&mut self, fiber: ObjectRef, exception: ObjectRef) -> bool {
        let ended = self.fibers.find(fiber);
        let spawner = ended.and_then(|slot| self.fibers[slot].spawner);
        let waiting = spawner.filter(|token| self.fibers.is_queued(*token));
        if let Some(spawner) = waiting {
            self.raise_later(spawner.index(), exception);
        }
        waiting.is_some()
    }

    /// An ordinary error is kept until all fibers have ended, and any other is raised in the root fiber at once.
    pub fn keep_error(&mut self, exception: ObjectRef, is_ordinary: bool) {
        let error = match is_ordinary {
            true => &mut self.control.first_error,
            false => &mut self.control.fatal_error,
        };
        error.get_or_insert(exception); // an earlier one goes first
    }

    // --- from outside --------------------------------------------------------------------------------------------

    /// Raises in a fiber that waits for readiness or work of an IO object (0: of any); false if it does not. Of several such waits it is
    /// the innermost.
    pub fn interrupt(&mut self, slot: Slot, io_number: u64, exception: ObjectRef) -> bool {
        let is_meant = |(_, wait): &(_, &Wait)| wait.ends_by_exception_for(io_number);
        let Some((token, _)) = self.fibers.waits(slot).find(is_meant) else {
            return false;
        };
        if let Some(wait) = self.fibers.wait_mut(token) {
            wait.exception = Some(exception);
        }
        self.wake(token, WakeCause::Interrupted)
    }

    /// Ends the wait of a fiber in `block` or `kernel_sleep`.
    ///
    /// If a trap handler waits in the middle of another wait, the blocker tells which one is meant. If it is that of none, any may be:
    /// the VM does not always name what was waited for. A wait that goes on too early is begun again by the VM, but a lost `unblock`
    /// does not come again. `None`: the VM names the fiber's thread, because it joins another thread, or closes an IO that one uses.
    /// Then no sleep with a limit is meant, which nothing would begin again.
    pub fn unblock(&mut self, fiber: ObjectRef, blocker: Option<ObjectRef>) -> Unblocked {
        let Some(slot) = self.fibers.find_other(fiber) else {
            return Unblocked::Dropped;
        };
        let record = &self.fibers[slot];
        if record.is_in_handler() {
            return self.unblock_nested(slot, blocker);
        }
        if !record.wait.goes_on() {
            return Unblocked::NotParked(slot);
        }
        let is_block = record.wait.is_block();
        let token = self.fibers.wait_token(slot);
        match is_block && self.wake(token, WakeCause::Unblocked) {
            true => Unblocked::Woken,
            false => Unblocked::Dropped,
        }
    }

    #[cold]
    fn unblock_nested(&mut self, slot: Slot, blocker: Option<ObjectRef>) -> Unblocked {
        let is_parked = self.fibers.parked(slot).is_some();
        let is_named = blocker.is_some_and(|blocker| {
            self.unblock_those(slot, |wait| wait.is_blocked_by(blocker.address()))
        });
        if is_named {
            return Unblocked::Woken;
        }
        let is_any =
            self.unblock_those(slot, |wait| blocker.is_some() || !wait.sleeps_with_limit());
        match (is_parked, is_any) {
            (false, _) => Unblocked::NotParked(slot),
            (true, true) => Unblocked::Woken,
            (true, false) => Unblocked::Dropped,
        }
    }

    /// Ends the waits of the fiber that an `unblock` ends, those of them that are meant. Whether there is one.
    fn unblock_those(&mut self, slot: Slot, is_meant: impl Fn(&Wait) -> bool) -> bool {
        let waits = self.fibers.waits(slot);
        let meant = waits.filter(|(_, wait)| wait.is_block() && is_meant(wait));
        let meant: Vec<_> = meant.map(|(token, _)| token).collect();
        for token in &meant {
            self.wake(*token, WakeCause::Unblocked);
        }
        !meant.is_empty()
    }

    /// Kills a fiber: it unwinds when it next gets control. The fiber, if the VM has to find the way, because it is not
    /// parked itself.
    pub fn kill(&mut self, slot: Slot) -> Option<ObjectRef> {
        let waits_for_resumed = self.fibers.waits_for_resumed(slot);
        let record = &mut self.fibers[slot];
        let was_cancelled = std::mem::replace(&mut record.is_cancelled, true);
        self.control.count_cancelled(was_cancelled);
        if waits_for_resumed || record.is_suspended() {
            record.is_killed = true;
            return Some(record.fiber);
        }
        record.kill();
        let token = self.fibers.wait_token(slot);
        self.wake(token, WakeCause::Interrupted);
        None
    }

    /// Whether the fiber may have been killed without the hooks having seen it: the VM has raised in another fiber that runs on
    /// behalf of the same owner.
    pub fn may_be_killed(&self, slot: Slot) -> bool {
        self.control.kill_suspected && self.is_kill_suspected(slot)
    }

    #[cold]
    fn is_kill_suspected(&self, slot: Slot) -> bool {
        let owner = self.fibers.owner_or_self(slot).index();
        !self.fibers[slot].is_killed && self.fibers[owner].is_kill_suspected
    }

    /// Records that an exception of the VM has reached this fiber. Its owner may have been killed.
    pub fn note_raise(&mut self, slot: Slot) {
        if !self.fibers.is_scheduled(slot) {
            let owner = self.fibers.owner_or_self(slot).index();
            self.control.kill_suspected = true;
            self.fibers[owner].is_kill_suspected = true;
        }
    }

    // --- who waits for an IO object ------------------------------------------------------------------------------

    /// The fibers that wait for an IO object: for its descriptor to be ready, or for work on it. Those that wait for
    /// another object on the same descriptor do not count.
    pub fn users_of(&self, descriptor: Descriptor, io_number: u64) -> Vec<Slot> {
        self.waiters_of(descriptor, &[io_number, SEVERAL])
            .chain(self.pins.users(io_number))
            .collect()
    }

    /// Of these, those that wait for nothing else.
    pub fn single_waiters_of(&self, descriptor: Descriptor, io_number: u64) -> Vec<Slot> {
        self.waiters_of(descriptor, &[io_number]).collect()
    }

    fn waiters_of(&self, descriptor: Descriptor, io_numbers: &[u64]) -> impl Iterator<Item = Slot> {
        let waiters = self.waiters(descriptor).into_iter();
        let waits_for_it = |token: &Token| {
            let wait = self.fibers.wait(*token);
            wait.is_some_and(|wait| io_numbers.contains(&wait.io_number()))
        };
        waiters.filter(waits_for_it).map(|token| token.index())
    }

    // --- raising from outside ------------------------------------------------------------------------------------

    /// The operation behind this proxy is to raise at the next turn.
    pub fn push_proxy_raise(&mut self, raise: ProxyRaise) {
        self.control.proxy_raises.push_back(raise);
    }

    /// Whether an operation is to raise, or a timeout has expired that may have to be raised from outside.
    pub fn has_raises_from_outside(&self) -> bool {
        !self.control.proxy_raises.is_empty() || self.fibers.has_indirect()
    }

    pub fn pop_proxy_raise(&mut self) -> Option<ProxyRaise> {
        self.control.proxy_raises.pop_front()
    }

    /// The next fiber with an expired timeout that was not parked itself, because it had resumed an Enumerator that is parked.
    ///
    /// `None` as soon as `slot`, which asks, may run: no other fiber would queue it, and the next poll goes on here.
    pub fn next_indirect_timeout(&mut self, slot: Slot) -> Option<(Slot, ObjectRef)> {
        if self.fibers.may_run(slot) {
            return None;
        }
        self.fibers.next_indirect()
    }
}
