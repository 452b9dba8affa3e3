//! What is cached of a descriptor, and for which owner.

/// The number of the object that owns a descriptor.
///
/// The kernel reuses descriptor numbers. Cached readiness is therefore used only if the owner that asks is the owner that it
/// was cached for. A caller numbers its objects from 1 and never uses a number twice.
///
/// ```
/// use reactor::{OwnerId, Source};
///
/// let ours = OwnerId(7);
/// assert_ne!(ours, OwnerId::UNKNOWN);
/// // Sources number themselves in the upper half, 2^63 and above; a caller's own numbers stay below.
/// let source = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// assert!(source.owner_id().0 > u64::MAX / 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnerId(pub u64);

impl OwnerId {
    /// No known owner: cached readiness is not used, and each wait makes a system call.
    pub const UNKNOWN: Self = Self(0);
}

/// What is cached of one direction of a descriptor.
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
    /// Nothing is cached: only a system call can tell.
    #[default]
    Unknown,
    /// The kernel has reported the direction, and no attempt has found it drained since.
    Ready,
    /// The last attempt found the direction drained, and the kernel has not reported it since: an attempt would fail with
    /// `EAGAIN`.
    Drained,
}

/// What is cached of a descriptor.
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
    /// Reading.
    pub readable: CachedReadiness,
    /// Writing.
    pub writable: CachedReadiness,
    /// The kernel has reported a closed reading half, a hang-up or an error since the descriptor was registered.
    pub hung_up: bool,
}

/// The outcome of a non-blocking system call that the caller has made.
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
    /// It moved fewer bytes than it had room for. On a stream this means drained, unless a hang-up was reported: the end of
    /// a closed stream follows its last bytes without a further event.
    ///
    /// For streams only (TCP, Unix stream sockets, pipes). A datagram is short of its buffer without being the last one. Some
    /// streams have boundaries all the same: urgent data, and in the Unix domain passed descriptors and credentials. The bytes
    /// behind the first one are found by [`Selector::rearm`](crate::Selector::rearm), and further short counts of this
    /// registration are ignored.
    Short,
    /// It filled its buffer or wrote all its bytes: there may be more.
    Complete,
}
