//! A fiber that enters hooks, starts, parks and ends.

use std::time::Instant;

use reactor::Token;

use crate::state::{State, fiber::Slot, object_ref::ObjectRef, trace::TraceEvent};

/// The slot of a fiber, and whether the fiber was not kept until now: then the caller issues the write barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnteredFiber {
    pub slot: Slot,
    pub is_new: bool,
}

/// The part of the state that is restored when a started fiber gives control back to its starter.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    turn: Token,
    outer_root: Option<Slot>,
    /// The starter was made by `Fiber.schedule` itself.
    pub is_nested: bool,
}

impl State {
    // --- hooks ---------------------------------------------------------------------------------------------------

    /// A hook begins in this fiber, which has control. `None` if the scheduler is not open.
    ///
    /// If the fiber was not kept until now, the caller goes on with [`State::collectable`].
    #[inline(always)]
    pub fn enter(&mut self, fiber: ObjectRef) -> Option<EnteredFiber> {
        self.event_loop.reactor.as_ref()?;
        let entered = self.find_or_insert(fiber);
        let before = self.control.running;
        self.control.running = Some(entered.slot);
        if self.fibers.enter_hook(entered.slot) {
            return Some(entered);
        }
        Some(self.enter_foreign(entered, before))
    }

    /// The scheduler did not make the fiber. If the record may be that of a collected fiber, the hook does not begin yet.
    #[cold]
    fn enter_foreign(&mut self, entered: EnteredFiber, before: Option<Slot>) -> EnteredFiber {
        let slot = entered.slot;
        if before != Some(slot) && self.fibers[slot].was_collectable() {
            self.fibers.leave_hook(slot);
            self.control.running = before;
            return EnteredFiber { slot, is_new: true };
        }
        self.note_resumer(slot, before);
        entered
    }

    /// After [`State::enter`]: the number of the fiber whose record this is, if that fiber may have been collected.
    pub fn collectable(&self, slot: Slot) -> Option<u64> {
        self.fibers[slot].collectable()
    }

    /// The hook begins that [`State::enter`] did not begin. If the fiber is not the one of this record, it gets a record of its
    /// own. Returns its slot; the caller issues the write barrier.
    pub fn enter_collectable(&mut self, slot: Slot, fiber: ObjectRef, is_same: bool) -> Slot {
        let slot = match is_same {
            true => slot,
            false => self.fibers.insert(fiber, false),
        };
        let before = self.control.running;
        self.control.running = Some(slot);
        self.fibers.enter_hook(slot);
        self.note_resumer(slot, before);
        slot
    }

    /// A fiber that the scheduler did not make has control: the fiber that had it before has resumed it.
    #[cold]
    fn note_resumer(&mut self, slot: Slot, before: Option<Slot>) {
        let before = before.filter(|before| self.fibers.is_scheduled(*before));
        let owner = before.map_or(self.control.owner, |before| Some(self.fibers.id(before)));
        self.fibers.set_owner(slot, owner);
        self.note_owner(slot);
    }

    /// Control is in this fiber. The owner of a fiber that the scheduler made is the fiber itself, so it is not noted.
    fn note_owner(&mut self, slot: Slot) {
        if !self.fibers.is_scheduled(slot) {
            self.note_owner_of(slot);
        }
    }

    #[cold]
    fn note_owner_of(&mut self, slot: Slot) {
        self.control.owner = Some(self.fibers.owner_or_self(slot));
    }

