//! Wait ids, and the result of starting a wait.

use crate::interest::Interest;

/// Identifies a wait until [`Reactor::end`](crate::Reactor::end); afterwards it refers to no wait.
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
    pub(crate) slot: u32,
    pub(crate) generation: u32,
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
    /// The kernel cannot poll this kind of descriptor (a regular file, a directory), so it is always ready for these
    /// directions.
    Ready(Interest),
    /// An event with the token will follow. End the wait exactly once, with or without its event.
    Pending(WaitId),
}
