//! What came.

use std::{
    fmt,
    ops::{BitOr, BitOrAssign, Deref},
};

use crate::{interest::Interest, token::Token};

/// A set of things that have become true, possibly none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ready(u8);

impl Ready {
    /// Nothing.
    pub const EMPTY: Self = Self(0);
    /// As [`Interest::READABLE`].
    pub const READABLE: Self = Self(1);
    /// As [`Interest::PRIORITY`].
    pub const PRIORITY: Self = Self(2);
    /// As [`Interest::WRITABLE`].
    pub const WRITABLE: Self = Self(4);
    /// The peer has shut down its writing half (`EPOLLRDHUP`): after what is still in the buffer comes the end.
    /// Answers those who want to read.
    pub const READ_CLOSED: Self = Self(8);
    /// Both halves are closed (`EPOLLHUP`). Answers every direction.
    pub const HANGUP: Self = Self(16);
    /// An error is pending (`EPOLLERR`), or the descriptor is gone. Answers every direction.
    pub const ERROR: Self = Self(32);
    /// A timer is due.
    pub const ELAPSED: Self = Self(64);
    /// Somebody called [`Handle::notify`](crate::Handle::notify).
    pub const NOTIFIED: Self = Self(128);

    /// The bits of the constants above, added up.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether there is nothing in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` is in it.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether anything of `other` is in it.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// What is left when all of `other` is taken away.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Which of the directions asked for are answered. A hang-up and an error answer them all.
    ///
    /// ```
    /// use reactor::{Interest, Ready};
    ///
    /// let both = Interest::READABLE | Interest::WRITABLE;
    /// assert_eq!(Ready::READABLE.answers(both), Some(Interest::READABLE));
    /// assert_eq!(Ready::READ_CLOSED.answers(Interest::WRITABLE), None);
    /// assert_eq!(Ready::HANGUP.answers(both), Some(both));
    /// ```
    pub const fn answers(self, interest: Interest) -> Option<Interest> {
        Interest::from_bits(self.directions() & interest.bits())
    }

    /// Every direction this says anything about, as bits of [`Interest`].
    pub(crate) const fn directions(self) -> u8 {
        if self.intersects(Self(Self::HANGUP.0 | Self::ERROR.0)) {
            return 7;
        }
        let reading = if self.contains(Self::READ_CLOSED) {
            1
        } else {
            0
        };
        self.0 & 7 | reading
    }

    /// Whether it speaks of an end: then a short read does not mean that nothing is left.
    pub(crate) const fn is_final(self) -> bool {
        self.intersects(Self(Self::READ_CLOSED.0 | Self::HANGUP.0 | Self::ERROR.0))
    }
}

impl From<Interest> for Ready {
    fn from(interest: Interest) -> Self {
        Self(interest.bits())
    }
}

impl BitOr for Ready {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Ready {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = [
            "READABLE",
            "PRIORITY",
            "WRITABLE",
            "READ_CLOSED",
            "HANGUP",
            "ERROR",
            "ELAPSED",
            "NOTIFIED",
        ];
        let mut separator = "";
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 & 1 << bit != 0 {
                write!(f, "{separator}{name}")?;
                separator = " | ";
            }
        }
        if separator.is_empty() {
            f.write_str("EMPTY")
        } else {
            Ok(())
        }
    }
}

/// Something happened to whoever has this token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Of the registration (from a driver), or of the wait, timer or notification (from a selector or reactor).
    pub token: Token,
    /// What happened.
    pub ready: Ready,
}

/// A reusable buffer of events.
#[derive(Clone, Debug, Default)]
pub struct Events(Vec<Event>);

impl Events {
    /// Appends one.
    pub fn push(&mut self, event: Event) {
        self.0.push(event);
    }

    /// Empties it and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl Deref for Events {
    type Target = [Event];

    fn deref(&self) -> &[Event] {
        &self.0
    }
}
