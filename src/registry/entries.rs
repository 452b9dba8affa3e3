//! One record per descriptor, found by its number.

use crate::{descriptor::Descriptor, registry::entry::Entry, token::Token};

/// Records per page.
const PAGE: usize = 256;

/// All records, in pages. A page is allocated when the first of its descriptors is registered.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pages: Vec<Option<Box<[Entry; PAGE]>>>,
}

impl Entries {
    /// The slot of a descriptor: its number. None if the number cannot be a descriptor.
    pub(super) fn slot(descriptor: Descriptor) -> Option<u32> {
        u32::try_from(descriptor)
            .ok()
            .filter(|slot| *slot <= Token::MAX_INDEX)
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Entry> {
        let page = self.pages.get(slot as usize / PAGE)?.as_ref()?;
        Some(&page[slot as usize % PAGE])
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        let page = self.pages.get_mut(slot as usize / PAGE)?.as_mut()?;
        Some(&mut page[slot as usize % PAGE])
    }

    /// The record of a slot. Its page is allocated if necessary.
    pub(super) fn claim(&mut self, slot: u32) -> &mut Entry {
        let number = slot as usize / PAGE;
        if number >= self.pages.len() {
            self.pages.resize_with(number + 1, || None);
        }
        let page = self.pages[number].get_or_insert_with(new_page);
        &mut page[slot as usize % PAGE]
    }

    /// The token for the next call to the driver about this slot.
    pub(super) fn next_token(&self, slot: u32) -> Token {
        let generation = self.get(slot).map_or(0, |entry| entry.token().generation());
        Token::new(slot, generation.wrapping_add(1))
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
        let mut entries = Entries::default();
        assert!(entries.get(1000).is_none() && entries.get_mut(0).is_none());
        let token = Token::new(1000, 9);
        entries.claim(1000).adjust(token, Interest::READABLE);
        assert_eq!(entries.pages.iter().flatten().count(), 1);
        assert_eq!(entries.next_token(1000), Token::new(1000, 10));
        assert_eq!(entries.next_token(1001), Token::new(1001, 1));
        assert_eq!(entries.next_token(5), Token::new(5, 1));
    }

    #[cfg(unix)]
    #[test]
    fn negative_numbers_are_no_descriptors() {
        assert_eq!(Entries::slot(-1), None);
        assert_eq!(Entries::slot(0), Some(0));
    }
}
