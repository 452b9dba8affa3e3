//! The directions of a wait.

use std::{
    num::NonZeroU8,
    ops::{BitOr, BitOrAssign},
};

/// A non-empty set of directions: readable, priority, writable.
///
/// The bits match Ruby's `IO::READABLE`, `IO::PRIORITY` and `IO::WRITABLE`, and `POLLIN`, `POLLPRI` and `POLLOUT` in
/// poll(2). There is no empty set.
///
/// ```
/// use reactor::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert_eq!(both.bits(), 5);
/// assert_eq!(both.without(Interest::READABLE), Some(Interest::WRITABLE));
/// assert_eq!(Interest::from_bits(0), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Interest(NonZeroU8);

impl Interest {
    /// Data can be read, a connection accepted, or the end of the stream has been reached.
    pub const READABLE: Self = Self::single(0);
    /// There is urgent data (TCP out-of-band data, a change to a cgroup or sysfs file): `EPOLLPRI`, see epoll_ctl(2).
    /// Linux only. A file that reports a change to one poll only (`/proc/self/mounts`, a pressure file with a trigger)
    /// loses it: the poll in which a thread sleeps takes it from the one that collects events. Poll it on a thread.
    pub const PRIORITY: Self = Self::single(1);
    /// Data can be written, or a connection attempt has finished: connect(2), `EINPROGRESS`.
    pub const WRITABLE: Self = Self::single(2);

    const ALL: u8 = 0b111;

    const fn single(shift: u8) -> Self {
        match NonZeroU8::new(1 << shift) {
            Some(bit) => Self(bit),
            None => Self(NonZeroU8::MIN),
        }
    }

    /// The set with these bits; None if `bits` is 0 or greater than 7.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL != 0 {
            return None;
        }
        match NonZeroU8::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// The bits of the set: 1 readable, 2 priority, 4 writable.
    pub const fn bits(self) -> u8 {
        self.0.get()
    }

    /// Whether the set contains [`Interest::READABLE`].
    pub const fn is_readable(self) -> bool {
        self.contains(Self::READABLE)
    }

    /// Whether the set contains [`Interest::PRIORITY`].
    pub const fn is_priority(self) -> bool {
        self.contains(Self::PRIORITY)
    }

    /// Whether the set contains [`Interest::WRITABLE`].
    pub const fn is_writable(self) -> bool {
        self.contains(Self::WRITABLE)
    }

    /// Whether the set contains every direction in `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.bits() & other.bits() == other.bits()
    }

    /// The directions not in `other`; None if there are none.
    pub const fn without(self, other: Self) -> Option<Self> {
        Self::from_bits(self.bits() & !other.bits())
    }

    /// The directions in both sets; None if there are none.
    pub const fn intersection(self, other: Self) -> Option<Self> {
        Self::from_bits(self.bits() & other.bits())
    }
}

impl BitOr for Interest {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Interest {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

#[cfg(test)]
mod tests {
    use super::Interest;

    #[test]
    fn bits_are_those_of_ruby_and_poll() {
        assert_eq!(Interest::READABLE.bits(), 1);
        assert_eq!(Interest::PRIORITY.bits(), 2);
        assert_eq!(Interest::WRITABLE.bits(), 4);
    }

    #[test]
    fn only_the_seven_sets_exist() {
        let sets = (0..=u8::MAX).filter_map(Interest::from_bits);
        assert!(sets.map(Interest::bits).eq(1..=7));
    }

    #[test]
    fn algebra() {
        let both = Interest::READABLE | Interest::WRITABLE;
        assert!(both.is_readable() && both.is_writable() && !both.is_priority());
        assert_eq!(both.without(both), None);
        assert_eq!(both.intersection(Interest::PRIORITY), None);
        assert_eq!(
            both.intersection(Interest::READABLE | Interest::PRIORITY),
            Some(Interest::READABLE)
        );
        assert_eq!(format!("{both:?}"), "READABLE | WRITABLE");
    }
}
