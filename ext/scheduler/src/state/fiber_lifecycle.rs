//! Fibers that enter hooks, start, park and end.

use std::time::Instant;

use reactor::Token;

use crate::state::{State, fiber::Slot, object_ref::ObjectRef, trace::TraceEvent, wait::Pending};

/// A fiber's slot, and whether the fiber was not kept until now. If so, the caller issues the write barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnteredFiber {
    pub slot: Slot,
    pub is_new: bool,
}

/// The state to restore when a started fiber gives control back to its starter.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    turn: Token,
    outer_root: Option<Slot>,
    /// The starter was itself created by `Fiber.schedule`.
    pub is_nested: bool,
}

impl State {
    // --- hooks ---------------------------------------------------------------------------------------------------

    /// Called when a hook begins in the running fiber. `None` if the scheduler is not open.
    ///
    /// If the fiber was not kept until now, the caller continues with [`State::collectable`].
    #[inline(always)]
    pub fn enter(&mut self, fiber: ObjectRef) -> Option<EnteredFiber> {
        self.event_loop.reactor.as_ref()?;
        let entered = self.find_or_insert(fiber);
        let before = self.current.running;
        self.current.running = Some(entered.slot);
        if self.fibers.enter_hook(entered.slot) {
            return Some(entered);
        }
        Some(self.enter_foreign(entered, before))
    }

    /// Continues [`State::enter`] for fibers that the scheduler did not create. If the record may belong to a collected
    /// fiber, the hook does not begin yet.
    #[cold]
    fn enter_foreign(&mut self, entered: EnteredFiber, before: Option<Slot>) -> EnteredFiber {
        let slot = entered.slot;
        if before != Some(slot) && self.fibers[slot].was_collectable() {
            self.fibers.leave_hook(slot);
            self.current.running = before;
            return EnteredFiber { slot, is_new: true };
        }
        self.note_resumer(slot, before);
        entered
    }

    /// Called after [`State::enter`]. Returns the number of the fiber to which this record belongs, if that fiber may
    /// have been collected.
    pub fn collectable(&self, slot: Slot) -> Option<u64> {
        self.fibers[slot].collectable()
    }

    /// Begins the hook that [`State::enter`] did not. If the record belongs to another fiber, this fiber gets its own
    /// record. Returns this fiber's slot; the caller issues the write barrier.
    pub fn enter_collectable(&mut self, slot: Slot, fiber: ObjectRef, is_same: bool) -> Slot {
        let slot = match is_same {
            true => slot,
            false => self.fibers.insert(fiber, false),
        };
        let before = self.current.running;
        self.current.running = Some(slot);
        self.fibers.enter_hook(slot);
        self.note_resumer(slot, before);
        slot
    }

    /// A fiber that the scheduler did not create is running: the previously running fiber resumed it.
    #[cold]
    fn note_resumer(&mut self, slot: Slot, before: Option<Slot>) {
        let before = before.filter(|before| self.fibers.is_scheduled(*before));
        let resumer = before.map_or(self.current.resumer, |before| Some(self.fibers.id(before)));
        self.fibers.set_resumer(slot, resumer);
        self.note_control(slot);
    }

    /// Called when this fiber has control. Fibers created by the scheduler run for themselves, so nothing is recorded for
    /// them.
    fn note_control(&mut self, slot: Slot) {
        if !self.fibers.is_scheduled(slot) {
            self.note_foreign_control(slot);
        }
    }

    #[cold]
    fn note_foreign_control(&mut self, slot: Slot) {
        self.current.resumer = Some(self.fibers.resumer_or_self(slot));
    }

    fn find_or_insert(&mut self, fiber: ObjectRef) -> EnteredFiber {
        match self.fibers.find(fiber) {
            Some(slot) => EnteredFiber {
                slot,
                is_new: false,
            },
            None => EnteredFiber {
                slot: self.fibers.insert(fiber, false),
                is_new: true,
            },
        }
    }

    /// The hook has ended. A fiber that the scheduler did not create is forgotten then; what it had to raise in a later wait
    /// is raised in the next hook of the root fiber or another such fiber.
    pub fn leave(&mut self, slot: Slot) {
        let (is_removed, pending) = self.fibers.leave_hook(slot);
        if is_removed {
            self.current.forget_running(slot);
        }
        match pending {
            Some(Pending::Raise(error) | Pending::Late(error)) => {
                self.current.fatal_error.get_or_insert(error);
            }
            Some(Pending::Interrupts) => self.current.has_interrupts_for_root = true,
            Some(Pending::Kill) | None => {}
        }
    }

    /// Begins cancelling all fibers, including those started by `ensure` clauses, for this reason. Returns the live ones. The
    /// first time, those that have been cancelled before are ending already, and are left out.
    pub fn begin_cancel(&mut self, reason: ObjectRef) -> Vec<Slot> {
        let is_first = self.current.cancelling.replace(reason).is_none();
        let fibers = &self.fibers;
        let scheduled = fibers.scheduled();
        scheduled
            .filter(|slot| !is_first || !fibers[*slot].is_cancelled())
            .collect()
    }

    /// Whether the fiber is about to wait although it has been cancelled, with nothing left to raise. If so, returns how
    /// often it has been cancelled, and why.
    #[cold]
    pub fn waits_although_cancelled(&self, slot: Slot) -> Option<(u8, ObjectRef)> {
        let record = &self.fibers[slot];
        let is_ending = record.is_killed || record.all_pending().next().is_some();
        let waits_again = record.is_cancelled() && !is_ending;
        Some((record.cancelled, self.current.cancelling?)).filter(|_| waits_again)
    }

    // --- parking -------------------------------------------------------------------------------------------------

