//! A descriptor's cached readiness, and the owner it belongs to.

/// Identifies the object that owns a descriptor.
///
/// The kernel reuses descriptor numbers, so cached readiness is used only for the owner it was cached for. Callers
/// number their objects from 1 and never reuse a number.
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
    /// No known owner: the cache is not used, and each wait makes a system call.
    pub const UNKNOWN: Self = Self(0);
}

/// The cached readiness of one direction of a descriptor.
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
    /// The kernel reported the direction, and no attempt has found it drained since.
    Ready,
    /// The last attempt found the direction drained, and the kernel has not reported it since: an attempt would fail
    /// with `EAGAIN`.
    Drained,
}

/// The cached readiness of a descriptor.
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

/// The outcome of a caller's non-blocking system call.
///
/// ```
/// use std::io::ErrorKind;
///
/// use reactor::{Attempt, Interest, Reactor, Source};
///
/// let mut reactor = Reactor::open(None)?;
/// let socket = Source::new(std::net::UdpSocket::bind("127.0.0.1:0")?);
/// socket.get_ref().set_nonblocking(true)?;
/// let received = socket.get_ref().recv(&mut [0; 64]);
/// assert_eq!(received.unwrap_err().kind(), ErrorKind::WouldBlock);
/// // So the next wait asks the kernel only for what comes from now on. `Source::attempt` reports this by itself.
/// socket.attempted(&mut reactor, Interest::READABLE, Attempt::WouldBlock);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attempt {
    /// It failed with `EAGAIN`: the direction is drained.
    WouldBlock,
    /// It moved fewer bytes than asked. On a stream this means drained, unless a hang-up was reported: the end of a
    /// closed stream follows its last bytes without a further event.
    ///
    /// Report this for streams only (TCP, Unix stream sockets, pipes): a datagram shorter than the buffer need not be
    /// the last one. Some streams have boundaries all the same: urgent data and, for Unix sockets, passed descriptors
    /// and credentials. A re-arm after 100 ms finds the bytes behind the first boundary, and further short counts of that
    /// registration are ignored.
    Short,
    /// It filled its buffer or wrote all its bytes: there may be more.
    Complete,
}
