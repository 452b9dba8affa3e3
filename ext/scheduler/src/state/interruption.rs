//! Ends waits from outside, and raises in a fiber when it runs.

use reactor::{Descriptor, Token};

use crate::state::{
    State,
    current::ProxyRaise,
    fiber::Slot,
    object_ref::ObjectRef,
    strand::TimeoutError,
    wait::{Pending, SEVERAL, Wait, WaitStatus, WakeCause},
};

/// The effect of an `unblock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unblocked {
    /// The wait has ended.
    Woken,
    /// No effect: the fiber waits for something else, or is not one of the scheduler's.
    Dropped,
    /// No effect yet: the fiber is not parked. It may be about to enter `block`; see `State::grant_permit`.
    NotParked(Slot),
}

impl State {
    // --- what a fiber raises -------------------------------------------------------------------------------------

    /// Checks whether the fiber's wait has ended. An exception returned here is no longer pending.
    pub fn take_wait_status(&mut self, slot: Slot) -> WaitStatus {
        if let Some(pending) = self.take_pending_for_root(slot) {
            return WaitStatus::Raise(pending);
        }
        self.fibers.take_status(slot)
    }

    /// Takes the exception or kill pending for a fiber that was queued without a wait.
    pub fn take_pending(&mut self, slot: Slot) -> Option<Pending> {
        match self.take_pending_for_root(slot) {
            Some(pending) => Some(pending),
            None => self.fibers[slot].take_pending(),
        }
    }

    /// Whether a timeout expired while the fiber was closing an IO and has yet to be raised.
    pub fn has_late_timeout(&self, slot: Slot) -> bool {
        self.fibers[slot].may_have_late_timeout && self.fibers.due_timeout(slot).is_some()
    }

    /// Whether this fiber may wait inside a timeout of its resumer, judging by the number of the resumer's hooks.
    #[cold]
    pub fn may_have_timeout_of_resumer(&self, slot: Slot) -> bool {
        let resumer = self.fibers.resumer(slot);
        !self.fibers[slot].is_in_handler()
            && resumer.is_some_and(|resumer| resumer.active_hooks > 0 && !resumer.is_in_handler())
    }

    /// Like `FiberTable::cover_code`, unless the fiber waiting for this one is already known to be in the handler.
    #[cold]
    pub fn cover_code_unless_resumers(&mut self, slot: Slot) {
        let resumer = self.fibers.resumer(slot);
        if resumer.is_none_or(|resumer| !resumer.is_in_handler()) {
            self.fibers.cover_code(slot);
        }
    }

    fn take_pending_for_root(&mut self, slot: Slot) -> Option<Pending> {
        if !self.current.has_pending_for_root() {
            return None;
        }
        let is_scheduled = self.fibers.is_scheduled(slot);
        self.current.take_pending_for_root(slot, is_scheduled)
    }

    /// Takes the outermost expired timeout due in the fiber.
    pub fn take_expired_timeout(&mut self, slot: Slot) -> Option<TimeoutError> {
        let raise = self.fibers.take_expired(slot);
        let are_others = self.fibers.due_timeout(slot).is_some();
        self.fibers[slot].may_have_late_timeout &= are_others;
        raise
    }

    /// Raises in the fiber at its next wait.
    pub fn raise_later(&mut self, slot: Slot, exception: ObjectRef) {
        self.fibers[slot].wait.exception = exception;
    }

    /// Raises an error that reached `slot` in the root fiber instead. `None` if `slot` is the root fiber, or there is
    /// no root fiber.
    pub fn raise_in_root(&mut self, slot: Slot, exception: ObjectRef) -> Option<(Slot, ObjectRef)> {
        let root = self.current.root.filter(|root| *root != slot)?;
        self.queue_if_over(slot);
        self.current.fatal_error = Some(exception);
        Some((root, self.fibers.get(root)?.fiber))
    }

    /// Leaves the thread's pending interrupts to the root fiber, which is to run now. `None` if `slot` is the root
    /// fiber, or if the root fiber does not exist or cannot run because it waits for a fiber it has resumed.
    pub fn leave_interrupts_to_root(&mut self, slot: Slot) -> Option<(Slot, ObjectRef)> {
        let root = self.current.root.filter(|root| *root != slot)?;
        let fiber = self.fibers.get(root)?.fiber;
        if self.fibers.waits_for_parked(root) {
            return None;
        }
        self.queue_if_over(slot);
        self.current.has_interrupts_for_root = true;
        Some((root, fiber))
    }

