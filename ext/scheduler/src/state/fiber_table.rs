//! The fibers known to the scheduler: the only root through which the garbage collector reaches them.
//!
//! A fiber created by `Fiber.schedule` keeps its slot until it ends, so parking writes nothing that the collector must be
//! told. Any other fiber (the root fiber, an Enumerator's) has a slot only while it is inside a hook, and may still be
//! collected if its only active hooks are timeouts ([`FiberRecord::collectable`]).

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    ops::{Index, IndexMut},
};

use reactor::Token;

use crate::state::{
    fiber::{FiberRecord, Slot},
    object_ref::ObjectRef,
    strand::StrandEntry,
    wait::{FiberId, Pending, Purpose, WaitState, WaitStatus, WakeCause},
};

#[derive(Debug, Default)]
pub struct FiberTable {
    /// Indexed by slot, including vacant ones. A reused slot keeps counting, so an old token never matches again.
    records: Vec<FiberRecord>,
    /// Indexed by slot: the block of the fiber last created there. The fiber's stack keeps it alive, so it is not marked
    /// here.
    blocks: Vec<ObjectRef>,
    free: Vec<Slot>,
    by_address: HashMap<usize, Slot, BuildHasherDefault<AddressHasher>>,
    /// The fiber last found, or last switched to: most likely the result of the next [`FiberTable::find`].
    last_found: Option<(usize, Slot)>,
    live: usize,
    /// The number of innermost waits that only an `unblock` ends.
    waiting_for_unblock_only: usize,
    /// Fibers that may need an exception raised from outside; see [`FiberTable::next_indirect`].
    indirect: Vec<FiberId>,
}

impl Index<Slot> for FiberTable {
    type Output = FiberRecord;

    fn index(&self, slot: Slot) -> &FiberRecord {
        &self.records[slot as usize]
    }
}

impl IndexMut<Slot> for FiberTable {
    fn index_mut(&mut self, slot: Slot) -> &mut FiberRecord {
        &mut self.records[slot as usize]
    }
}

impl FiberTable {
    // --- which fibers there are ----------------------------------------------------------------------------------

