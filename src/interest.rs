//! What somebody waits for.

use std::{fmt, num::NonZeroU8, ops::BitOr};

/// A non-empty set of directions. The bits are those of Ruby's `IO::READABLE`, `IO::PRIORITY` and `IO::WRITABLE`, which
/// are those of poll(2).
///
/// ```
/// use reactor::Interest;
///
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert_eq!(both.bits(), 5);
/// assert_eq!(both.without(Interest::READABLE), Some(Interest::WRITABLE));
/// assert_eq!(Interest::from_bits(0), None); // waiting for nothing cannot be expressed
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interest(NonZeroU8);

impl Interest {
    /// Data to read, a connection to accept, or the end of the stream.
    pub const READABLE: Self = Self(NonZeroU8::new(1).unwrap());
    /// Urgent data: the `POLLPRI` of poll(2). Never reported by the kqueue and IOCP ports.
    pub const PRIORITY: Self = Self(NonZeroU8::new(2).unwrap());
    /// Room to write, or a connection that is established or has failed.
    pub const WRITABLE: Self = Self(NonZeroU8::new(4).unwrap());

    const ALL: u8 = 7;

    /// The set with these bits; `None` if it is empty or has a bit beyond 1, 2 and 4.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL != 0 {
            return None;
        }
        match NonZeroU8::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Readable 1, priority 2, writable 4, added up.
    pub const fn bits(self) -> u8 {
        self.0.get()
    }

    /// Whether reading is among the directions.
    pub const fn is_readable(self) -> bool {
        self.bits() & 1 != 0
    }

    /// Whether urgent data is among the directions.
    pub const fn is_priority(self) -> bool {
        self.bits() & 2 != 0
    }

    /// Whether writing is among the directions.
    pub const fn is_writable(self) -> bool {
        self.bits() & 4 != 0
    }

    /// Whether every direction of `other` is in this set.
    pub const fn contains(self, other: Self) -> bool {
        self.bits() & other.bits() == other.bits()
    }

    /// What is left when the directions of `other` are taken away.
    pub const fn without(self, other: Self) -> Option<Self> {
        Self::from_bits(self.bits() & !other.bits())
    }

    /// The directions in both sets.
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

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (self.is_readable(), "READABLE"),
            (self.is_priority(), "PRIORITY"),
            (self.is_writable(), "WRITABLE"),
        ];
        let mut separator = "";
        for (_, name) in names.into_iter().filter(|(set, _)| *set) {
            write!(f, "{separator}{name}")?;
            separator = " | ";
        }
        Ok(())
    }
}
