//! Events and their readiness.

use std::{
    fmt,
    ops::{BitOr, BitOrAssign},
};

use crate::{interest::Interest, token::Token};

/// Why an event was reported: the directions a descriptor is ready for, or the source inside the reactor.
///
/// ```
/// use reactor::{Interest, Ready};
///
/// // A hang-up answers a wait for reading or writing.
/// let ready = Ready::READABLE | Ready::HANGUP;
/// assert_eq!(ready.answers(Interest::WRITABLE), Some(Interest::WRITABLE));
/// assert_eq!(Ready::READABLE.answers(Interest::WRITABLE), None);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ready(u16);

impl Ready {
    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// Reading will not block.
    pub const READABLE: Self = Self(1);
    /// Urgent data has arrived.
    pub const PRIORITY: Self = Self(2);
    /// Writing will not block.
    pub const WRITABLE: Self = Self(4);
    /// The peer has shut down its writing half (`EPOLLRDHUP`, `EV_EOF` from a read filter). Reads still return the
    /// unread bytes, and then the end of the stream. Answers only waits for reading.
    pub const READ_CLOSED: Self = Self(8);
    /// Both halves are closed (`EPOLLHUP`). Answers waits for any direction.
    pub const HANGUP: Self = Self(16);
    /// The descriptor has a pending error (`EPOLLERR`), or was closed while a wait was unanswered. Answers waits for
    /// any direction: the caller's next system call returns the error.
    pub const ERROR: Self = Self(32);
    /// A timer has elapsed.
    pub const ELAPSED: Self = Self(64);
    /// Another thread has notified the token through a [`Handle`](crate::Handle).
    pub const NOTIFIED: Self = Self(128);
    /// An operation of the driver has an outcome (feature `unstable`).
    pub const COMPLETED: Self = Self(256);

    const NAMES: [(Self, &'static str); 9] = [
        (Self::READABLE, "READABLE"),
        (Self::PRIORITY, "PRIORITY"),
        (Self::WRITABLE, "WRITABLE"),
        (Self::READ_CLOSED, "READ_CLOSED"),
        (Self::HANGUP, "HANGUP"),
        (Self::ERROR, "ERROR"),
        (Self::ELAPSED, "ELAPSED"),
        (Self::NOTIFIED, "NOTIFIED"),
        (Self::COMPLETED, "COMPLETED"),
    ];

    /// The bits of the set.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The set with these bits.
    pub(crate) const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Whether the set contains all of `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the set contains any of `other`.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The set without the members of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The directions in `asked` that this readiness answers; None if it answers none.
    ///
    /// A hang-up or an error answers reading and writing, a closed reading half answers reading. A hang-up or an error
    /// also ends a wait for urgent data, but without an answer: there is none.
    pub const fn answers(self, asked: Interest) -> Option<Interest> {
        let implied = self.directions() & !Interest::PRIORITY.bits();
        Interest::from_bits((implied | self.reported()) & asked.bits())
    }

    /// The bits of all directions whose waits this readiness ends.
    pub(crate) const fn directions(self) -> u8 {
        if self.intersects(Self(Self::HANGUP.0 | Self::ERROR.0)) {
            return 0b111;
        }
        // Shifts READ_CLOSED onto READABLE.
        self.reported() | ((self.0 & Self::READ_CLOSED.0) >> 3) as u8
    }

    /// The bits of the directions that the kernel reported, without those implied by a hang-up or an error.
    pub(crate) const fn reported(self) -> u8 {
        (self.0 & 0b111) as u8
    }

    /// Whether this reports nothing but readability and writability.
    pub(crate) const fn is_plain(self) -> bool {
        self.without(Self(Self::READABLE.0 | Self::WRITABLE.0))
            .is_empty()
    }

    /// Whether this reports a closed reading half, a hang-up or an error.
    pub(crate) const fn is_hung_up(self) -> bool {
        self.intersects(Self(Self::READ_CLOSED.0 | Self::HANGUP.0 | Self::ERROR.0))
    }
}

impl From<Interest> for Ready {
    /// Ready for exactly these directions.
    fn from(interest: Interest) -> Self {
        Self(interest.bits() as u16)
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
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return formatter.write_str("EMPTY");
        }
        let mut separator = "";
        for (bit, name) in Self::NAMES {
            if self.contains(bit) {
                write!(formatter, "{separator}{name}")?;
                separator = " | ";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ready::from(*self).fmt(formatter)
    }
}

/// One event.
///
/// ```
/// use reactor::{Event, Ready, Token};
///
/// let event = Event { token: Token::new(1, 0), ready: Ready::ELAPSED };
/// assert!(event.ready.contains(Ready::ELAPSED));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token with which the wait, timer, operation or notification was started.
    pub token: Token,
    /// Why the event was reported. It may have directions for which the wait did not ask; see [`Ready::answers`].
    pub ready: Ready,
}

/// A buffer of events. Reuse it each turn: it then allocates only when a turn has more events than any before.
pub type Events = Vec<Event>;

#[cfg(test)]
mod tests {
    use super::Ready;
    use crate::interest::Interest;

    const BOTH: Option<Interest> = Interest::from_bits(5);

    #[test]
    fn a_direction_answers_itself() {
        let asked = Interest::READABLE | Interest::WRITABLE;
        assert_eq!(Ready::WRITABLE.answers(asked), Some(Interest::WRITABLE));
        assert_eq!(Ready::WRITABLE.answers(Interest::READABLE), None);
        assert_eq!(Ready::PRIORITY.answers(asked), None);
    }

    #[test]
    fn hangup_and_error_answer_everything_asked_except_urgent_data() {
        let asked = Interest::READABLE | Interest::WRITABLE;
        assert_eq!(Ready::HANGUP.answers(asked), BOTH);
        assert_eq!(Ready::ERROR.answers(asked), BOTH);
        let asked = Interest::PRIORITY;
        assert_eq!(
            Ready::ERROR.answers(asked | Interest::WRITABLE),
            Some(Interest::WRITABLE)
        );
        assert_eq!(Ready::ERROR.answers(asked), None);
        assert_eq!((Ready::ERROR | Ready::PRIORITY).answers(asked), Some(asked));
    }

    #[test]
    fn a_closed_reading_half_answers_reading_only() {
        let asked = Interest::READABLE | Interest::WRITABLE;
        let answered = Ready::READ_CLOSED.answers(asked);
        assert_eq!(answered, Some(Interest::READABLE));
        assert_eq!(Ready::READ_CLOSED.answers(Interest::WRITABLE), None);
    }

    #[test]
    fn timers_and_notifications_answer_no_direction() {
        let own = Ready::ELAPSED | Ready::NOTIFIED;
        assert_eq!(own.answers(Interest::READABLE), None);
        assert_eq!(format!("{own:?}"), "ELAPSED | NOTIFIED");
        assert_eq!(format!("{:?}", Ready::EMPTY), "EMPTY");
    }
}
