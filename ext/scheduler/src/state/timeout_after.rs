//! `timeout_after`: exceptions that are raised in a fiber unless its block ends first.
//!
//! A timeout that fires is only recorded. The fiber raises it from its own stack when it next gets control. A block that
//! ends first has won: nothing is raised after it. A trap handler may interrupt a wait, and wait itself: then the timeouts
//! around the first wait are raised when that one goes on.

use reactor::{TimerId, Token};

use crate::state::{
    fiber::{FiberRecord, Slot},
    fiber_table::FiberTable,
    object_ref::ObjectRef,
    slab::Slab,
    token_mark::TIMEOUT,
    wait::Life,
};

#[derive(Clone, Copy, Debug)]
struct Timeout {
    /// The timeouts are numbered in the order in which their blocks begin. So of two that are around one wait, the outer one has
    /// the lower number.
    number: u64,
    /// The fiber in which it is raised: another one if the block is that of a suspended Enumerator.
    fiber: Life,
    /// How many waits of the fiber had been set aside when the block began.
    depth: u32,
    /// The same of the fiber's owner.
    depth_of_owner: u32,
    exception: ObjectRef,
    message: ObjectRef,
    fired: bool,
    /// It has been raised, and does not fire again.
    raised: bool,
    /// If the garbage collector may take the fiber in which the block runs: that fiber, and the timer.
    collectable: Option<(Slot, Option<TimerId>)>,
}

/// The exception (an object or a class) and the message that a fired timeout raises.
pub type Raise = (ObjectRef, ObjectRef);

/// Whether the fiber has given control away without a hook: it has resumed another fiber, or it has yielded to the fiber that
/// resumed it. An Enumerator does so between two values.
fn is_suspended(fiber: Life, fibers: &FiberTable) -> bool {
    let record = fibers.alive(fiber);
    record.is_some_and(FiberRecord::is_suspended_elsewhere)
}

/// The fiber in which the timeout of a suspended fiber is raised: its owner. The VM passes the exception on to the fiber that
/// the owner waits for. `None` if the owner has ended.
fn owner_of(fiber: Life, fibers: &FiberTable) -> Option<Life> {
    let owner = fibers.owner_or_self(fiber.slot);
    fibers.is_alive(owner).then_some(owner)
}

#[derive(Debug, Default)]
pub struct Timeouts {
    entries: Slab<Timeout, TIMEOUT>,
    last_number: u64,
    /// Fired timeouts. The error may have to be raised in the fiber from outside.
    fired: Vec<Token>,
}

impl Timeouts {
    pub fn insert(&mut self, slot: Slot, raise: Raise, fibers: &FiberTable) -> Token {
        let (exception, message) = raise;
        self.last_number += 1;
        let fiber = fibers.life(slot);
        self.entries.insert(Timeout {
            number: self.last_number,
            fiber,
            depth: fibers.depth(slot),
            depth_of_owner: fibers.depth_of_owner(slot),
            exception,
            message,
            fired: false,
            raised: false,
            collectable: None,
        })
    }

    /// The timeout ends when the fiber in which its block runs is collected.
    pub fn set_collectable(&mut self, token: Token, fiber: Slot, timer: Option<TimerId>) {
        if let Some(timeout) = self.entries.get_mut(token) {
            timeout.collectable = Some((fiber, timer));
        }
    }

    /// The fiber in which the block runs, and the timer. `None` if the timeout does not end with the fiber, or has ended.
    pub fn collectable(&mut self, token: Token) -> Option<(Slot, Option<TimerId>)> {
        self.entries.get_mut(token)?.collectable
    }

    /// The block has ended: the timeout is off, even if it has fired and was not raised yet.
    pub fn remove(&mut self, token: Token, fibers: &mut FiberTable) {
        let Some(timeout) = self.entries.remove(token) else {
            return;
        };
        if timeout.fired {
            if let Some(record) = fibers.alive_mut(timeout.fiber) {
                record.discount_fired_timeout(timeout.depth);
            }
        }
        let home = timeout
            .collectable
            .and_then(|(home, _)| fibers.get_mut(home));
        if let Some(record) = home {
            record.end_collectable_timeout();
        }
    }

