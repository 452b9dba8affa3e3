//! The record of one descriptor: its registration, its cached readiness, and the first of its waits.

use crate::{
    event::Ready,
    interest::Interest,
    registry::{
        node::{NONE, Node},
        readiness::{Attempt, CachedReadiness, DescriptorReadiness, OwnerId},
    },
    token::Token,
};

/// What is remembered about one descriptor.
///
/// While nothing is registered, the owner is unknown, all masks are empty, and there is no wait.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))] // a cache line
pub(super) struct Entry {
    owner: OwnerId,
    /// The generation of the newest registration's token. It goes up with each call to the driver and at the end of the
    /// registration, so that events of older registrations are recognised.
    generation: u32,
    registered: Option<Interest>,
    /// The cached readiness, as bits of [`Interest`]: ready directions and drained ones. No direction is both.
    ready: u8,
    drained: u8,
    notes: Notes,
    /// The first wait. Its list is that of the further waits.
    pub(super) node: Node,
}

impl Entry {
    pub(super) const EMPTY: Self = Self {
        owner: OwnerId::UNKNOWN,
        generation: 0,
        registered: None,
        ready: 0,
        drained: 0,
        notes: Notes::EMPTY,
        node: Node::EMPTY,
    };

    /// The generation of the newest registration's token.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    pub(super) fn owner(&self) -> OwnerId {
        self.owner
    }

    pub(super) fn registered(&self) -> Option<Interest> {
        self.registered
    }

    /// Is this the token of the newest registration?
    pub(super) fn is_current(&self, token: Token) -> bool {
        self.generation == token.generation()
    }

    /// Is this the owner that the record is about? False for the unknown owner.
    pub(super) fn is_owner(&self, owner: OwnerId) -> bool {
        self.owner == owner && owner != OwnerId::UNKNOWN
    }

    /// Are all these directions drained?
    ///
    /// A record of the unknown owner has no drained direction, so the owners need only be equal.
    #[inline]
    pub(super) fn is_drained(&self, owner: OwnerId, interest: Interest) -> bool {
        self.owner == owner && interest.bits() & !self.drained == 0
    }

    /// Is there an unanswered wait?
    pub(super) fn has_wait(&self) -> bool {
        self.node.is_waiting() || self.node.next != NONE
    }

    /// A new registration: nothing is cached yet, the waits are kept.
    pub(super) fn begin(&mut self, owner: OwnerId, token: Token, interest: Interest) {
        *self = Self {
            owner,
            generation: token.generation(),
            registered: Some(interest),
            node: self.node,
            ..Self::EMPTY
        };
    }

    /// A new registration of the same file by another owner: only whether short counts say nothing is kept.
    pub(super) fn change_owner(&mut self, owner: OwnerId, interest: Interest) {
        *self = Self {
            owner,
            generation: self.generation,
            registered: Some(interest),
            notes: self.notes.only_doubted(),
            node: self.node,
            ..Self::EMPTY
        };
    }

    /// The same registration under a newer token and with this interest. Directions that are no longer registered lose what
    /// was cached of them.
    pub(super) fn adjust(&mut self, token: Token, interest: Interest) {
        self.generation = token.generation();
        self.registered = Some(interest);
        self.ready &= interest.bits();
        self.drained &= interest.bits();
        self.notes.keep(interest.bits());
    }

    /// Nothing is registered any more. The waits are kept. No event has the new generation.
    pub(super) fn clear(&mut self) {
        *self = Self {
            generation: self.generation.wrapping_add(1),
            node: self.node,
            ..Self::EMPTY
        };
    }

    /// The kernel has reported an event.
    #[inline(always)] // in the poll of every turn
    pub(super) fn observe(&mut self, ready: Ready) {
        let answered = ready.directions();
        self.ready |= answered & self.registered_bits();
        self.drained &= !answered;
        self.notes.observe(answered, ready.is_hung_up());
    }

    /// The owner has made a system call with this outcome.
    #[inline]
    pub(super) fn attempted(&mut self, interest: Interest, attempt: Attempt) {
        let bits = interest.bits() & self.registered_bits();
        self.notes.clear_spurious(interest.bits());
        let presumed = match attempt {
            Attempt::Complete => return,
            Attempt::Short if self.notes.says_nothing_of_short() => return,
            Attempt::Short => bits,
            Attempt::WouldBlock => 0,
        };
        self.drained |= bits;
        self.ready &= !bits;
        self.notes.drained(bits, presumed);
    }

    /// Is a direction drained only because of a short count?
    pub(super) fn is_presumed(&self) -> bool {
        self.notes.presumed() != 0
    }

    /// A look has reported these directions. If one of them was presumed drained, short counts say nothing from now on.
    pub(super) fn looked(&mut self, ready: Ready) {
        if ready.reported() & self.notes.presumed() != 0 {
            self.notes.doubt();
        }
    }

    /// Notes these directions as spurious. Returns those that were noted before.
    pub(super) fn note_spurious(&mut self, directions: u8) -> u8 {
        self.notes.note_spurious(directions)
    }

    pub(super) fn clear_spurious(&mut self, interest: Interest) {
        self.notes.clear_spurious(interest.bits());
    }

    /// The bits of the registered directions.
    #[inline]
    pub(super) fn registered_bits(&self) -> u8 {
        self.registered.map_or(0, Interest::bits)
    }

    pub(super) fn cached_readiness(&self) -> DescriptorReadiness {
        DescriptorReadiness {
            readable: self.of_direction(Interest::READABLE),
            writable: self.of_direction(Interest::WRITABLE),
            hung_up: self.notes.is_hung_up(),
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

/// Two sets of directions and two flags in one byte, so that a record fits into a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Notes(u8);

impl Notes {
    const EMPTY: Self = Self(0);
    /// The kernel has reported a closed reading half, a hang-up or an error.
    const HUNG_UP: u8 = 1 << 6;
    /// A short count says nothing about this descriptor.
    const DOUBTED: u8 = 1 << 7;
    /// The directions that were reported while no wait asked for them begin at this bit. Those that are drained only because of
    /// a short count begin at bit 0.
    const SPURIOUS: u32 = 3;
    const DIRECTIONS: u8 = 0b111;

    fn presumed(self) -> u8 {
        self.0 & Self::DIRECTIONS
    }

    fn is_hung_up(self) -> bool {
        self.0 & Self::HUNG_UP != 0
    }

    fn says_nothing_of_short(self) -> bool {
        self.0 & (Self::HUNG_UP | Self::DOUBTED) != 0
    }

    fn only_doubted(self) -> Self {
        Self(self.0 & Self::DOUBTED)
    }

    fn doubt(&mut self) {
        self.0 |= Self::DOUBTED;
    }

    /// Only these directions are still registered.
    fn keep(&mut self, directions: u8) {
        self.0 &= directions | directions << Self::SPURIOUS | Self::HUNG_UP | Self::DOUBTED;
    }

    /// These directions are ready now.
    fn observe(&mut self, directions: u8, is_hung_up: bool) {
        self.0 &= !directions;
        if is_hung_up {
            self.0 |= Self::HUNG_UP;
        }
    }

    /// These directions are drained, `presumed` of them because of a short count.
    fn drained(&mut self, directions: u8, presumed: u8) {
        self.0 = self.0 & !directions | presumed;
    }

    fn note_spurious(&mut self, directions: u8) -> u8 {
        let again = self.0 >> Self::SPURIOUS & directions;
        self.0 |= directions << Self::SPURIOUS;
        again
    }

    fn clear_spurious(&mut self, directions: u8) {
        self.0 &= !(directions << Self::SPURIOUS);
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Notes};

    #[test]
    fn a_record_is_a_cache_line() {
        assert_eq!(size_of::<Entry>(), 64);
    }

    #[test]
    fn notes_do_not_overlap() {
        let mut notes = Notes::EMPTY;
        notes.drained(0b101, 0b101);
        assert_eq!(notes.note_spurious(0b011), 0);
        notes.observe(0b100, true);
        assert_eq!((notes.presumed(), notes.is_hung_up()), (0b001, true));
        assert_eq!(notes.note_spurious(0b110), 0b010);
        notes.keep(0b110);
        assert_eq!(notes.presumed(), 0);
        assert!(notes.says_nothing_of_short());
        assert_eq!(notes.only_doubted(), Notes::EMPTY);
        notes.clear_spurious(0b010);
        assert_eq!(notes.note_spurious(0b111), 0b100);
    }
}
