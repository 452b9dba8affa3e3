//! The fibers the scheduler knows: the only root through which the garbage collector reaches them.
//!
//! A fiber made by `Fiber.schedule` keeps its slot for life, so parking one writes nothing the collector must hear of. Any
//! other fiber (the root fiber, an Enumerator's) has a slot while it is inside a hook, and may be collected nevertheless if no
//! hook but a timeout is active in it (`fiber/collectable.rs`).

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use reactor::Token;

use crate::state::{
    fiber::{FiberRecord, FiberState, Slot},
    object_ref::ObjectRef,
    wait::{Pending, WaitHook, WaitKind, WakeCause},
};

#[derive(Debug, Default)]
pub struct FiberTable {
    records: Vec<Option<FiberRecord>>,
    /// Wait numbers outlive the records: a reused slot goes on counting, so an old token never matches again.
    wait_numbers: Vec<u32>,
    /// How many fibers each slot had before its present one.
    lives: Vec<u32>,
    free: Vec<Slot>,
    by_address: HashMap<usize, Slot, BuildHasherDefault<AddressHasher>>,
    /// The answer to the next [`FiberTable::find`], if it is the fiber that was found last, or has got control since.
    last_found: Option<(usize, Slot)>,
    live: usize,
    waiting_for_unblock_only: usize,
    /// Waits that are set aside, because a trap handler or a finalizer waits in the middle of them.
    waits_set_aside: usize,
}

impl FiberTable {
    // --- which fibers there are ----------------------------------------------------------------------------------

    /// Fibers that are parked.
    pub fn parked_count(&self) -> usize {
        self.records().filter(|record| record.is_parked()).count()
    }

    /// Fibers made by `Fiber.schedule` that have not finished.
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

    /// As [`FiberTable::find`], of a fiber that does not have control: it is not the next one to be found.
    pub fn find_other(&self, fiber: ObjectRef) -> Option<Slot> {
        self.by_address.get(&fiber.address()).copied()
    }

    /// The fiber in this slot has control: most likely, it is the next one to be found.
    pub fn expect(&mut self, slot: Slot) {
        if let Some(record) = self.get(slot) {
            self.last_found = Some((record.fiber().address(), slot));
        }
    }

