//! One record per descriptor, found by its number, and one per wait.

use std::time::Instant;

use crate::{
    descriptor::Descriptor,
    interest::Interest,
    registry::{
        entry::Entry,
        node::{NONE, Node},
    },
    token::Token,
};

/// How many records are in one table, which grows by doubling: it is found with fewer steps than a page, and small if all
/// numbers are.
const LOW: usize = 1024;

/// The records that the table begins with.
const FIRST: usize = 32;

/// Records per page.
const PAGE: usize = 256;

/// The number of a node of the slab is its place there, and this bit. Without it, it is the slot whose first wait the node is.
const FURTHER: u32 = 1 << 31;

/// How many slots there are: their numbers have to fit into tokens, and into numbers of nodes.
const SLOTS: u32 = match Token::MAX_INDEX < FURTHER {
    true => Token::MAX_INDEX + 1,
    false => FURTHER,
};

/// All records of descriptors. The record of a descriptor has room for one wait, because most descriptors have one at a time.
/// Further waits are in a slab.
#[derive(Debug)]
pub(super) struct Entries {
    /// Those of descriptors below [`LOW`]: the kernel gives the lowest number that is free, so most programs have no other ones.
    low: Vec<Entry>,
    /// The other ones. A page is allocated when the first of its descriptors is registered.
    pages: Vec<Option<Box<[Entry; PAGE]>>>,
    /// Nodes are reused: a further wait allocates only if there are more at a time than ever before.
    further: Vec<Further>,
    free: u32,
}

/// One of several waits for a descriptor.
#[derive(Debug)]
struct Further {
    node: Node,
    slot: u32,
}

impl Entries {
    pub(super) fn new() -> Self {
        Self {
            low: Vec::new(),
            pages: Vec::new(),
            further: Vec::new(),
            free: NONE,
        }
    }

    /// The slot of a descriptor: its number. None if the number cannot be a descriptor.
    #[inline]
    pub(super) fn slot(descriptor: Descriptor) -> Option<u32> {
        u32::try_from(descriptor).ok().filter(|slot| *slot < SLOTS)
    }

    /// The descriptor of a slot.
    pub(super) fn descriptor(slot: u32) -> Descriptor {
        slot as Descriptor
    }

    #[inline(always)] // as below
    pub(super) fn get(&self, slot: u32) -> Option<&Entry> {
        let index = slot as usize;
        if index < self.low.len() {
            return Some(&self.low[index]);
        }
        let page = self.pages.get(index / PAGE)?.as_ref()?;
        Some(&page[index % PAGE])
    }

