//! The fibers this scheduler knows: the only root through which the garbage collector reaches them.
//!
//! A fiber made by `Fiber.schedule` keeps its slot for life, so parking one writes nothing the collector must hear
//! about; any other fiber (the root fiber, an Enumerator's) has a slot while it is inside a hook.
//!
//! Every park has a number. A [`Token`] is slot and number: whatever carries the token of a wait that is over (late
//! readiness, an old timer, a stale wake-up) no longer matches, and is dropped.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    time::Instant,
};

use magnus::gc::Marker;
use reactor::{Ready, Token};

use crate::raw::Pinned;

/// Index into the slab.
pub type Slot = u32;

/// Waits for several IO objects at once.
pub const MANY: u64 = u64::MAX;

/// What a parked fiber waits for: decides who may end the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Readiness of descriptors; `unblock` does not concern it, `fiber_interrupt` does.
    Io,
    /// `block` and `kernel_sleep`: ended by `unblock`.
    Block,
    /// A send the driver carries out by the end of this turn; neither `unblock` nor `fiber_interrupt` concerns it.
    Send,
}

/// The hook a fiber is parked in, for whoever looks on: no decision hangs on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hook {
    #[default]
    Other,
    /// `io_wait`, `io_read`, `io_write`, `io_select`.
    Io,
    /// `kernel_sleep`.
    Sleep,
    /// `block`.
    Block,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A descriptor is ready. For which direction, the selector tells.
    Ready,
    /// The wait's own time is up.
    Elapsed,
    /// `unblock`.
    Unblocked,
    /// Something to raise is pending.
    Disturbed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In user code, or left by a transfer that was not ours.
    Running,
    Parked(Purpose),
    /// Its wait is over and it is in the ready queue.
    Woken(Cause),
}

/// What a fiber has to raise when it gets control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    Raise(Pinned),
    Kill,
}

#[derive(Debug)]
pub struct Record {
    pub fiber: Pinned,
    pub state: State,
    pub pending: Option<Pending>,
    /// Timeouts that have fired and wait for the fiber to get control.
    pub fired: u32,
    /// The IO object it waits for, by its hidden number; [`MANY`] if there are several; 0 if it waits for none.
    pub watching: u64,
    /// An `unblock` came while the fiber was on its way into `block` or `kernel_sleep`.
    pub permit: bool,
    /// Made by `Fiber.schedule`.
    pub own: bool,
    /// Something has begun to unwind it for good.
    pub killed: bool,
    /// In the ready queue, under the current wait number.
    pub queued: bool,
    /// The fiber that made this one, until it first parks: what goes wrong so early is its error.
    pub spawner: Option<Token>,
    /// The turn in which it parked.
    pub since: Option<Instant>,
    pub hook: Hook,
    /// Ruby's mask of the events it waits for; 0 if it waits for none, or for several objects.
    pub events: u8,
    /// It waits for an `unblock` and nothing else: counted in [`Fibers::is_stuck`].
    forever: bool,
    wait: u32,
    visits: u32,
}

impl Record {
    /// Whether it waits for an `unblock` and nothing else.
    pub fn is_forever(&self) -> bool {
        self.forever
    }
}

#[derive(Debug, Default)]
pub struct Fibers {
    records: Vec<Option<Record>>,
    /// Wait numbers outlive the records: a reused slot goes on counting, so an old token never matches again.
    numbers: Vec<u32>,
    free: Vec<Slot>,
    by_address: HashMap<usize, Slot, BuildHasherDefault<AddressHasher>>,
    last: Option<(usize, Slot)>,
    own: usize,
    forever: usize,
}

impl Fibers {
    /// Fibers that are parked.
    pub fn parked_count(&self) -> usize {
        let records = self.records.iter().flatten();
        records
            .filter(|r| matches!(r.state, State::Parked(_)))
            .count()
    }

    /// Fibers made by `Fiber.schedule` that have not finished.
    pub fn live(&self) -> usize {
        self.own
    }

