//! The record of one descriptor: its registration, its cached readiness, and the list of its waits.

use crate::{
    descriptor::Descriptor,
    event::Ready,
    interest::Interest,
    registry::{
        readiness::{Attempt, CachedReadiness, DescriptorReadiness, OwnerId},
        waiters::WaitList,
    },
    token::Token,
};

/// What is remembered about one descriptor.
///
/// While nothing is registered, the owner is unknown, all masks are empty, and there is no wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The token of the newest registration. Its generation goes up with each call to the driver, so that events of older
    /// registrations are recognised.
    token: Token,
    owner: OwnerId,
    descriptor: Descriptor,
    registered: Option<Interest>,
    /// The cached readiness, as bits of [`Interest`]: ready directions and drained ones. No direction is both.
    ready: u8,
    drained: u8,
    /// Directions that are drained only because of a short count.
    presumed: u8,
    /// A short count says nothing about this descriptor.
    doubted: bool,
    /// Directions that were reported while no wait asked for them.
    spurious: u8,
    hung_up: bool,
    /// The unanswered waits.
    wait_list: WaitList,
}

impl Entry {
    pub(super) const EMPTY: Self = Self {
        token: Token::new(0, 0),
        owner: OwnerId::UNKNOWN,
        descriptor: 0,
        registered: None,
        ready: 0,
        drained: 0,
        presumed: 0,
        doubted: false,
        spurious: 0,
        hung_up: false,
        wait_list: WaitList::EMPTY,
    };

    pub(super) fn token(&self) -> Token {
        self.token
    }

    pub(super) fn owner(&self) -> OwnerId {
        self.owner
    }

    pub(super) fn descriptor(&self) -> Descriptor {
        self.descriptor
    }

    pub(super) fn registered(&self) -> Option<Interest> {
        self.registered
    }

    pub(super) fn wait_list(&self) -> WaitList {
        self.wait_list
    }

    pub(super) fn wait_list_mut(&mut self) -> &mut WaitList {
        &mut self.wait_list
    }

    /// Is this the token of the newest registration?
    pub(super) fn is_current(&self, token: Token) -> bool {
        self.token == token && self.registered.is_some()
    }

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

    /// A new registration of the same file by another owner: only whether short counts say nothing is kept.
    pub(super) fn change_owner(&mut self, owner: OwnerId, interest: Interest) {
        let doubted = self.doubted;
        self.begin(self.descriptor, owner, self.token, interest);
        self.doubted = doubted;
    }

    /// The same registration under a newer token and with this interest. Directions that are no longer registered lose what
    /// was cached of them.
    pub(super) fn adjust(&mut self, token: Token, interest: Interest) {
        self.token = token;
        self.registered = Some(interest);
        self.ready &= interest.bits();
        self.drained &= interest.bits();
        self.presumed &= interest.bits();
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

    /// The kernel has reported an event.
    pub(super) fn observe(&mut self, ready: Ready) {
        let answered = ready.directions();
        self.ready |= answered & self.registered_bits();
        self.drained &= !answered;
        self.presumed &= !answered;
        self.hung_up |= ready.is_hung_up();
    }

    /// The owner has made a system call with this outcome.
    pub(super) fn attempted(&mut self, interest: Interest, attempt: Attempt) {
        let drained = match attempt {
            Attempt::WouldBlock => true,
            Attempt::Short => !self.hung_up && !self.doubted,
            Attempt::Complete => false,
        };
        self.clear_spurious(interest);
        if drained {
            let bits = interest.bits() & self.registered_bits();
            self.drained |= bits;
            self.ready &= !bits;
            match attempt {
                Attempt::Short => self.presumed |= bits,
                _ => self.presumed &= !bits,
            }
        }
    }

    /// Is a direction drained only because of a short count?
    pub(super) fn is_presumed(&self) -> bool {
        self.presumed != 0
    }

    /// A look has reported these directions. If one of them was presumed drained, short counts say nothing from now on.
    pub(super) fn looked(&mut self, ready: Ready) {
        self.doubted |= ready.reported() & self.presumed != 0;
    }

    /// Notes these directions as spurious. Returns those that were noted before.
    pub(super) fn note_spurious(&mut self, directions: u8) -> u8 {
        let again = self.spurious & directions;
        self.spurious |= directions;
        again
    }

    pub(super) fn clear_spurious(&mut self, interest: Interest) {
        self.spurious &= !interest.bits();
    }

    /// The bits of the registered directions.
    pub(super) fn registered_bits(&self) -> u8 {
        self.registered.map_or(0, Interest::bits)
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

#[cfg(test)]
mod tests {
    use super::Entry;

    #[test]
    fn a_record_fits_into_48_bytes() {
        assert!(size_of::<Entry>() <= 48);
    }
}