    /// A hook begins in this fiber of a forked child, where the scheduler serves as a list of waits only.
    pub fn enter_in_forked_child(&mut self, fiber: ObjectRef) -> EnteredFiber {
        let entered = self.find_or_insert(fiber);
        self.fibers.enter_hook(entered.slot);
        entered
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

    /// The hook has ended.
    pub fn leave(&mut self, slot: Slot) {
        if self.fibers.leave_hook(slot) {
            self.control.forget_running(slot);
        }
    }

    /// The scheduler cancels its fibers, those that their `ensure` clauses start as well. Returns the live ones.
    pub fn begin_cancel(&mut self) -> Vec<Slot> {
        self.control.cancelling = true;
        self.fibers.scheduled().collect()
    }

    // --- parking -------------------------------------------------------------------------------------------------

    /// The wait of a fiber has begun, and it gives control away. The token of the wait, and as [`State::may_concern_owner`].
    pub fn before_park(&mut self, slot: Slot) -> (Token, bool) {
        self.counters.parks += 1;
        let clock = self.event_loop.clock();
        let record = &mut self.fibers[slot];
        record.wait.parked_at = clock;
        let (wait, is_scheduled) = (Token::new(slot, record.wait.number), record.is_scheduled);
        self.trace_event(TraceEvent::Park, slot);
        let may_concern_owner =
            self.may_be_killed(slot) || (!is_scheduled && self.before_park_of_foreign(slot));
        (wait, may_concern_owner)
    }

    #[cold]
    fn before_park_of_foreign(&mut self, slot: Slot) -> bool {
        self.fibers.note_indirect_owner(slot);
        self.may_have_timeout_of_owner(slot)
    }

    /// The fiber goes on.
    pub fn after_park(&mut self, wait: Token) {
        self.trace_event(TraceEvent::Unpark, wait.index());
        self.fibers.end_wait(wait);
    }

    // --- switching -----------------------------------------------------------------------------------------------

    /// Control is about to go to another fiber.
    pub fn before_switch(&mut self, to: Slot) {
        self.control.running = Some(to);
        self.note_owner(to);
        self.counters.switches += 1;
    }

    /// Control is back in `slot`. If it came from a fiber that neither ended nor parked (it used Fiber#raise, Fiber#kill or
    /// Fiber#transfer itself), that fiber is suspended without a wake-up to come, so it is queued.
    #[inline(always)]
    pub fn on_resumed(&mut self, slot: Slot) {
        let left = self.control.resume(slot);
        self.fibers.expect(slot);
        self.note_owner(slot);
        self.trace_event(TraceEvent::Control, slot);
        if let Some(left) = left {
            self.queue_left(left);
        }
    }

    /// A fiber has given control away, and perhaps without parking.
    #[cold]
    fn queue_left(&mut self, left: Slot) {
        if !self.fibers[left].is_in_wait() {
            self.enqueue(left);
        }
        self.queue_if_over(left);
    }

    /// Whether the fiber may have been killed without the hooks having seen it, or a timeout of its owner may be around its wait.
    pub fn may_concern_owner(&self, slot: Slot) -> bool {
        self.may_be_killed(slot)
            || (!self.fibers.is_scheduled(slot) && self.may_have_timeout_of_owner(slot))
    }

    // --- starting and ending -------------------------------------------------------------------------------------

    /// Adds a fiber made by `Fiber.schedule`, which is to run this block. The caller issues the write barrier.
    pub fn add_fiber(&mut self, fiber: ObjectRef, block: ObjectRef) -> Slot {
        self.counters.fibers += 1;
        let slot = self.fibers.insert(fiber, true);
        self.fibers.set_block(slot, block);
        slot
    }

    /// A fiber gives control to one that it has started.
    pub fn begin_start(&mut self, starter: Slot, started: Slot) -> Start {
        let turn = self.fibers.begin_turn(starter);
        let spawner = self.enqueue_first(starter);
        self.fibers[started].spawner = spawner;
        let is_nested = self.fibers.is_scheduled(starter);
        let outer_root = match is_nested {
            true => self.control.root,
            false => self.control.root.replace(starter),
        };
        self.control.running = Some(started);
        self.trace_event(TraceEvent::Control, started);
        Start {
            turn,
            outer_root,
            is_nested,
        }
    }

    /// The started fiber has parked or ended, and the starter goes on.
    pub fn end_start(&mut self, start: Start) {
        self.control.root = start.outer_root;
        self.fibers.end_wait(start.turn);
    }

    /// Since when the fiber has only started other fibers, without a wait. `None`: this is its first.
    pub fn take_spawn_streak(&mut self, slot: Slot) -> Option<Instant> {
        let token = self.fibers.wait_token(slot);
        self.control.take_spawn_streak(token)
    }

    pub fn set_spawn_streak(&mut self, slot: Slot, since: Instant) {
        let token = self.fibers.wait_token(slot);
        self.control.set_spawn_streak(token, since);
    }

    /// The fiber has ended.
    pub fn end_fiber(&mut self, fiber: ObjectRef) {
        let slot = self.fibers.find(fiber);
        self.control
            .on_end(slot.is_some_and(|slot| self.fibers[slot].is_cancelled));
        if let Some(slot) = slot {
            self.trace_event(TraceEvent::End, slot);
            self.fibers.remove(slot);
        }
    }

    /// The root fiber begins to wait for the end of all fibers. The token for [`State::end_drain`], and the root fiber before it.
    pub fn begin_drain(&mut self, slot: Slot) -> (Token, Option<Slot>) {
        self.trace_event(TraceEvent::Drain, slot);
        (
            self.fibers.begin_turn(slot),
            self.control.root.replace(slot),
        )
    }

    /// It goes on. The first error that ended a fiber, if `succeeded`; it is kept otherwise.
    pub fn end_drain(
        &mut self,
        (turn, outer_root): (Token, Option<Slot>),
        succeeded: bool,
    ) -> Option<ObjectRef> {
        self.control.root = outer_root;
        self.control.cancelling = false;
        self.after_park(turn);
        match succeeded {
            true => self.control.first_error.take(),
            false => None,
        }
    }
}
