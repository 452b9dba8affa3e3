//! Waits for urgent data of files that the kernel does not poll. A file can always be read and written, but it has no urgent
//! data, so no event of the kernel ends such a wait.

use reactor::{Interest, Token};

/// The descriptor of each wait, and the wait's token.
#[derive(Debug, Default)]
pub struct UnpolledWaits(Vec<(i32, Token)>);

impl UnpolledWaits {
    /// Whether a descriptor that the kernel does not poll is never ready for this.
    pub fn is_endless(interest: Interest) -> bool {
        interest == Interest::PRIORITY
    }

    /// The events for which a descriptor that the kernel does not poll is ready.
    pub fn ready(interest: Interest) -> Interest {
        interest.without(Interest::PRIORITY).unwrap_or(interest)
    }

    pub fn insert(&mut self, descriptor: i32, token: Token) {
        self.0.push((descriptor, token));
    }

    /// Ends every wait with this token.
    pub fn remove(&mut self, token: Token) {
        self.0.retain(|(_, other)| *other != token);
    }

    /// The tokens of the waits for a descriptor.
    pub fn tokens(&self, descriptor: i32) -> impl Iterator<Item = Token> {
        let of_it = move |(other, token): &(i32, Token)| (*other == descriptor).then_some(*token);
        self.0.iter().filter_map(of_it)
    }
}
