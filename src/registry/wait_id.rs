//! Wait ids, and the result of starting a wait.

use crate::interest::Interest;

/// Identifies a wait until its event is reported or it is ended before; afterwards it refers to no wait. Converts to an integer and
/// back, for callers in another language; a made-up one may name any wait, or none.
///
/// ```
/// use reactor::{Interest, Reactor, Source, Token, Wait};
///
/// let mut reactor = Reactor::open(None)?;
/// let socket = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// match socket.wait(&mut reactor, Interest::READABLE, Token::new(0, 0))? {
///     Wait::Ready(interest) => println!("a file: ready for {interest:?}"),
///     Wait::Pending(wait) => assert!(reactor.end(wait), "it was not answered"),
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl From<WaitId> for u64 {
    fn from(wait: WaitId) -> Self {
        Self::from(wait.generation) << 32 | Self::from(wait.slot)
    }
}

impl From<u64> for WaitId {
    fn from(number: u64) -> Self {
        let (slot, generation) = (number as u32, (number >> 32) as u32);
        Self { slot, generation }
    }
}

/// The result of starting a wait.
///
/// ```
/// use reactor::{Interest, Reactor, Source, Token, Wait};
///
/// let mut reactor = Reactor::open(None)?;
/// let socket = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// match socket.wait(&mut reactor, Interest::READABLE, Token::new(0, 0))? {
///     Wait::Ready(interest) => println!("a file: ready for {interest:?}"),
///     Wait::Pending(wait) => assert!(reactor.end(wait), "it was not answered"),
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a descriptor that is always ready gets no event"]
pub enum Wait {
    /// The kernel cannot poll this kind of descriptor (a regular file, a directory), so it is always ready for these
    /// directions.
    Ready(Interest),
    /// One event with the token will follow, unless [`Reactor::end`](crate::Reactor::end) ends it before.
    Pending(WaitId),
}
