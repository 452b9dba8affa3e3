//! The registration and cached readiness of one descriptor.

use crate::{
    event::Ready,
    interest::Interest,
    registry::readiness::{Attempt, CachedReadiness, DescriptorReadiness, OwnerId},
    token::Token,
};

/// A descriptor's newest registration and its cached readiness. Sets of directions are bits of [`Interest`].
///
/// While nothing is registered, the owner is unknown and all sets are empty.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cache {
    owner: OwnerId,
    /// The generation of the newest registration's token. It increases with each driver call and when the registration
    /// ends, so that events of older registrations are detected.
    generation: u32,
    /// The generation of the descriptor's newest wait.
    wait: u32,
    registered: u8,
    /// Ready and drained directions. No direction is both.
    ready: u8,
    drained: u8,
    /// The directions that count as drained only because of a short count.
    assumed: u8,
    /// Directions reported while no wait asked for them.
    spurious: u8,
    /// The kernel has reported a closed reading half, a hang-up or an error.
    hung_up: bool,
    /// Ignore short counts: the file has message boundaries.
    ignores_short: bool,
}

impl Cache {
    /// The generation of the newest registration's token.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    pub(crate) fn owner(&self) -> OwnerId {
        self.owner
    }

    pub(crate) fn registered(&self) -> Option<Interest> {
        Interest::from_bits(self.registered)
    }

    /// The generation for a new wait.
    #[inline]
    pub(crate) fn next_wait(&mut self) -> u32 {
        self.wait = self.wait.wrapping_add(1);
        self.wait
    }

    /// Whether this is the token of the newest registration.
    pub(crate) fn is_current(&self, token: Token) -> bool {
        self.generation == token.generation()
    }

    /// Whether the cache belongs to this owner. False for the unknown owner.
    pub(crate) fn is_owner(&self, owner: OwnerId) -> bool {
        self.owner == owner && owner != OwnerId::UNKNOWN
    }

    /// Whether all these directions are drained.
    ///
    /// The unknown owner has no drained directions, so comparing the owners is enough.
    #[inline]
    pub(crate) fn is_drained(&self, owner: OwnerId, interest: Interest) -> bool {
        self.owner == owner && interest.bits() & !self.drained == 0
    }

    /// A new registration: nothing is cached yet.
    pub(crate) fn begin(&mut self, owner: OwnerId, token: Token, interest: Interest) {
        *self = Self {
            owner,
            generation: token.generation(),
            wait: self.wait,
            registered: interest.bits(),
            ..Self::default()
        };
    }

    /// Hands the registration to another owner of the same file. It stays known whether the file has message
    /// boundaries.
    pub(crate) fn change_owner(&mut self, owner: OwnerId) {
        *self = Self {
            owner,
            generation: self.generation,
            wait: self.wait,
            registered: self.registered,
            ignores_short: self.ignores_short,
            ..Self::default()
        };
    }

    /// Changes token and interest of the registration. Directions no longer registered lose their cached readiness.
    pub(crate) fn adjust(&mut self, token: Token, interest: Interest) {
        self.generation = token.generation();
        self.registered = interest.bits();
        self.ready &= self.registered;
        self.drained &= self.registered;
        self.assumed &= self.registered;
        self.spurious &= self.registered;
    }

    /// Nothing is registered any more. No event has the new generation.
    pub(crate) fn clear(&mut self) {
        *self = Self {
            generation: self.generation.wrapping_add(1),
            wait: self.wait,
            ..Self::default()
        };
    }

    /// Applies an event that the kernel reported.
    pub(crate) fn observe(&mut self, ready: Ready) {
        let answered = ready.directions();
        self.ready |= answered & self.registered;
        self.drained &= !answered;
        self.assumed &= !answered;
        self.hung_up |= ready.is_hung_up();
    }

    /// Applies the outcome of a system call by the owner.
    #[inline]
    pub(crate) fn attempted(&mut self, interest: Interest, attempt: Attempt) {
        let bits = interest.bits() & self.registered;
        self.spurious &= !bits;
        let assumed = match attempt {
            Attempt::Complete => return,
            Attempt::Short if self.hung_up | self.ignores_short => return,
            Attempt::Short => bits,
            Attempt::WouldBlock => 0,
        };
        self.drained |= bits;
        self.ready &= !bits;
        self.assumed = self.assumed & !bits | assumed;
    }

    /// Whether a direction is drained only because of a short count.
    pub(crate) fn is_assumed(&self) -> bool {
        self.assumed != 0
    }

    /// Applies the events of the poll after a re-arm. If the poll found a direction ready that was assumed drained,
    /// short counts are ignored from now on.
    pub(crate) fn observe_rearm(&mut self, ready: Ready) {
        self.ignores_short |= ready.reported() & self.assumed != 0;
    }

    /// Those of the registered directions that an event reports.
    pub(crate) fn reported(&self, ready: Ready) -> u8 {
        ready.reported() & self.registered
    }

    /// Notes these directions as spurious. Returns those noted before.
    pub(crate) fn note_spurious(&mut self, directions: u8) -> u8 {
        let again = self.spurious & directions;
        self.spurious |= directions;
        again
    }

    pub(crate) fn clear_spurious(&mut self, interest: Interest) {
        self.spurious &= !interest.bits();
    }

    pub(crate) fn readiness(&self) -> DescriptorReadiness {
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
