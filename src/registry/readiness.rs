//! What is remembered about a descriptor, and on whose word.

/// Which object a descriptor number stood for when somebody used it.
///
/// The kernel gives numbers out again, so memory is only trusted if the object that asks is the one it was about. Callers
/// that have objects for descriptors number them and never use a number twice.
///
/// ```
/// use reactor::{OwnerId, Source};
///
/// let ours = OwnerId(7); // The number of an object of the caller's.
/// assert_ne!(ours, OwnerId::UNKNOWN);
/// // Sources number themselves, out of the way of everybody else's numbers.
/// let source = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// assert!(source.owner_id().0 > u64::MAX / 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnerId(pub u64);

impl OwnerId {
    /// Nobody in particular, a fresh object each time: nothing remembered is trusted, and every wait asks the kernel.
    pub const UNKNOWN: Self = Self(0);
}

/// What is known about one direction of a descriptor.
///
/// ```
/// use reactor::{Attempt, Interest, CachedReadiness, Reactor, Source, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let socket = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// assert_eq!(socket.cached_readiness(&reactor).readable, CachedReadiness::Unknown);
/// _ = socket.wait(&mut reactor, Interest::READABLE, Token::new(0, 0))?;
/// socket.attempted(&mut reactor, Interest::READABLE, Attempt::WouldBlock);
/// assert_eq!(socket.cached_readiness(&reactor).readable, CachedReadiness::Drained);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CachedReadiness {
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
/// use reactor::{Attempt, Interest, CachedReadiness, Reactor, Source, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let socket = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// assert_eq!(socket.cached_readiness(&reactor).readable, CachedReadiness::Unknown);
/// _ = socket.wait(&mut reactor, Interest::READABLE, Token::new(0, 0))?;
/// socket.attempted(&mut reactor, Interest::READABLE, Attempt::WouldBlock);
/// assert_eq!(socket.cached_readiness(&reactor).readable, CachedReadiness::Drained);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DescriptorReadiness {
    /// About reading.
    pub readable: CachedReadiness,
    /// About writing.
    pub writable: CachedReadiness,
    /// The kernel has reported a closed reading half, a hang-up or an error since the descriptor was registered.
    pub hung_up: bool,
}

/// What a system call of the caller's own has just seen.
///
/// ```
/// use reactor::{Attempt, Interest, CachedReadiness, Reactor, Source, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let socket = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// assert_eq!(socket.cached_readiness(&reactor).readable, CachedReadiness::Unknown);
/// _ = socket.wait(&mut reactor, Interest::READABLE, Token::new(0, 0))?;
/// socket.attempted(&mut reactor, Interest::READABLE, Attempt::WouldBlock);
/// assert_eq!(socket.cached_readiness(&reactor).readable, CachedReadiness::Drained);
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