    /// Fibers that are parked.
    pub fn all_parked(&self) -> impl Iterator<Item = &FiberRecord> + '_ {
        self.records().filter(|record| record.wait.is_parked())
    }

    /// Fibers created by `Fiber.schedule` that have not ended.
    pub fn live(&self) -> usize {
        self.live
    }

    pub fn find(&mut self, fiber: ObjectRef) -> Option<Slot> {
        let address = fiber.address();
        if let Some((known, slot)) = self.last_found {
            if known == address {
                return Some(slot);
            }
        }
        let slot = *self.by_address.get(&address)?;
        self.last_found = Some((address, slot));
        Some(slot)
    }

    /// Like [`FiberTable::find`], for a fiber that is not running and so is unlikely to be found next.
    pub fn find_other(&self, fiber: ObjectRef) -> Option<Slot> {
        self.by_address.get(&fiber.address()).copied()
    }

    /// The fiber in this slot has control, so it will most likely be found next.
    pub fn expect(&mut self, slot: Slot) {
        self.last_found = Some((self[slot].fiber.address(), slot));
    }

    /// Adds a fiber. The caller issues the write barrier.
    pub fn insert(&mut self, fiber: ObjectRef, scheduled: bool) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.records.push(FiberRecord::vacant(0));
            self.blocks.push(ObjectRef::NONE);
            (self.records.len() - 1) as Slot
        });
        self[slot] = FiberRecord::new(fiber, scheduled, self[slot].last_number);
        if self.by_address.insert(fiber.address(), slot).is_some() {
            self.last_found = None; // the previous fiber at this address was collected
        }
        self.live += usize::from(scheduled);
        slot
    }

    pub fn set_block(&mut self, slot: Slot, block: ObjectRef) {
        self.blocks[slot as usize] = block;
    }

    /// The block that the fiber runs; `None` if the scheduler did not create it, or it has ended.
    pub fn block(&self, fiber: ObjectRef) -> Option<ObjectRef> {
        let slot = self.find_other(fiber)?;
        self.is_scheduled(slot).then(|| self.blocks[slot as usize])
    }

    pub fn remove(&mut self, slot: Slot) {
        if self[slot].is_vacant() {
            return;
        }
        self.leave_resumer(slot);
        let vacant = FiberRecord::vacant(self[slot].last_number.wrapping_add(1));
        let record = std::mem::replace(&mut self[slot], vacant);
        let address = record.fiber.address();
        let found = self.by_address.remove(&address);
        if let Some(later) = found.filter(|found| *found != slot) {
            self.by_address.insert(address, later); // the fiber was collected, and a later one has its address
        }
        self.last_found = None;
        self.live -= usize::from(record.is_scheduled);
        self.waiting_for_unblock_only -= usize::from(record.wait.is_unblock_only());
        self.free.push(slot);
    }

    /// Begins a hook in this fiber, whose slot stays until the matching [`FiberTable::leave_hook`]. Returns whether the
    /// scheduler created the fiber.
    pub fn enter_hook(&mut self, slot: Slot) -> bool {
        let record = &mut self[slot];
        record.active_hooks += 1;
        record.is_scheduled
    }

    /// Ends a hook. Returns whether the fiber's record was removed, and what it had yet to raise.
    pub fn leave_hook(&mut self, slot: Slot) -> (bool, Option<Pending>) {
        let is_last = self[slot].leave_hook();
        let mut pending = None;
        if is_last {
            pending = self[slot].take_late();
            self.remove(slot);
        }
        (is_last, pending)
    }

    /// The record in a slot; `None` if it is vacant.
    pub fn get(&self, slot: Slot) -> Option<&FiberRecord> {
        let record = self.records.get(slot as usize);
        record.filter(|record| !record.is_vacant())
    }

    /// The record in a slot; `None` if there is no such slot.
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut FiberRecord> {
        self.records.get_mut(slot as usize)
    }

    /// All records, including vacant ones, which are in no wait.
    pub fn records(&self) -> impl Iterator<Item = &FiberRecord> + '_ {
        self.records.iter()
    }

    /// The records of fibers that must not be collected: all except those that are collectable and not running.
    pub fn kept_records(&self, running: Option<Slot>) -> impl Iterator<Item = &FiberRecord> + '_ {
        let is_kept = move |(slot, record): &(Slot, &FiberRecord)| {
            let is_collectable = running != Some(*slot) && record.collectable().is_some();
            !record.is_vacant() && !is_collectable
        };
        let kept = (0..).zip(&self.records).filter(is_kept);
        kept.map(|(_, record)| record)
    }

    /// The slots of fibers created by `Fiber.schedule`.
    pub fn scheduled(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.records.len() as Slot).filter(|slot| self[*slot].is_scheduled)
    }

    pub fn is_scheduled(&self, slot: Slot) -> bool {
        self[slot].is_scheduled
    }

    /// Whether the scheduler created the fiber for which this one runs.
    pub fn has_scheduled_resumer(&self, slot: Slot) -> bool {
        self.resumer(slot)
            .is_some_and(|resumer| resumer.is_scheduled)
    }

    // --- waits ---------------------------------------------------------------------------------------------------

    /// Begins a wait. If the fiber is already in a wait, that earlier wait continues when the new one ends.
    #[inline(always)]
    pub fn begin_wait(&mut self, slot: Slot, purpose: Purpose) -> Token {
        self.begin(slot, purpose, WaitState::Parked)
    }

    /// Begins a wait that has already ended; the caller queues the fiber.
    pub fn begin_yield(&mut self, slot: Slot) -> Token {
        let state = WaitState::Woken(WakeCause::Elapsed);
        self.begin(slot, Purpose::ANY_UNBLOCK, state)
    }

    fn begin(&mut self, slot: Slot, purpose: Purpose, state: WaitState) -> Token {
        if self[slot].is_in_wait() {
            self.cover(slot);
        }
        self[slot].begin_wait(purpose, state);
        self.waiting_for_unblock_only += usize::from(purpose.is_unblock_only());
        self.wait_token(slot)
    }

    /// The fiber gives up control without a wait. Returns a token for [`FiberTable::end_wait`].
    pub fn begin_turn(&mut self, slot: Slot) -> Token {
        self.cover(slot);
        self.wait_token(slot)
    }

    /// Begins a wait for an `unblock`; `None` if an `unblock` has already come.
    #[inline(always)]
    pub fn begin_block(&mut self, slot: Slot, purpose: Purpose) -> Option<Token> {
        let has_permit = self[slot].take_permit();
        (!has_permit).then(|| self.begin_wait(slot, purpose))
    }

    /// Wakes the innermost wait if it has this token and is parked. Returns whether it did; the caller then queues the
    /// fiber.
    pub fn wake(&mut self, token: Token, cause: WakeCause) -> bool {
        let record = self.get_mut(token.index());
        record.is_some_and(|record| record.wake(token.generation(), cause))
    }

    /// Ends the innermost wait, however it was woken, if it has this token. The wait it covered continues.
    #[inline(always)]
    pub fn end_wait(&mut self, token: Token) {
        let record = &mut self[token.index()];
        if record.wait.number != token.generation() {
            return;
        }
        let was_counted = record.wait.is_unblock_only();
        record.end_wait();
        let may_uncover = record.may_uncover();
        self.waiting_for_unblock_only -= usize::from(was_counted);
        if may_uncover {
            self.uncover(token.index());
        }
    }

    /// The next step of a running fiber. An exception returned here is no longer pending.
    pub fn take_status(&mut self, slot: Slot) -> WaitStatus {
        let record = &mut self[slot];
        // A mutex that was handed over is taken before anything is raised, because no other fiber would be told of it.
        if record.wait.state == WaitState::Woken(WakeCause::Unblocked) {
            return WaitStatus::Ended(WakeCause::Unblocked);
        }
        if let Some(pending) = record.take_pending() {
            return WaitStatus::Raise(pending);
        }
        let status = record
            .wake_cause()
            .map_or(WaitStatus::Waiting, WaitStatus::Ended);
        match record.ends_by_timeout() && self.poll_expired(slot) {
            true => WaitStatus::TimedOut,
            false => status,
        }
    }

    /// Whether an expired timeout is due in the innermost wait. If none can be in a later one, later polls skip the check.
    #[cold]
    fn poll_expired(&mut self, slot: Slot) -> bool {
        let is_due = self.due_timeout(slot).is_some();
        self[slot].may_time_out = is_due || self.expired_timeout(slot, None).is_some();
        is_due
    }

    /// The token of the innermost wait, if the fiber is parked.
    pub fn parked(&self, slot: Slot) -> Option<Token> {
        let is_parked = self[slot].wait.is_parked();
        is_parked.then(|| self.wait_token(slot))
    }

    /// The fiber's current token, which changes after each wait.
    pub fn wait_token(&self, slot: Slot) -> Token {
        Token::new(slot, self[slot].wait.number)
    }

    /// Whether only an `unblock` can wake any fiber created by `Fiber.schedule`, judging by their number.
    pub fn all_wait_for_unblock_only(&self) -> bool {
        self.waiting_for_unblock_only > 0 && self.waiting_for_unblock_only >= self.live
    }

    // --- the ready queue's side ----------------------------------------------------------------------------------

    /// Queues a fiber without parking it. Returns its token in the ready queue; `None` if it is already queued.
    pub fn queue(&mut self, slot: Slot) -> Option<Token> {
        let number = self[slot].queue()?;
        Some(Token::new(slot, number))
    }

    /// Whether the ready queue's entry with this token is valid.
    pub fn is_queued(&self, token: Token) -> bool {
        self.get(token.index())
            .is_some_and(|record| record.is_queued_as(token.generation()))
    }

    /// Takes an entry off the ready queue. `None` if the entry is stale, or if the fiber cannot run because it waits
    /// for a fiber that it has resumed: see `state/strand.rs`.
    #[inline(always)]
    pub fn take_queued(&mut self, token: Token) -> Option<ObjectRef> {
        let record = self.get_mut(token.index())?;
        if !record.dequeue(token.generation()) {
            return None;
        }
        let (fiber, has_resumed) = (record.fiber, record.has_resumed());
        let waits_for_resumed = has_resumed && self.waits_for_resumed(token.index());
        (!waits_for_resumed).then_some(fiber)
    }

    /// Whether the fiber is not in the ready queue, and its wait has ended or is about to be ended by an expired
    /// timeout.
    pub fn may_run(&self, slot: Slot) -> bool {
        let record = &self[slot];
        let is_over = matches!(record.wait.state, WaitState::Woken(_));
        !record.queued && (is_over || self.has_timed_out(slot))
    }

    // --- memory --------------------------------------------------------------------------------------------------

    pub(super) fn for_each_object(&self, running: Option<Slot>, visit: &mut impl FnMut(ObjectRef)) {
        for record in self.kept_records(running) {
            visit(record.fiber);
        }
        for record in self.records() {
            for pending in record.all_pending() {
                if let Pending::Raise(exception) | Pending::Late(exception) = pending {
                    visit(exception);
                }
            }
            for entry in record.strand() {
                match entry {
                    StrandEntry::Wait(wait) => wait.exception().into_iter().for_each(&mut *visit),
                    StrandEntry::Timeout(timeout) => [timeout.raise.0, timeout.raise.1]
                        .into_iter()
                        .for_each(&mut *visit),
                    StrandEntry::Code | StrandEntry::Resumed { .. } => {}
                }
            }
        }
    }
}

/// Object addresses are multiples of 8 and spread well, so one multiplication mixes them.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize(usize::from(*byte));
        }
    }

    fn write_usize(&mut self, address: usize) {
        self.0 = (self.0 ^ address as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(26);
    }
}

mod resumers;
mod strands;

#[cfg(test)]
mod tests;