    /// Called when an exception ended a fiber. Before the fiber first parks, its exceptions belong to the fiber that called
    /// `Fiber.schedule`; this then returns true.
    pub fn raise_in_spawner(&mut self, fiber: ObjectRef, exception: ObjectRef) -> bool {
        let ended = self.fibers.find(fiber);
        let spawner = ended.and_then(|slot| self.fibers[slot].spawner);
        let waiting = spawner.filter(|token| self.fibers.is_queued(*token));
        if let Some(spawner) = waiting {
            self.raise_later(spawner.index(), exception);
        }
        waiting.is_some()
    }

    /// Keeps an ordinary error until all fibers have ended; any other is raised in the root fiber at once.
    pub fn keep_error(&mut self, exception: ObjectRef, is_ordinary: bool) {
        let error = match is_ordinary {
            true => &mut self.current.first_error,
            false => &mut self.current.fatal_error,
        };
        error.get_or_insert(exception); // the first error wins
    }

    // --- from outside --------------------------------------------------------------------------------------------

    /// Raises in a fiber that waits for readiness of, or work on, this IO object; false if the fiber does not. If it has
    /// several such waits, the exception ends the innermost one.
    pub fn interrupt_use(&mut self, slot: Slot, io_number: u64, exception: ObjectRef) -> bool {
        let is_meant = |(_, wait): &(_, &Wait)| wait.ends_by_exception_for(io_number);
        let meant = self.fibers.waits(slot).find(is_meant);
        let token = meant.map(|(token, _)| token);
        self.raise_in_wait(token, exception)
    }

    /// Raises in a fiber that is parked, unless it is about to end by itself. A wait for an IO comes first: a trap handler
    /// that waits in the middle of it is not meant. In a fiber that has resumed an Enumerator, that one's wait ends.
    pub fn interrupt(&mut self, slot: Slot, exception: ObjectRef) -> bool {
        let waiting = self.fibers.running_for(slot);
        let parked = waiting.filter(|it| self.fibers[*it].wait.is_parked());
        let slot = parked.unwrap_or(slot);
        let of_io = |(_, wait): &(_, &Wait)| wait.is_for_io();
        let meant = self.fibers.waits(slot).find(of_io);
        let meant = meant.or_else(|| self.fibers.waits(slot).next());
        let meant = meant.filter(|(_, wait)| wait.ends_by_exception());
        let token = meant.map(|(token, _)| token);
        self.raise_in_wait(token, exception)
    }

    fn raise_in_wait(&mut self, token: Option<Token>, exception: ObjectRef) -> bool {
        let Some(token) = token else {
            return false;
        };
        if let Some(wait) = self.fibers.wait_mut(token) {
            wait.exception = exception;
        }
        self.wake(token, WakeCause::Interrupted)
    }