    /// Adds a fiber. The caller issues the write barrier.
    pub fn insert(&mut self, fiber: ObjectRef, scheduled: bool) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.wait_numbers.push(0);
            self.lives.push(0);
            (self.records.len() - 1) as Slot
        });
        let wait_number = self.wait_numbers[slot as usize];
        self.records[slot as usize] = Some(FiberRecord::new(fiber, scheduled, wait_number));
        if self.by_address.insert(fiber.address(), slot).is_some() {
            self.last_found = None; // the fiber before it at this address has been collected
        }
        self.live += usize::from(scheduled);
        slot
    }

    pub fn remove(&mut self, slot: Slot) {
        if let Some(record) = self.records.get_mut(slot as usize).and_then(Option::take) {
            self.wait_numbers[slot as usize] = record.last_number().wrapping_add(1);
            self.lives[slot as usize] = self.lives[slot as usize].wrapping_add(1);
            let address = record.fiber().address();
            let found = self.by_address.remove(&address);
            if let Some(later) = found.filter(|found| *found != slot) {
                self.by_address.insert(address, later); // the fiber has been collected, and a later one has its address
            }
            self.last_found = None;
            self.live -= usize::from(record.is_scheduled());
            self.waiting_for_unblock_only -= usize::from(record.waits_for_unblock_only());
            self.waits_set_aside -= record.depth() as usize;
            self.free.push(slot);
        }
    }

    /// A hook begins in this fiber: its slot stays until the matching [`FiberTable::leave_hook`]. Whether the scheduler made
    /// the fiber.
    pub fn enter_hook(&mut self, slot: Slot) -> bool {
        let Some(record) = self.get_mut(slot) else {
            return false;
        };
        record.enter_hook();
        let is_scheduled = record.is_scheduled();
        if record.is_in_wait() {
            self.set_wait_aside(slot);
        }
        is_scheduled
    }

    /// Whether the fiber has no record any more.
    pub fn leave_hook(&mut self, slot: Slot) -> bool {
        let Some(record) = self.get_mut(slot) else {
            return true;
        };
        if record.has_outer_wait() {
            return self.leave_with_interrupted_wait(slot);
        }
        let is_last = record.leave_hook();
        if is_last {
            self.remove(slot);
        }
        is_last
    }

    #[cold]
    fn leave_with_interrupted_wait(&mut self, slot: Slot) -> bool {
        self.resume_wait(slot);
        let is_last = self.get_mut(slot).is_none_or(FiberRecord::leave_hook);
        if is_last {
            self.remove(slot);
        }
        is_last
    }

    /// The hook that has just been entered is in the middle of a wait, in a trap handler or a finalizer.
    #[cold]
    fn set_wait_aside(&mut self, slot: Slot) {
        let waits_for_unblock_only = self.get_mut(slot).is_some_and(FiberRecord::set_wait_aside);
        self.waiting_for_unblock_only -= usize::from(waits_for_unblock_only);
        self.waits_set_aside += 1;
    }

    /// A hook is in the middle of the fiber's own code, in a trap handler or a finalizer: see [`FiberRecord::set_code_aside`].
    #[cold]
    pub(super) fn set_code_aside(&mut self, slot: Slot) {
        if let Some(record) = self.get_mut(slot) {
            record.set_code_aside();
            self.waits_set_aside += 1;
        }
    }

    /// A hook is about to be left: if it has interrupted a wait, that one goes on.
    #[cold]
    fn resume_wait(&mut self, slot: Slot) {
        let resumed = self.get_mut(slot).and_then(FiberRecord::resume_wait);
        self.waiting_for_unblock_only += usize::from(resumed == Some(true));
        self.waits_set_aside -= usize::from(resumed.is_some());
    }

    pub fn get(&self, slot: Slot) -> Option<&FiberRecord> {
        self.records.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut FiberRecord> {
        self.records.get_mut(slot as usize)?.as_mut()
    }

    pub fn records(&self) -> impl Iterator<Item = &FiberRecord> + '_ {
        self.records.iter().flatten()
    }

    /// The records of fibers that are not to be collected: of all, except those that may be and do not have control.
    pub fn kept_records(&self, running: Option<Slot>) -> impl Iterator<Item = &FiberRecord> + '_ {
        let slots = self.records.iter().enumerate();
        slots.filter_map(move |(slot, record)| {
            let record = record.as_ref()?;
            let is_kept = running == Some(slot as Slot) || record.collectable().is_none();
            is_kept.then_some(record)
        })
    }

    /// The slots of the fibers made by `Fiber.schedule`.
    pub fn scheduled(&self) -> impl Iterator<Item = Slot> + '_ {
        let slots = self.records.iter().enumerate();
        slots.filter_map(|(slot, record)| record.as_ref()?.is_scheduled().then_some(slot as Slot))
    }

    pub fn is_scheduled(&self, slot: Slot) -> bool {
        self.get(slot).is_some_and(FiberRecord::is_scheduled)
    }

    // --- waits ---------------------------------------------------------------------------------------------------

    /// A new wait begins: every older token of the fiber is stale from here on.
    pub fn begin_wait(&mut self, slot: Slot, kind: WaitKind) -> Token {
        self.begin(slot, kind, |_| {})
    }

    /// The same, and notes what the wait is for.
    fn begin(&mut self, slot: Slot, kind: WaitKind, note: impl FnOnce(&mut FiberRecord)) -> Token {
        let Some(record) = self.get_mut(slot) else {
            return Token::new(slot, 0);
        };
        let waited_for_unblock_only = record.begin_wait(kind);
        note(record);
        let token = Token::new(slot, record.wait_number());
        self.waiting_for_unblock_only -= usize::from(waited_for_unblock_only);
        token
    }

    /// A new wait that is over at once. Its token, if the fiber is known.
    pub fn begin_yield(&mut self, slot: Slot) -> Option<Token> {
        let mut is_over = false;
        let token = self.begin(slot, WaitKind::Block, |record| {
            is_over = record.wake(record.wait_number(), WakeCause::Elapsed);
        });
        is_over.then_some(token)
    }

    /// A new wait for the readiness of an IO object (with Ruby's mask of events), or of several.
    pub fn begin_readiness(&mut self, slot: Slot, io_number: u64, events: u8) -> Token {
        self.begin(slot, WaitKind::Io, |record| {
            record.wait_for_readiness(io_number, events);
        })
    }

    /// A new wait for work that a worker or the driver does, on the descriptor of an IO object or on none (0).
    pub fn begin_work(&mut self, slot: Slot, io_number: u64) -> Token {
        self.begin(slot, WaitKind::Io, |record| record.wait_for_work(io_number))
    }

    /// A new wait for an `unblock`, with a time limit or without. `None` if an `unblock` has come already.
    pub fn begin_block(
        &mut self,
        slot: Slot,
        hook: WaitHook,
        is_unlimited: bool,
        blocker: usize,
    ) -> Option<Token> {
        let Some(record) = self.get_mut(slot) else {
            return Some(Token::new(slot, 0));
        };
        if record.take_permit() {
            return None;
        }
        let waited_for_unblock_only = record.begin_wait(WaitKind::Block);
        record.wait_for_unblock(hook, is_unlimited, blocker);
        let token = Token::new(slot, record.wait_number());
        self.waiting_for_unblock_only -= usize::from(waited_for_unblock_only);
        self.waiting_for_unblock_only += usize::from(is_unlimited);
        Some(token)
    }

    /// Ends the wait with this token, if it goes on. Whether its fiber is to be queued: a wait that was set aside ends later.
    pub fn wake(&mut self, token: Token, cause: WakeCause) -> bool {
        let Some(record) = self.get_mut(token.index()) else {
            return false;
        };
        let is_woken = record.wake(token.generation(), cause);
        if !is_woken && record.has_outer_wait() {
            record.wake_outer(token.generation(), cause);
        }
        is_woken
    }

    /// The fiber's wait is over, whatever ended it.
    pub fn end_wait(&mut self, slot: Slot) {
        if let Some(record) = self.get_mut(slot) {
            let waited_for_unblock_only = record.end_wait();
            self.waiting_for_unblock_only -= usize::from(waited_for_unblock_only);
        }
    }

    /// The token of the wait that goes on, if the fiber is parked.
    pub fn parked(&self, slot: Slot) -> Option<(Token, WaitKind)> {
        let record = self.get(slot)?;
        match record.state() {
            FiberState::Parked(kind) => Some((Token::new(slot, record.wait_number()), kind)),
            _ => None,
        }
    }

    /// The fiber's current token: another one after each wait.
    pub fn wait_token(&self, slot: Slot) -> Token {
        Token::new(slot, self.get(slot).map_or(0, FiberRecord::wait_number))
    }

    /// Whether only an `unblock` can help any fiber made by `Fiber.schedule`, as far as their number tells.
    pub fn all_wait_for_unblock_only(&self) -> bool {
        self.waiting_for_unblock_only > 0 && self.waiting_for_unblock_only >= self.live
    }

    // --- the ready queue's side ----------------------------------------------------------------------------------

    /// The token under which a fiber enters the ready queue without having parked; `None` if it is there.
    pub fn queue(&mut self, slot: Slot) -> Option<Token> {
        let wait_number = self.get_mut(slot)?.queue()?;
        Some(Token::new(slot, wait_number))
    }

    /// Whether the entry of the ready queue with this token still stands.
    pub fn is_queued(&self, token: Token) -> bool {
        self.get(token.index())
            .is_some_and(|record| record.is_queued_as(token.generation()))
    }

    /// Takes an entry of the ready queue; `None` if it no longer stands, or if the fiber cannot get control, because it waits for
    /// another one: see `fiber/nested_wait.rs`.
    pub fn take_queued(&mut self, token: Token) -> Option<ObjectRef> {
        let record = self.get_mut(token.index())?;
        if !record.dequeue(token.generation()) {
            return None;
        }
        let (fiber, resumed) = (record.fiber(), record.resumed_in_wait());
        let waits_for_resumed = resumed.is_some() && self.waits_for_resumed(token.index());
        (!waits_for_resumed).then_some(fiber)
    }

    /// Whether the fiber's wait is over, or a timeout has fired, and it has left the ready queue.
    pub fn may_run(&self, slot: Slot) -> bool {
        self.get(slot).is_some_and(FiberRecord::may_run)
    }

    // --- memory --------------------------------------------------------------------------------------------------

    pub(super) fn for_each_object(&self, running: Option<Slot>, visit: &mut impl FnMut(ObjectRef)) {
        for record in self.kept_records(running) {
            visit(record.fiber());
        }
        for record in self.records() {
            record.outer_exceptions().for_each(&mut *visit);
            for pending in record.all_pending() {
                if let Pending::Raise(exception) | Pending::Late(exception) = pending {
                    visit(exception);
                }
            }
        }
    }

    pub fn size(&self) -> usize {
        let numbers = self.wait_numbers.capacity() + self.lives.capacity() + self.free.capacity();
        self.records.capacity() * size_of::<Option<FiberRecord>>()
            + self.by_address.capacity() * size_of::<(usize, Slot)>()
            + numbers * size_of::<u32>()
    }
}

/// Addresses of objects are multiples of 8 and spread well: one multiplication mixes them.
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

mod lives;

#[cfg(test)]
mod tests;