    /// Its time has come. If the fiber is parked and not queued yet, it is to be queued under this token. It fires once.
    ///
    /// The wait goes on until the fiber has control, because only the fiber itself can tell whether it is a trap handler's.
    pub fn fire(&mut self, token: Token, fibers: &mut FiberTable) -> Option<Token> {
        let timeout = self.entries.get_mut(token);
        let timeout = timeout.filter(|timeout| !timeout.fired && !timeout.raised)?;
        if is_suspended(timeout.fiber, fibers) {
            let owner = owner_of(timeout.fiber, fibers)?;
            if owner != timeout.fiber {
                timeout.fiber = owner;
                timeout.depth = timeout.depth_of_owner;
            }
        }
        let (slot, depth) = (timeout.fiber.slot, timeout.depth);
        let record = fibers.alive_mut(timeout.fiber)?;
        record.count_fired_timeout(depth);
        let is_set_aside = depth < record.depth();
        timeout.fired = true;
        self.fired.push(token);
        if is_set_aside {
            return None;
        }
        fibers.parked(slot)?;
        fibers.queue(slot)
    }

    /// Whether there may be a fiber for [`Timeouts::next_indirect`].
    pub fn have_fired(&self) -> bool {
        !self.fired.is_empty()
    }

    /// The next fiber that has to be raised in from outside, because it has resumed another one that is parked.
    pub fn next_indirect(&mut self, fibers: &FiberTable) -> Option<(Slot, ObjectRef)> {
        let mut place = 0;
        while let Some(token) = self.fired.get(place).copied() {
            let timeout = self.entries.get_mut(token).filter(|timeout| timeout.fired);
            let found = timeout.map(|timeout| (timeout.fiber, timeout.depth));
            let record = found.and_then(|(fiber, _)| fibers.alive(fiber));
            let (Some((fiber, depth)), Some(record)) = (found, record) else {
                self.fired.swap_remove(place); // over, or raised, or the fiber has ended
                continue;
            };
            // A parked or queued fiber raises it by itself when it gets control. If it does not (a mutex was handed to
            // it first) and goes on into an Enumerator, a later poll finds it here.
            // If the timeout is around a wait that was set aside, the fiber's own or that of an Enumerator which the fiber waits
            // for, it is raised when that wait goes on.
            let is_set_aside = depth < record.depth() || fibers.is_interrupted_on_behalf_of(fiber);
            if !record.is_suspended_elsewhere() || is_set_aside {
                place += 1;
                continue;
            }
            self.fired.swap_remove(place);
            if record.collectable().is_none() {
                return Some((fiber.slot, record.fiber()));
            }
        }
        None
    }

    /// Takes the fired timeout of a fiber: the outermost, if several have fired.
    pub fn take_fired(&mut self, slot: Slot, fibers: &mut FiberTable) -> Option<Raise> {
        let record = fibers.get_mut(slot)?;
        let depth = record.depth();
        record.discount_fired_timeout(depth);
        let others_have_fired = record.has_fired_timeouts();
        let fiber = fibers.life(slot);
        let mut timeouts = (self.entries.values_mut())
            .filter(|timeout| timeout.fired && timeout.fiber == fiber && timeout.depth >= depth);
        let timeout = if others_have_fired {
            timeouts.min_by_key(|timeout| timeout.number)?
        } else {
            timeouts.next()?
        };
        (timeout.fired, timeout.raised) = (false, true);
        Some((timeout.exception, timeout.message))
    }

    pub fn size(&self) -> usize {
        self.entries.size() + self.fired.capacity() * size_of::<Token>()
    }

    pub(super) fn for_each_object(&self, visit: &mut impl FnMut(ObjectRef)) {
        for timeout in self.entries.values() {
            visit(timeout.exception);
            visit(timeout.message);
        }
    }
}

#[cfg(test)]
mod tests;