    pub fn find(&mut self, fiber: Pinned) -> Option<Slot> {
        let address = fiber.address();
        if let Some((known, slot)) = self.last {
            if known == address {
                return Some(slot);
            }
        }
        let slot = *self.by_address.get(&address)?;
        self.last = Some((address, slot));
        Some(slot)
    }

    /// Adds a fiber. The caller issues the write barrier.
    pub fn insert(&mut self, fiber: Pinned, own: bool) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.numbers.push(0);
            (self.records.len() - 1) as Slot
        });
        self.records[slot as usize] = Some(Record {
            fiber,
            state: State::Running,
            pending: None,
            fired: 0,
            watching: 0,
            permit: false,
            own,
            killed: false,
            queued: false,
            spawner: None,
            since: None,
            hook: Hook::Other,
            events: 0,
            forever: false,
            wait: self.numbers[slot as usize],
            visits: 0,
        });
        self.by_address.insert(fiber.address(), slot);
        self.own += usize::from(own);
        slot
    }

    pub fn remove(&mut self, slot: Slot) {
        if let Some(record) = self.records.get_mut(slot as usize).and_then(Option::take) {
            self.numbers[slot as usize] = record.wait.wrapping_add(1);
            self.by_address.remove(&record.fiber.address());
            self.last = None;
            self.own -= usize::from(record.own);
            self.forever -= usize::from(record.forever);
            self.free.push(slot);
        }
    }

    /// A hook begins for this fiber: its slot stays until the matching [`Fibers::leave`].
    pub fn visit(&mut self, slot: Slot) {
        if let Some(record) = self.get_mut(slot) {
            record.visits += 1;
        }
    }

    pub fn leave(&mut self, slot: Slot) {
        if let Some(record) = self.get_mut(slot) {
            record.visits = record.visits.saturating_sub(1);
            if record.visits == 0 && !record.own {
                self.remove(slot);
            }
        }
    }

    pub fn get(&self, slot: Slot) -> Option<&Record> {
        self.records.get(slot as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: Slot) -> Option<&mut Record> {
        self.records.get_mut(slot as usize)?.as_mut()
    }

    /// A new wait begins. Whatever carries an older token is stale from here on.
    pub fn begin(&mut self, slot: Slot, purpose: Purpose) -> Token {
        let Some(record) = self.get_mut(slot) else {
            return Token::new(slot, 0);
        };
        record.wait = record.wait.wrapping_add(1);
        record.state = State::Parked(purpose);
        record.spawner = None;
        record.queued = false;
        let token = Token::new(slot, record.wait);
        let interrupted = std::mem::take(&mut record.forever); // by a wait in a trap handler
        self.forever -= usize::from(interrupted);
        token
    }

    /// A new wait for the readiness of an IO object (with Ruby's mask of events), or of several.
    pub fn watch(&mut self, slot: Slot, watching: u64, events: u8) -> Token {
        let token = self.begin(slot, Purpose::Io);
        if let Some(record) = self.get_mut(slot) {
            record.watching = watching;
            record.hook = Hook::Io;
            record.events = events;
        }
        token
    }

    /// A new wait for the end of work that is being done elsewhere, on the descriptor of an IO object or on none (0).
    pub fn await_work(&mut self, slot: Slot, watching: u64) -> Token {
        let token = self.begin(slot, Purpose::Io);
        if let Some(record) = self.get_mut(slot) {
            record.watching = watching;
        }
        token
    }

    /// A new wait for an `unblock`, with a time limit or `forever` without.
    pub fn rest(&mut self, slot: Slot, hook: Hook, forever: bool) -> Token {
        let token = self.begin(slot, Purpose::Block);
        if let Some(record) = self.get_mut(slot) {
            record.hook = hook;
            record.forever = forever;
            self.forever += usize::from(forever);
        }
        token
    }

    /// Whether nothing but an `unblock` can help any fiber made by `Fiber.schedule`, as far as their number tells.
    pub fn is_stuck(&self) -> bool {
        self.forever > 0 && self.forever >= self.own
    }

    /// Out of the wait, whatever it was that ended it.
    pub fn finish(&mut self, slot: Slot) {
        if let Some(record) = self.get_mut(slot) {
            record.wait = record.wait.wrapping_add(1);
            record.state = State::Running;
            record.queued = false;
            record.watching = 0;
            record.permit = false;
            record.hook = Hook::Other;
            // An interrupt was meant for this wait, which something else has ended; a sentence stands.
            if let Some(Pending::Raise(_)) = record.pending {
                record.pending = None;
            }
            let forever = std::mem::take(&mut record.forever);
            self.forever -= usize::from(forever);
        }
    }

    /// The token under which a fiber enters the ready queue without having parked.
    pub fn requeue(&mut self, slot: Slot) -> Option<Token> {
        let record = self.get_mut(slot)?;
        if record.queued {
            return None;
        }
        record.queued = true;
        Some(Token::new(slot, record.wait))
    }

    /// What changes with each wait of a fiber's.
    pub fn place(&self, slot: Slot) -> Token {
        Token::new(slot, self.get(slot).map_or(0, |record| record.wait))
    }

    /// Ends the wait with this token, if it is still going on.
    pub fn wake(&mut self, token: Token, cause: Cause) -> bool {
        match self.get_mut(token.index()) {
            Some(record)
                if record.wait == token.generation()
                    && matches!(record.state, State::Parked(_)) =>
            {
                record.state = State::Woken(cause);
                record.queued = true;
                true
            }
            _ => false,
        }
    }

    /// The token of the wait that goes on, if the fiber is parked.
    pub fn parked(&self, slot: Slot) -> Option<(Token, Purpose)> {
        let record = self.get(slot)?;
        match record.state {
            State::Parked(purpose) => Some((Token::new(slot, record.wait), purpose)),
            _ => None,
        }
    }

    /// Whether the entry of the ready queue with this token still stands.
    pub fn is_queued(&self, token: Token) -> bool {
        self.get(token.index())
            .is_some_and(|record| record.queued && record.wait == token.generation())
    }

    /// Takes an entry of the ready queue; `None` if it has been overtaken by events.
    pub fn take_queued(&mut self, token: Token) -> Option<Pinned> {
        let record = self.get_mut(token.index())?;
        if !record.queued || record.wait != token.generation() {
            return None;
        }
        record.queued = false;
        Some(record.fiber)
    }

    /// Every fiber there is.
    pub fn records(&self) -> impl Iterator<Item = &Record> + '_ {
        self.records.iter().flatten()
    }

    /// Whether the fiber's wait is over and its turn has come: it has left the ready queue.
    pub fn has_turn(&self, slot: Slot) -> bool {
        self.get(slot)
            .is_some_and(|record| matches!(record.state, State::Woken(_)) && !record.queued)
    }

    /// The fibers made by `Fiber.schedule`.
    pub fn own(&self) -> impl Iterator<Item = Slot> + '_ {
        let slots = self.records.iter().enumerate();
        slots.filter_map(|(slot, record)| record.as_ref()?.own.then_some(slot as Slot))
    }

    pub fn mark(&self, marker: &Marker) {
        for record in self.records.iter().flatten() {
            record.fiber.mark(marker);
            if let Some(Pending::Raise(exception)) = record.pending {
                exception.mark(marker);
            }
        }
    }

    pub fn size(&self) -> usize {
        self.records.capacity() * size_of::<Option<Record>>()
            + self.by_address.capacity() * size_of::<(usize, Slot)>()
    }
}

/// Which cause an event of the reactor stands for.
pub fn cause_of(ready: Ready) -> Cause {
    if ready.contains(Ready::ELAPSED) {
        Cause::Elapsed
    } else {
        Cause::Ready
    }
}

/// Objects' addresses are multiples of 8 and spread well: one multiplication mixes them.
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
