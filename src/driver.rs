//! The port through which the kernel is spoken to, and the contract every driver owes.

pub(crate) mod mio;
#[cfg(any(test, feature = "mock"))]
pub mod mock;
pub(crate) mod uring;

use std::{error::Error, fmt, io, sync::Arc, time::Duration};

use crate::{
    descriptor::Descriptor,
    event::Events,
    interest::Interest,
    operation::{Operation, OperationId},
    token::Token,
};

/// Why a backend cannot be had here.
///
/// ```
/// use reactor::Backend;
///
/// let foreign = if cfg!(windows) { Backend::Kqueue } else { Backend::Iocp };
/// let reason = foreign.availability().unwrap_err();
/// assert!(reason.to_string().starts_with("needs "));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable {
    pub(crate) reason: &'static str,
    pub(crate) error: Option<i32>,
}

impl Unavailable {
    /// It is not there, for this reason.
    pub(crate) const fn because(reason: &'static str) -> Self {
        Self {
            reason,
            error: None,
        }
    }

    /// What the kernel answered; None if it was not asked.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.error
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.reason)?;
        match self.error {
            Some(error) => write!(formatter, ": {}", io::Error::from_raw_os_error(error)),
            None => Ok(()),
        }
    }
}

impl Error for Unavailable {}

impl From<Unavailable> for io::Error {
    fn from(unavailable: Unavailable) -> Self {
        match unavailable.error {
            Some(error) => Self::from_raw_os_error(error),
            None => Self::new(io::ErrorKind::Unsupported, unavailable.reason),
        }
    }
}

/// What became of [`Driver::register`].
///
/// ```
/// use reactor::{AsDescriptor, Backend, Interest, Registration, Token};
///
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let (_, mut driver) = Backend::open(None)?;
/// let token = Token::new(0, 0);
/// let armed = driver.register(listener.as_descriptor(), token, Interest::READABLE)?;
/// assert_eq!(armed, Registration::Armed);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The descriptor is registered.
    Armed,
    /// The kernel does not poll this kind of descriptor (`EPERM` of epoll_ctl(2): a regular file, a directory): it is
    /// always ready, and nothing is registered.
    Unpollable,
}

/// What became of [`Driver::reregister`].
///
/// ```
/// use reactor::{AsDescriptor, Backend, Interest, Reregistration, Token};
///
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let (_, mut driver) = Backend::open(None)?;
/// driver.register(listener.as_descriptor(), Token::new(0, 0), Interest::READABLE)?;
/// let reregistration = driver.reregister(listener.as_descriptor(), Token::new(0, 1), Interest::READABLE)?;
/// assert_eq!(reregistration, Reregistration::Kept);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reregistration {
    /// The registration was there and has been changed.
    Kept,
    /// The kernel had forgotten it (the descriptor was closed or replaced meanwhile), so it was added afresh. Nothing
    /// that was known about the old file says anything about the new one.
    Renewed,
    /// The number now belongs to something the kernel does not poll; nothing is registered any more.
    Unpollable,
}

/// Ends a poll from another thread, or from a signal handler.
///
/// ```
/// use reactor::{Backend, Events};
///
/// let (_, mut driver) = Backend::open(None)?;
/// let waker = driver.waker();
/// let thread = std::thread::spawn(move || waker.wake());
/// let mut events = Events::new();
/// driver.poll(&mut events, None)?; // For ever, if nobody woke it.
/// assert!(events.is_empty());
/// thread.join().expect("no panic")?;
/// # std::io::Result::Ok(())
/// ```
pub trait Wake: Send + Sync {
    /// Ends the current poll, or the next one if there is none.
    ///
    /// On Unix this is async-signal-safe (signal-safety(7)): one write(2) or kevent(2), no lock, no allocation.
    ///
    /// # Errors
    ///
    /// Those of the system call; none is known to occur as long as the driver lives.
    fn wake(&self) -> io::Result<()>;
}