    /// Called when the fiber has begun a wait and gives up control. Returns the wait's token and
    /// [`State::may_concern_resumer`].
    pub fn before_park(&mut self, slot: Slot) -> (Token, bool) {
        self.counters.parks += 1;
        let clock = self.event_loop.clock();
        let record = &mut self.fibers[slot];
        record.wait.parked_at = clock;
        let (wait, is_scheduled) = (Token::new(slot, record.wait.number), record.is_scheduled);
        self.trace_event(TraceEvent::Park, slot);
        let has_timeout_of_resumer = !is_scheduled && self.before_park_of_foreign(slot);
        let may_concern_resumer =
            has_timeout_of_resumer || self.current.cancelling.is_some() || self.may_be_killed(slot);
        (wait, may_concern_resumer)
    }

    #[cold]
    fn before_park_of_foreign(&mut self, slot: Slot) -> bool {
        self.fibers.note_indirect_resumer(slot);
        self.may_have_timeout_of_resumer(slot)
    }

    /// Called when the fiber continues.
    pub fn after_park(&mut self, wait: Token) {
        self.trace_event(TraceEvent::Unpark, wait.index());
        self.fibers.end_wait(wait);
    }

    // --- switching -----------------------------------------------------------------------------------------------

    /// Called before control goes to another fiber.
    pub fn before_switch(&mut self, to: Slot) {
        self.current.running = Some(to);
        self.note_control(to);
        self.counters.switches += 1;
    }

    /// Called when `slot` has control again. If the other fiber neither ended nor parked (it used Fiber#raise, Fiber#kill
    /// or Fiber#transfer), it is suspended and no wake-up is coming, so it is queued.
    #[inline(always)]
    pub fn on_resumed(&mut self, slot: Slot) {
        let left = self.current.resume(slot);
        self.fibers.expect(slot);
        self.note_control(slot);
        self.trace_event(TraceEvent::Control, slot);
        if let Some(left) = left {
            self.queue_left(left);
        }
    }

    /// Handles a fiber that gave up control, possibly without parking.
    #[cold]
    fn queue_left(&mut self, left: Slot) {
        if !self.fibers[left].is_in_wait() {
            self.enqueue(left);
        }
        self.queue_if_over(left);
    }

    /// Whether the fiber may have been killed without the hooks noticing, or may wait inside a timeout of its resumer.
    pub fn may_concern_resumer(&self, slot: Slot) -> bool {
        self.may_be_killed(slot)
            || (!self.fibers.is_scheduled(slot) && self.may_have_timeout_of_resumer(slot))
    }

    // --- starting and ending -------------------------------------------------------------------------------------

    /// Adds a fiber created by `Fiber.schedule` to run this block. The caller issues the write barrier.
    pub fn add_fiber(&mut self, fiber: ObjectRef, block: ObjectRef) -> Slot {
        self.counters.fibers += 1;
        let slot = self.fibers.insert(fiber, true);
        self.fibers.set_block(slot, block);
        slot
    }

    /// Called when a fiber gives control to one it has started.
    pub fn begin_start(&mut self, starter: Slot, started: Slot) -> Start {
        let is_nested = self.fibers.is_scheduled(starter);
        match self.fibers.live() {
            1 => self.begin_hold(), // the starter has held up no other fiber
            _ => self.end_hold(is_nested.then(|| self.fibers[starter].fiber)),
        }
        let turn = self.fibers.begin_turn(starter);
        let spawner = self.enqueue_first(starter);
        self.fibers[started].spawner = spawner;
        let outer_root = match is_nested {
            true => self.current.root,
            false => self.current.root.replace(starter),
        };
        self.current.running = Some(started);
        self.trace_event(TraceEvent::Control, started);
        Start {
            turn,
            outer_root,
            is_nested,
        }
    }

    /// Called when the started fiber has parked or ended, and the starter continues.
    pub fn end_start(&mut self, start: Start) {
        self.current.root = start.outer_root;
        self.fibers.end_wait(start.turn);
    }

    /// Since when the fiber has only started other fibers, without a wait; `None` if it has started none since its last
    /// wait.
    pub fn take_spawn_streak(&mut self, slot: Slot) -> Option<Instant> {
        let token = self.fibers.wait_token(slot);
        self.current.take_spawn_streak(token)
    }

    pub fn set_spawn_streak(&mut self, slot: Slot, since: Instant) {
        let token = self.fibers.wait_token(slot);
        self.current.set_spawn_streak(token, since);
    }

    /// Called when the fiber has ended.
    pub fn end_fiber(&mut self, fiber: ObjectRef) {
        self.end_hold(Some(fiber));
        let slot = self.fibers.find(fiber);
        self.current
            .on_end(slot.is_some_and(|slot| self.fibers[slot].is_cancelled()));
        if let Some(slot) = slot {
            self.trace_event(TraceEvent::End, slot);
            self.fibers.remove(slot);
        }
    }

    /// Called when the root fiber begins to wait for all fibers to end. Returns a token for [`State::end_drain`], and the
    /// previous root fiber.
    pub fn begin_drain(&mut self, slot: Slot) -> (Token, Option<Slot>) {
        self.trace_event(TraceEvent::Drain, slot);
        (
            self.fibers.begin_turn(slot),
            self.current.root.replace(slot),
        )
    }

    /// Called when the root fiber continues. Returns the first error that ended a fiber if `succeeded`; otherwise that
    /// error is kept. Fibers that are being cancelled still are, if any are left.
    pub fn end_drain(
        &mut self,
        (turn, outer_root): (Token, Option<Slot>),
        succeeded: bool,
    ) -> Option<ObjectRef> {
        self.current.root = outer_root;
        self.after_park(turn);
        if self.is_drained() {
            self.current.cancelling = None;
        }
        match succeeded {
            true => self.current.first_error.take(),
            false => None,
        }
    }
}