    /// Ends a fiber's wait in `block` or `kernel_sleep`.
    ///
    /// When a trap handler waits during another wait, the blocker says which of the two waits to end. If the blocker
    /// matches neither wait, both end: the VM does not always name the object that was waited for. The VM restarts a
    /// wait that ends too early, but a lost `unblock` never comes again. `None` means that the VM named the fiber's
    /// thread, because the fiber joins another thread or closes an IO that another thread uses. Sleeps with a limit
    /// then continue, because nothing would restart them.
    pub fn unblock(&mut self, fiber: ObjectRef, blocker: Option<ObjectRef>) -> Unblocked {
        let Some(slot) = self.fibers.find_other(fiber) else {
            return Unblocked::Dropped;
        };
        let record = &self.fibers[slot];
        if record.is_in_handler() {
            return self.unblock_nested(slot, blocker);
        }
        if !record.wait.is_parked() {
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

    /// Ends those of the fiber's waits for an `unblock` for which `is_meant` is true. Returns whether there were any.
    fn unblock_those(&mut self, slot: Slot, is_meant: impl Fn(&Wait) -> bool) -> bool {
        let waits = self.fibers.waits(slot);
        let meant = waits.filter(|(_, wait)| wait.is_block() && is_meant(wait));
        let meant: Vec<_> = meant.map(|(token, _)| token).collect();
        for token in &meant {
            self.wake(*token, WakeCause::Unblocked);
        }
        !meant.is_empty()
    }

    /// Cancels a fiber: it raises this exception, or unwinds, the next time it runs. Returns the fiber if the VM must
    /// deliver that, because the fiber is not parked itself.
    pub fn cancel(&mut self, slot: Slot, pending: Pending) -> Option<ObjectRef> {
        let waits_for_resumed = self.fibers.waits_for_resumed(slot);
        let record = &mut self.fibers[slot];
        self.current.count_cancelled(record.is_cancelled());
        record.count_cancel();
        if waits_for_resumed || record.is_suspended() {
            record.is_killed |= pending == Pending::Kill;
            return Some(record.fiber);
        }
        record.cancel(pending);
        let token = self.fibers.wait_token(slot);
        self.wake(token, WakeCause::Interrupted);
        None
    }

    /// Whether the fiber may have been killed without the hooks noticing: the VM raised in another fiber with the same
    /// resumer.
    pub fn may_be_killed(&self, slot: Slot) -> bool {
        self.current.kill_suspected && self.is_kill_suspected(slot)
    }

    #[cold]
    fn is_kill_suspected(&self, slot: Slot) -> bool {
        let resumer = self.fibers.resumer_or_self(slot).index();
        !self.fibers[slot].is_killed && self.fibers[resumer].is_kill_suspected
    }

    /// Records that an exception from the VM reached this fiber. Its resumer may have been killed.
    pub fn note_raise(&mut self, slot: Slot) {
        if !self.fibers.is_scheduled(slot) {
            let resumer = self.fibers.resumer_or_self(slot).index();
            self.current.kill_suspected = true;
            self.fibers[resumer].is_kill_suspected = true;
        }
    }

    // --- who waits for an IO object ------------------------------------------------------------------------------

    /// The fibers that wait for an IO object: for its descriptor to be ready, or for work on it. Fibers waiting for another
    /// object on the same descriptor do not count.
    pub fn users_of(&self, descriptor: Descriptor, io_number: u64) -> Vec<Slot> {
        self.waiters_of(descriptor, &[io_number, SEVERAL])
            .chain(self.descriptors_in_use.users(io_number))
            .collect()
    }

    /// Those of [`State::users_of`] that wait for nothing else.
    pub fn single_waiters_of(&self, descriptor: Descriptor, io_number: u64) -> Vec<Slot> {
        self.waiters_of(descriptor, &[io_number]).collect()
    }

    /// Raises in the fibers that were waiting for this IO object alone, and have become ready but have not run since.
    pub fn raise_in_queued_waiters(&mut self, io_number: u64, exception: ObjectRef) {
        let was_for_it = |wait: &Wait| wait.is_for_io() && wait.io_number() == io_number;
        let queued = self.queue.tokens();
        let queued: Vec<_> = queued
            .filter(|token| self.fibers.wait(*token).is_some_and(was_for_it))
            .collect();
        for token in queued {
            self.raise_later(token.index(), exception);
        }
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

    /// Makes the operation behind this proxy raise at the next turn.
    pub fn push_proxy_raise(&mut self, raise: ProxyRaise) {
        self.current.proxy_raises.push_back(raise);
    }

    /// Whether an operation is to raise, or an expired timeout may have to be raised from outside.
    pub fn has_raises_from_outside(&self) -> bool {
        !self.current.proxy_raises.is_empty() || self.fibers.has_indirect()
    }

    pub fn pop_proxy_raise(&mut self) -> Option<ProxyRaise> {
        self.current.proxy_raises.pop_front()
    }

    /// The next fiber that cannot raise its expired timeout itself, because it has resumed an Enumerator that is parked.
    ///
    /// `None` once the calling fiber, `slot`, may run: no other fiber would queue it, and its next poll continues here.
    pub fn next_indirect_timeout(&mut self, slot: Slot) -> Option<(Slot, ObjectRef)> {
        if self.fibers.may_run(slot) {
            return None;
        }
        self.fibers.next_indirect()
    }
}