/// A kernel interface that reports readiness: epoll(7), kqueue(2), IOCP.
///
/// # The contract
///
/// - **Edges.** An event is reported at least once after every change from not ready to ready, and once more after every
///   `register` and `reregister` if the descriptor is ready at that moment. It may be reported more often than that; no
///   caller may rely on silence.
/// - **Nothing is invented.** Events carry tokens that were registered, the newest of each descriptor. An event for a
///   token that has been deregistered or replaced may still come (a duplicate of a closed descriptor keeps the old
///   registration alive); the token's generation tells.
/// - **One registration per descriptor.** `register` replaces what is there. Errors that only mean "the kernel and the
///   caller disagree about what is registered" are healed inside.
/// - **Wakes.** A wake ends the current or the next poll. [`Token::WAKE`] is never shown to the caller.
/// - **Bounds.** One poll returns at most 1024 events; the rest comes with the next.
/// - **Nothing is kept open.** A registration ends by itself when its file is closed, and never keeps it open.
/// - **Closed descriptors.** That a descriptor was closed elsewhere never makes `poll` fail.
///
/// A driver is used by one thread at a time; only what [`Driver::waker`] returned may be used by others.
///
/// ```
/// use std::{net::UdpSocket, time::Duration};
///
/// use reactor::{AsDescriptor, Backend, Events, Interest, Token};
///
/// let (_, mut driver) = Backend::open(None)?;
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// driver.register(socket.as_descriptor(), Token::new(3, 1), Interest::WRITABLE)?;
/// let mut events = Events::new();
/// driver.poll(&mut events, Some(Duration::from_secs(1)))?;
/// assert_eq!(events[0].token, Token::new(3, 1));
/// driver.deregister(socket.as_descriptor())?;
/// # std::io::Result::Ok(())
/// ```
pub trait Driver: Send {
    /// Starts to report `interest` of the descriptor under `token`.
    ///
    /// If it is registered already (`EEXIST`), that registration is changed instead.
    ///
    /// # Errors
    ///
    /// `EBADF` if the descriptor is not open, `ENOSPC` at the user's limit of watches, `ENOMEM`; see epoll_ctl(2) and
    /// kevent(2). [`io::ErrorKind::Unsupported`] for [`Interest::PRIORITY`] where the platform has none. After an error
    /// nothing is registered.
    fn register(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registration>;

    /// Replaces interest and token of a registered descriptor, and reports it once more if it is ready now.
    ///
    /// If the kernel has forgotten the registration (`ENOENT`), it is added afresh.
    ///
    /// # Errors
    ///
    /// Those of [`Driver::register`]. After an error nothing is registered.
    fn reregister(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Reregistration>;

    /// Ends the reports about a descriptor.
    ///
    /// # Errors
    ///
    /// That there was nothing to end (`ENOENT`, `EBADF`) is none.
    fn deregister(&mut self, descriptor: Descriptor) -> io::Result<()>;

    /// Replaces the contents of `events` by what has happened, and waits for it at most `timeout`: None waits for ever,
    /// zero does not wait. The timeout is rounded up to what the platform can count (a millisecond with epoll).
    ///
    /// A signal (`EINTR`) is an empty turn: Ok and no event.
    ///
    /// # Errors
    ///
    /// Those of epoll_wait(2) or kevent(2); none is known to occur as long as the driver lives.
    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()>;

    /// What other threads end a poll with. All wakers of one driver are equal.
    fn waker(&self) -> Arc<dyn Wake>;

    /// The driver's own descriptor, readable as long as a poll without waiting would return something, so that a thread
    /// can sleep in ppoll(2) without borrowing the driver. None where the platform has none (Windows, and poll(2)).
    fn descriptor(&self) -> Option<Descriptor>;

    /// What the driver can carry out by itself; None if it knows readiness only.
    fn operations(&mut self) -> Option<&mut dyn Operations> {
        None
    }
}

/// Operations that a driver carries out by itself: io_uring(7).
///
/// # The contract
///
/// - **One event.** Each operation that was started and not given up is reported once, by [`Driver::poll`], under the
///   token it was started with and as [`Ready::COMPLETED`](crate::Ready::COMPLETED); not if its outcome was taken before.
/// - **In order.** Operations reach the kernel in the order in which they were started, all of them at the latest with
///   the next poll.
/// - **Two owners.** The memory of an operation belongs to whoever started it and to the kernel; it is used again only
///   when both have let go. So giving one up, and dropping the driver, is safe at any moment.
///
/// ```
/// use std::{io::Write, net::{TcpListener, TcpStream}};
///
/// use reactor::{AsDescriptor, Events, Operation, Reactor, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut theirs = TcpStream::connect(listener.local_addr()?)?;
/// let (ours, _) = listener.accept()?;
/// theirs.write_all(b"hello")?;
/// # while reactor::poll_now(ours.as_descriptor(), reactor::Interest::READABLE)?.is_none() {}
///
/// // Only some drivers carry anything out: io_uring does.
/// if let Some(operations) = reactor.operations() {
///     let receive = Operation::Receive(64);
///     let id = operations.start(ours.as_descriptor(), receive, Token::new(1, 0))?;
///     let mut events = Events::new();
///     while events.is_empty() {
///         reactor.turn(&mut events, None)?;
///     }
///     let mut buffer = [0; 64];
///     let count = reactor.operations().and_then(|operations| operations.take(id, &mut buffer));
///     assert_eq!(count.transpose()?, Some(5));
/// }
/// # std::io::Result::Ok(())
/// ```
pub trait Operations {
    /// Does the kernel know this operation?
    fn knows(&self, operation: &Operation<'_>) -> bool;

    /// Queues an operation. No system call.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if the kernel does not know it, [`io::ErrorKind::WouldBlock`] if there are so many
    /// already that one should rather be made directly.
    fn start(
        &mut self,
        descriptor: Descriptor,
        operation: Operation<'_>,
        token: Token,
    ) -> io::Result<OperationId>;

    /// How many operations are queued and not yet with the kernel.
    fn queued(&self) -> usize;

    /// Hands all that is queued to the kernel, without waiting for anything.
    ///
    /// What the kernel does not take now (`EAGAIN`, `EBUSY`) stays queued.
    ///
    /// # Errors
    ///
    /// Those of io_uring_enter(2); none is known to occur as long as the driver lives.
    fn submit(&mut self) -> io::Result<()>;

    /// Takes the outcome of an operation and ends it: how many bytes were transferred. What was read is copied to the
    /// beginning of `into`, as far as there is room.
    ///
    /// None, and the operation goes on, if there is no outcome yet. `EINVAL` if there is no such operation.
    fn take(&mut self, id: OperationId, into: &mut [u8]) -> Option<io::Result<usize>>;

    /// Is there an outcome to be taken?
    fn is_complete(&self, id: OperationId) -> bool;

    /// Has the operation reported under another token, unless that has happened already.
    fn redirect(&mut self, id: OperationId, token: Token);

    /// Takes an operation back that has not been handed to the kernel. False if it is too late.
    fn withdraw(&mut self, id: OperationId) -> bool;

    /// Blocks until there is an outcome.
    ///
    /// # Errors
    ///
    /// Those of io_uring_enter(2); none is known to occur as long as the driver lives.
    fn wait(&mut self, id: OperationId) -> io::Result<()>;

    /// Gives an operation up: it is taken back, or cancelled, or its outcome is dropped.
    fn abandon(&mut self, id: OperationId);
}