    #[inline(always)] // four times in each wait
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        let index = slot as usize;
        if index < self.low.len() {
            return Some(&mut self.low[index]);
        }
        let page = self.pages.get_mut(index / PAGE)?.as_mut()?;
        Some(&mut page[index % PAGE])
    }

    /// The record of a slot. Room for it is allocated if necessary.
    pub(super) fn claim(&mut self, slot: u32) -> &mut Entry {
        let index = slot as usize;
        if index < LOW {
            if index >= self.low.len() {
                self.grow_low(index);
            }
            return &mut self.low[index];
        }
        let number = index / PAGE;
        if number >= self.pages.len() {
            self.pages.resize_with(number + 1, || None);
        }
        let page = self.pages[number].get_or_insert_with(new_page);
        &mut page[index % PAGE]
    }

    #[cold]
    #[inline(never)]
    fn grow_low(&mut self, index: usize) {
        let length = (index + 1).next_power_of_two().max(FIRST);
        self.low.reserve_exact(length - self.low.len());
        self.low.resize(length, Entry::EMPTY);
    }

    /// The token for the next call to the driver about this slot.
    pub(super) fn next_token(&self, slot: u32) -> Token {
        let generation = self.get(slot).map_or(0, Entry::generation);
        Token::new(slot, generation.wrapping_add(1))
    }

    // --- waits -------------------------------------------------------------------------------------------------------

    /// The node with a number that the caller of the library has; None if there was never such a wait.
    pub(super) fn find_node(&mut self, number: u32) -> Option<&mut Node> {
        if number < FURTHER {
            return Some(&mut self.get_mut(number)?.node);
        }
        Some(&mut self.further.get_mut((number - FURTHER) as usize)?.node)
    }

    pub(super) fn node(&self, number: u32) -> &Node {
        if number >= FURTHER {
            return &self.further[(number - FURTHER) as usize].node;
        }
        let entry = self.get(number).unwrap_or_else(|| unreachable!());
        &entry.node
    }

    pub(super) fn node_mut(&mut self, number: u32) -> &mut Node {
        if number >= FURTHER {
            return &mut self.further[(number - FURTHER) as usize].node;
        }
        &mut self.entry_mut(number).node
    }

    /// The record of a slot that has one.
    fn entry_mut(&mut self, slot: u32) -> &mut Entry {
        self.get_mut(slot).unwrap_or_else(|| unreachable!())
    }

    /// The unanswered waits for a descriptor, oldest first.
    pub(super) fn waits(&self, slot: u32) -> impl Iterator<Item = (u32, &Node)> {
        let head = self.get(slot).map(|entry| (slot, &entry.node));
        let list = std::iter::successors(head, |(_, node)| {
            let number = (node.next != NONE).then_some(node.next)?;
            Some((number, self.node(number)))
        });
        list.filter(|(_, node)| node.is_waiting())
    }

    /// All slots that may have a wait are below this one.
    pub(super) fn end(&self) -> u32 {
        (self.pages.len() * PAGE).max(self.low.len()) as u32
    }

    /// When the oldest unanswered wait for a descriptor was last armed, and how often it was looked at.
    pub(super) fn armed(&self, slot: u32) -> Option<(Instant, u8)> {
        self.waits(slot).next()?.1.armed()
    }

    /// The waits for a descriptor are looked at.
    pub(super) fn arm(&mut self, slot: u32, now: Instant) {
        let mut number = slot;
        while number != NONE {
            let node = self.node_mut(number);
            node.arm(now);
            number = node.next;
        }
    }

    /// The number of the oldest unanswered wait for a descriptor, and what it waits for.
    pub(super) fn oldest_wait(&self, slot: u32) -> Option<(u32, Interest)> {
        let (number, node) = self.waits(slot).next()?;
        Some((number, node.interest()?))
    }

    /// A free node: that of the descriptor's record, or one of the slab at the end of the descriptor's list.
    pub(super) fn free_node(&mut self, slot: u32) -> u32 {
        if self.claim(slot).node.is_unused() {
            return slot;
        }
        if self.free == NONE {
            self.free = FURTHER | self.further.len() as u32;
            self.further.push(Further {
                node: Node::EMPTY,
                slot,
            });
        }
        let number = self.free;
        let last = self.set_end(slot, number);
        let further = &mut self.further[(number - FURTHER) as usize];
        further.slot = slot;
        self.free = std::mem::replace(&mut further.node.next, NONE);
        further.node.previous = last;
        number
    }

    /// A node of the slab becomes the last one of a descriptor's list. Returns the last one before.
    fn set_end(&mut self, slot: u32, number: u32) -> u32 {
        let head = &mut self.entry_mut(slot).node;
        let last = std::mem::replace(&mut head.previous, number);
        self.set_next(slot, last, number);
        last
    }

    fn set_next(&mut self, slot: u32, number: u32, next: u32) {
        match number {
            NONE => self.entry_mut(slot).node.next = next,
            number => self.further[(number - FURTHER) as usize].node.next = next,
        }
    }

    /// A wait is no longer unanswered: it leaves the list of its descriptor.
    pub(super) fn unlink(&mut self, number: u32) {
        if number < FURTHER {
            return;
        }
        let Further { node, slot } = &mut self.further[(number - FURTHER) as usize];
        let (slot, previous) = (*slot, std::mem::replace(&mut node.previous, NONE));
        let next = std::mem::replace(&mut node.next, NONE);
        self.set_next(slot, previous, next);
        match next {
            NONE => self.entry_mut(slot).node.previous = previous,
            next => self.further[(next - FURTHER) as usize].node.previous = previous,
        }
    }

    /// A wait has ended: its node can be used again.
    pub(super) fn release(&mut self, number: u32) {
        if number >= FURTHER {
            self.further[(number - FURTHER) as usize].node.next = self.free;
            self.free = number;
        }
    }
}

/// Built on the heap, in a function of its own: a page on the stack would touch more of a parked fiber's stack than the rest
/// of the call does, and the kernel does not take touched stack pages back.
#[cold]
#[inline(never)]
fn new_page() -> Box<[Entry; PAGE]> {
    let page = vec![Entry::EMPTY; PAGE].into_boxed_slice();
    page.try_into().unwrap_or_else(|_| unreachable!())
}

#[cfg(test)]
mod tests {
    use super::Entries;
    use crate::{interest::Interest, token::Token};

    #[test]
    fn pages_are_made_on_first_use() {
        let mut entries = Entries::new();
        assert!(entries.get(5000).is_none() && entries.get_mut(0).is_none());
        let token = Token::new(5000, 9);
        entries.claim(5000).adjust(token, Interest::READABLE);
        assert_eq!(entries.pages.iter().flatten().count(), 1);
        assert_eq!(entries.low.len(), 0);
        assert_eq!(entries.next_token(5000), Token::new(5000, 10));
        assert_eq!(entries.next_token(5001), Token::new(5001, 1));
        assert_eq!(entries.next_token(5), Token::new(5, 1));
    }

    #[test]
    fn the_table_of_low_numbers_grows_by_doubling_and_has_an_end() {
        let mut entries = Entries::new();
        for (slot, length) in [(5, 32), (31, 32), (32, 64), (1023, 1024), (1024, 1024)] {
            let token = Token::new(slot, slot);
            entries.claim(slot).adjust(token, Interest::READABLE);
            assert_eq!(entries.low.len(), length, "{slot}");
        }
        for slot in [5, 31, 32, 1023, 1024] {
            assert_eq!(entries.get(slot).unwrap().generation(), slot);
            assert_eq!(entries.get_mut(slot).unwrap().generation(), slot);
        }
        assert_eq!(entries.pages.iter().flatten().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn negative_numbers_are_no_descriptors() {
        assert_eq!(Entries::slot(-1), None);
        assert_eq!(Entries::slot(0), Some(0));
    }
}
