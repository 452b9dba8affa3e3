//! What is remembered about a descriptor, and on whose word.

/// Which object a descriptor number stood for when somebody used it.
///
/// The kernel gives numbers out again, so memory is only trusted if the object that asks is the one it was about. Callers
/// that have objects for descriptors number them and never use a number twice.
///
/// ```
/// use reactor::{Identity, Source};
///
/// let ours = Identity(7); // The number of an object of the caller's.
/// assert_ne!(ours, Identity::UNKNOWN);
/// // Sources number themselves, out of the way of everybody else's numbers.
/// let source = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// assert!(source.identity().0 > u64::MAX / 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub u64);

impl Identity {
    /// Nobody in particular, a fresh object each time: nothing remembered is trusted, and every wait asks the kernel.
    pub const UNKNOWN: Self = Self(0);
}

/// What is known about one direction of a descriptor.
///
/// ```
/// use reactor::{Attempt, Interest, Knowledge, Reactor, Source, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let socket = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// assert_eq!(socket.known(&reactor).readable, Knowledge::Unknown);
/// _ = socket.wait(&mut reactor, Interest::READABLE, Token::new(0, 0))?;
/// socket.attempted(&mut reactor, Interest::READABLE, Attempt::WouldBlock);
/// assert_eq!(socket.known(&reactor).readable, Knowledge::Drained);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Knowledge {
    /// Nothing: only the system call itself can tell.
    #[default]
    Unknown,
    /// The kernel said "ready", and no attempt has found the contrary since.
    Ready,
    /// The last attempt found nothing left, and the kernel has said nothing since: an attempt would fail with `EAGAIN`.
    Drained,
}

/// What is known about a descriptor.
///
/// ```
/// use reactor::{Attempt, Interest, Knowledge, Reactor, Source, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let socket = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// assert_eq!(socket.known(&reactor).readable, Knowledge::Unknown);
/// _ = socket.wait(&mut reactor, Interest::READABLE, Token::new(0, 0))?;
/// socket.attempted(&mut reactor, Interest::READABLE, Attempt::WouldBlock);
/// assert_eq!(socket.known(&reactor).readable, Knowledge::Drained);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Known {
    /// About reading.
    pub readable: Knowledge,
    /// About writing.
    pub writable: Knowledge,
    /// The kernel has reported a closed reading half, a hang-up or an error since the descriptor was registered.
    pub hung_up: bool,
}

/// What a system call of the caller's own has just seen.
///
/// ```
/// use reactor::{Attempt, Interest, Knowledge, Reactor, Source, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let socket = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// assert_eq!(socket.known(&reactor).readable, Knowledge::Unknown);
/// _ = socket.wait(&mut reactor, Interest::READABLE, Token::new(0, 0))?;
/// socket.attempted(&mut reactor, Interest::READABLE, Attempt::WouldBlock);
/// assert_eq!(socket.known(&reactor).readable, Knowledge::Drained);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// It failed with `EAGAIN`: the direction is drained.
    WouldBlock,
    /// It moved fewer bytes than it could have. On a stream that means drained, as long as no hang-up was seen: behind
    /// the last bytes of a closed stream waits its end, and no further event announces it.
    ///
    /// To be reported for streams only (TCP, Unix stream sockets, pipes): a datagram is always short.
    Short,
    /// It moved all it could: there may be more.
    Complete,
}
