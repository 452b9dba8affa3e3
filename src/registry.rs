//! What a reactor knows of descriptors: the registration, cached readiness and waits of each descriptor.

mod cache;
mod readiness;
mod statistics;
mod wait_id;
mod waits;

use std::time::Instant;

use crate::{
    descriptor::Descriptor,
    event::{Events, Ready},
    interest::Interest,
    token::Token,
};

pub use readiness::{Attempt, CachedReadiness, DescriptorReadiness, OwnerId};
pub use statistics::Statistics;
pub use wait_id::{Wait, WaitId};

use cache::Cache;
use waits::Waits;

/// The initial capacity, in entries.
const FIRST: usize = 32;

/// One entry per descriptor, indexed by its number: the kernel assigns the lowest free number, so the table is dense.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    entries: Vec<Entry>,
}

/// The state of one descriptor.
#[derive(Debug, Default)]
#[repr(align(64))] // a cache line
pub(crate) struct Entry {
    pub(crate) cache: Cache,
    pub(crate) waits: Waits,
}

impl Entry {
    /// Starts a wait.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        slot: u32,
        token: Token,
        asked: Interest,
        now: Instant,
    ) -> WaitId {
        let generation = self.cache.next_wait();
        self.waits.begin(generation, token, asked, now);
        WaitId { slot, generation }
    }

    /// Applies an event, and appends one for each wait that it answers; false if there are none. Applying it again
    /// changes nothing.
    pub(crate) fn apply(&mut self, ready: Ready, events: &mut Events) -> bool {
        self.cache.observe(ready);
        self.waits.answer(ready, events)
    }
}

impl Registry {
    /// The slot of a descriptor, which is the descriptor's number. None if the number cannot be a descriptor.
    #[inline]
    pub(crate) fn slot(descriptor: Descriptor) -> Option<u32> {
        let slot = u32::try_from(descriptor).ok();
        slot.filter(|slot| *slot <= Token::MAX_INDEX)
    }

    /// The descriptor of a slot.
    pub(crate) fn descriptor(slot: u32) -> Descriptor {
        slot as Descriptor
    }

    /// How many slots there are.
    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.entries.get_mut(slot as usize)
    }

    /// The entry of a slot, allocated if necessary.
    pub(crate) fn claim(&mut self, slot: u32) -> &mut Entry {
        let index = slot as usize;
        if index >= self.entries.capacity() {
            // Grows by an eighth: copied rarely, with little unused.
            let length = (index + 1 + index / 8).max(FIRST);
            self.entries.reserve_exact(length - self.entries.len());
        }
        if index >= self.entries.len() {
            self.entries.resize_with(index + 1, Entry::default);
        }
        &mut self.entries[index]
    }

    /// The token for the next driver call for this slot.
    pub(crate) fn next_token(&self, slot: u32) -> Token {
        let generation = self.get(slot).map_or(0, |entry| entry.cache.generation());
        Token::new(slot, generation.wrapping_add(1))
    }

    /// The entry whose newest registration has this token.
    pub(crate) fn current(&mut self, token: Token) -> Option<&mut Entry> {
        let entry = self.get_mut(token.index());
        entry.filter(|entry| entry.cache.is_current(token))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_entry_is_a_cache_line() {
        assert_eq!(size_of::<super::Entry>(), 64);
    }

    #[cfg(unix)]
    #[test]
    fn negative_numbers_are_no_descriptors() {
        use super::Registry;
        assert_eq!((Registry::slot(-1), Registry::slot(0)), (None, Some(0)));
    }
}
