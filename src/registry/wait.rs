//! The number of a wait, and the result of starting one.

use crate::interest::Interest;

/// The number of one wait, valid until [`Selector::end`](crate::Selector::end). Afterwards it refers to no wait.
///
/// ```
/// use reactor::{Interest, Reactor, Ready, Source, Token, Wait};
///
/// let mut reactor = Reactor::open(None)?;
/// let socket = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// match socket.wait(&mut reactor, Interest::READABLE, Token::new(0, 0))? {
///     Wait::Ready(interest) => println!("a file: ready for {interest:?}"),
///     // Given up before it was answered: a wait is ended once in any case.
///     Wait::Pending(wait) => assert_eq!(reactor.end(wait), Ready::EMPTY),
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitId {
    pub(super) node: u32,
    pub(super) generation: u32,
}

impl From<WaitId> for u64 {
    /// The number as one word, for callers in other languages.
    fn from(wait: WaitId) -> Self {
        Self::from(wait.generation) << 32 | Self::from(wait.node)
    }
}

impl From<u64> for WaitId {
    /// The number that the word was made from. Any other word refers to no wait, or to another wait of the caller.
    fn from(word: u64) -> Self {
        Self {
            node: word as u32,
            generation: (word >> 32) as u32,
        }
    }
}

/// The result of starting a wait.
///
/// ```
/// use reactor::{Interest, Reactor, Ready, Source, Token, Wait};
///
/// let mut reactor = Reactor::open(None)?;
/// let socket = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// match socket.wait(&mut reactor, Interest::READABLE, Token::new(0, 0))? {
///     Wait::Ready(interest) => println!("a file: ready for {interest:?}"),
///     // Given up before it was answered: a wait is ended once in any case.
///     Wait::Pending(wait) => assert_eq!(reactor.end(wait), Ready::EMPTY),
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a pending wait has to be ended"]
pub enum Wait {
    /// The kernel does not poll this kind of descriptor (a regular file, a directory): it is always ready for this.
    Ready(Interest),
    /// An event with the token will come. The wait must be ended once, with or without its event.
    Pending(WaitId),
}
