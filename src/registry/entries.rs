//! One record per descriptor, found by its number.

use crate::{
    descriptor::Descriptor,
    interest::Interest,
    registry::{
        readiness::{CachedReadiness, DescriptorReadiness, OwnerId},
        waiters::WaitList,
    },
    token::Token,
};

/// Records per page.
const PAGE: usize = 256;

/// What is remembered about one descriptor.
///
/// While nothing is registered, the owner is unknown, all masks are empty, and there is no wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The token of the newest registration. Its generation goes up with each call to the driver, so that events of older
    /// registrations are recognised.
    pub(super) token: Token,
    pub(super) owner: OwnerId,
    pub(super) descriptor: Descriptor,
    pub(super) registered: Option<Interest>,
    /// The cached readiness, as bits of [`Interest`]: ready directions and drained ones. No direction is both.
    pub(super) ready: u8,
    pub(super) drained: u8,
    /// Directions that were reported while no wait asked for them.
    pub(super) spurious: u8,
    pub(super) hung_up: bool,
    /// The unanswered waits.
    pub(super) wait_list: WaitList,
}

impl Entry {
    const EMPTY: Self = Self {
        token: Token::new(0, 0),
        owner: OwnerId::UNKNOWN,
        descriptor: 0,
        registered: None,
        ready: 0,
        drained: 0,
        spurious: 0,
        hung_up: false,
        wait_list: WaitList::EMPTY,
    };

    /// Is this the owner that the record is about? False for the unknown owner.
    pub(super) fn is_owner(&self, owner: OwnerId) -> bool {
        self.owner == owner && owner != OwnerId::UNKNOWN
    }

    /// Are all these directions drained?
    ///
    /// A record of the unknown owner has no drained direction, so the owners need only be equal.
    pub(super) fn is_drained(&self, owner: OwnerId, interest: Interest) -> bool {
        self.owner == owner && interest.bits() & !self.drained == 0
    }

    /// A new registration: nothing is cached yet, the waits are kept.
    pub(super) fn begin(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        token: Token,
        interest: Interest,
    ) {
        *self = Self {
            token,
            owner,
            descriptor,
            registered: Some(interest),
            wait_list: self.wait_list,
            ..Self::EMPTY
        };
    }

    /// The same registration under a newer token and with this interest. Directions that are no longer registered lose what
    /// was cached of them.
    pub(super) fn adjust(&mut self, token: Token, interest: Interest) {
        self.token = token;
        self.registered = Some(interest);
        self.ready &= interest.bits();
        self.drained &= interest.bits();
        self.spurious &= interest.bits();
    }

    /// Nothing is registered any more. The token's generation and the waits are kept.
    pub(super) fn clear(&mut self) {
        *self = Self {
            token: self.token,
            wait_list: self.wait_list,
            ..Self::EMPTY
        };
    }

    pub(super) fn cached_readiness(&self) -> DescriptorReadiness {
        DescriptorReadiness {
            readable: self.of_direction(Interest::READABLE),
            writable: self.of_direction(Interest::WRITABLE),
            hung_up: self.hung_up,
        }
    }

    fn of_direction(&self, direction: Interest) -> CachedReadiness {
        if self.drained & direction.bits() != 0 {
            CachedReadiness::Drained
        } else if self.ready & direction.bits() != 0 {
            CachedReadiness::Ready
        } else {
            CachedReadiness::Unknown
        }
    }
}

/// All records, in pages. A page is allocated when the first of its descriptors is registered.
#[derive(Debug, Default)]
pub(super) struct Entries {
    pages: Vec<Option<Box<[Entry]>>>,
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
        page.get(slot as usize % PAGE)
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        let page = self.pages.get_mut(slot as usize / PAGE)?.as_mut()?;
        page.get_mut(slot as usize % PAGE)
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
        let generation = self.get(slot).map_or(0, |entry| entry.token.generation());
        Token::new(slot, generation.wrapping_add(1))
    }
}

/// Built on the heap, in a function of its own: a page on the stack would touch more of a parked fiber's stack than the rest
/// of the call does, and the kernel does not take touched stack pages back.
#[cold]
#[inline(never)]
fn new_page() -> Box<[Entry]> {
    vec![Entry::EMPTY; PAGE].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::{Entries, Entry};
    use crate::token::Token;

    #[test]
    fn a_record_is_half_a_cache_line_or_so() {
        assert!(size_of::<Entry>() <= 48);
    }

    #[test]
    fn pages_are_made_on_first_use() {
        let mut entries = Entries::default();
        assert!(entries.get(1000).is_none() && entries.get_mut(0).is_none());
        entries.claim(1000).token = Token::new(1000, 9);
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
