//! The driver interface, and the contract all drivers keep.

pub(crate) mod mio;
#[cfg(unix)]
pub(crate) mod poll;
pub(crate) mod uring;

use std::{error::Error, fmt, io, sync::Arc, time::Duration};

use crate::{
    descriptor::Descriptor,
    event::Events,
    interest::Interest,
    operation::{Operation, OperationId},
    token::Token,
};

/// The maximum number of events per poll; see the contract of [`Driver`].
pub(crate) const BATCH: usize = 1024;

/// Why a backend is not available.
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
    reason: &'static str,
    error: Option<i32>,
}

impl Unavailable {
    /// Unavailable for this reason, which no system call reported.
    pub(crate) const fn because(reason: &'static str) -> Self {
        Self::new(reason, None)
    }

    /// Unavailable for this reason: a sentence, or the name of the system call that failed with this error number.
    pub(crate) const fn new(reason: &'static str, error: Option<i32>) -> Self {
        Self { reason, error }
    }

    /// Whether the process or the system ran short of descriptors or memory. If so, the backend may become available
    /// later; until then [`Reactor::open`](crate::Reactor::open) fails with this error.
    pub fn is_shortage(&self) -> bool {
        #[cfg(unix)]
        let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
        #[cfg(not(unix))]
        let shortages = [];
        self.error.is_some_and(|error| shortages.contains(&error))
    }

    /// The reason without the error: a sentence, or the name of the system call that failed.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// The error number of the system call that failed; None if none was made.
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

/// The result of [`Driver::register`].
///
/// ```
/// use reactor::{AsDescriptor, Backend, Interest, Registration, Token};
///
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let (_, mut driver) = Backend::open(None)?;
/// let (number, interest) = (listener.as_descriptor(), Interest::READABLE);
/// let first = driver.register(number, Token::new(0, 0), interest, false)?;
/// let again = driver.register(number, Token::new(0, 1), interest, true)?;
/// assert_eq!((first, again), (Registration::New, Registration::Kept));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The kernel had no registration of this file, and has one now. If there was one, the descriptor was closed or
    /// replaced since, and anything cached about the old file is void.
    New,
    /// The kernel had the registration, and changed it.
    Kept,
    /// The kernel cannot poll this kind of descriptor (`EPERM` from epoll_ctl(2): a regular file, a directory). It is
    /// always ready, and nothing is registered.
    Unpollable,
}

/// The part of a driver for other threads and signal handlers: it ends a poll. If the driver has no descriptor, a
/// thread sleeps in the waker. It may outlive the driver.
///
/// ```
/// use reactor::{Backend, Events};
///
/// let (_, mut driver) = Backend::open(None)?;
/// let waker = driver.waker();
/// let thread = std::thread::spawn(move || waker.wake());
/// let mut events = Events::new();
/// driver.poll(&mut events, None)?; // Without the wake it would never return.
/// assert!(events.is_empty());
/// thread.join().expect("no panic")?;
/// # std::io::Result::Ok(())
/// ```
pub trait Wake: Send + Sync {
    /// Ends the current poll, or the next one if no poll is in progress.
    ///
    /// On Unix this is async-signal-safe (signal-safety(7)): one write(2) or kevent(2), no locks, no allocation.
    ///
    /// # Errors
    ///
    /// The errors of the system call; none are known to occur before the driver is dropped.
    fn wake(&self) -> io::Result<()>;

    /// For drivers without a [descriptor](Driver::descriptor): blocks until the next poll would return, for at most
    /// `timeout` (None: no limit). Call [`Driver::prepare_sleep`] first.
    ///
    /// - An event or a wake ends it, even one that arrived before the call. It may also return early for other reasons.
    /// - It consumes nothing: the next poll reports what ended it, and until then further calls return at once.
    /// - The driver may be used meanwhile. New registrations take effect at once; a poll does not wait, and may report
    ///   nothing.
    /// - If several threads block, an event or a wake ends all of their sleeps.
    ///
    /// # Errors
    ///
    /// The errors of [`Driver::poll`]. The default is [`io::ErrorKind::Unsupported`].
    fn block(&self, _timeout: Option<Duration>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A kernel interface that reports readiness: epoll(7), kqueue(2), IOCP, poll(2).
///
/// # The contract
///
/// - **Edges.** An event is reported at least once after each change from not ready to ready, and once more after each
///   `register` if the descriptor is ready then. Events may be repeated: a caller must not rely on silence.
/// - **Registered tokens only.** Events carry the newest token registered for a descriptor. An event for a deregistered
///   or replaced token may still arrive, because a duplicate of a closed descriptor keeps the old registration alive.
///   Callers detect such an event by the token's generation.
/// - **One registration per descriptor.** `register` replaces an existing registration. `EEXIST`, `ENOENT` and `EBADF`
///   caused by a closed or reused descriptor are handled internally.
/// - **Wakes.** A wake ends the current or the next poll. [`Token::WAKE`] is never reported.
/// - **Sleeps.** After [`Driver::prepare_sleep`], a thread sleeps without borrowing the driver, on its descriptor or in
///   [`Wake::block`]. Whatever ends the sleep is left for the next poll.
/// - **Bounds.** One poll returns at most 1024 events. The next poll returns the rest.
/// - **Files are not kept open.** A registration does not keep its file open; closing the file ends it.
/// - **Closed descriptors.** `poll` does not fail because a registered descriptor was closed.
///
/// Only one thread at a time uses a driver. Other threads may use only what [`Driver::waker`] returns.
///
/// ```
/// use std::{net::UdpSocket, time::Duration};
///
/// use reactor::{AsDescriptor, Backend, Events, Interest, Token};
///
/// let (_, mut driver) = Backend::open(None)?;
/// let socket = UdpSocket::bind("127.0.0.1:0")?;
/// driver.register(socket.as_descriptor(), Token::new(3, 1), Interest::WRITABLE, false)?;
/// let mut events = Events::new();
/// driver.poll(&mut events, Some(Duration::from_secs(1)))?;
/// assert_eq!(events[0].token, Token::new(3, 1));
/// driver.deregister(socket.as_descriptor())?;
/// # std::io::Result::Ok(())
/// ```
pub trait Driver: Send {
    /// Reports `interest` in the descriptor under `token` from now on, once more if it is ready now.
    ///
    /// `is_known` tells whether the caller expects that the descriptor is registered. If the kernel finds otherwise
    /// (`EEXIST`, `ENOENT`), that takes a system call more.
    ///
    /// # Errors
    ///
    /// `EBADF` if the descriptor is not open, `ENOSPC` at the user's limit of watches (`max_user_watches`, see
    /// epoll(7)), `ENOMEM`; see epoll_ctl(2) and kevent(2). [`io::ErrorKind::Unsupported`] for [`Interest::PRIORITY`]
    /// with kqueue and IOCP. On error, nothing is registered.
    fn register(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
        is_known: bool,
    ) -> io::Result<Registration>;

    /// Ends the registration of a descriptor.
    ///
    /// # Errors
    ///
    /// The errors of epoll_ctl(2) or kevent(2), except for a descriptor that is not registered (`ENOENT`, `EBADF`,
    /// `EPERM`).
    fn deregister(&mut self, descriptor: Descriptor) -> io::Result<()>;

    /// Called when a descriptor, possibly registered, is about to be closed and has no waits left. The default does
    /// nothing, and that is right where closing ends the registration in the kernel.
    fn note_close(&mut self, _descriptor: Descriptor) {}

    /// Replaces the contents of `events` with new events, waiting at most `timeout` for the first one (None: no limit;
    /// zero: do not wait). The timeout is rounded up to the platform's unit: 1 ms for epoll_wait(2).
    ///
    /// After a signal (`EINTR`) it returns Ok without events. If the kernel is temporarily not accepting operations
    /// (`EAGAIN`, `EBUSY` from io_uring_enter(2)), it returns Ok without events after 1 ms, and the next poll submits
    /// the operations again.
    ///
    /// # Errors
    ///
    /// The errors of epoll_wait(2), kevent(2) or ppoll(2); of epoll_wait(2) and kevent(2), none are known to occur before
    /// the driver is dropped. ppoll(2) fails with `EINVAL` if more descriptors are registered than the process may now
    /// have open (`RLIMIT_NOFILE`). On error there are no events, but none are lost: if part of a poll fails after another
    /// part returned events, the poll succeeds.
    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()>;

    /// A waker for other threads. All wakers of a driver are interchangeable.
    fn waker(&self) -> Arc<dyn Wake>;

    /// The driver's own descriptor. It is readable while a poll with a zero timeout would return an event, so a thread
    /// can sleep on it in ppoll(2) without borrowing the driver. None for IOCP and poll(2), with which threads sleep in
    /// [`Wake::block`] instead; on Windows a caller's driver has none either.
    fn descriptor(&self) -> Option<Descriptor>;

    /// Prepares for a thread to sleep. Returns the [descriptor](Driver::descriptor) on which the thread sleeps; None if
    /// it sleeps in [`Wake::block`]. A driver that defers arming registrations arms them now.
    fn prepare_sleep(&mut self) -> Option<Descriptor> {
        self.descriptor()
    }

    /// The operations that the driver can carry out itself; None if it only reports readiness.
    fn operations(&mut self) -> Option<&mut dyn Operations> {
        None
    }
}

/// Operations that a driver carries out itself, as io_uring(7) does.
///
/// # The contract
///
/// - **One event.** [`Driver::poll`] reports each operation once, with [`Ready::COMPLETED`](crate::Ready::COMPLETED),
///   under its token. It does not report operations that were withdrawn or abandoned, or whose outcome has already been
///   taken.
/// - **In order.** Operations reach the kernel in the order in which they were started, no later than the next poll. One
///   that fails or is cut short stops no later one: on a stream, start a send when the outcome of the one before is known.
/// - **Shared memory.** The caller and the kernel both hold an operation's memory, which is reused only after both
///   have released it. Abandoning an operation or dropping the driver is therefore always safe.
///
/// ```
/// use std::net::{TcpListener, TcpStream};
///
/// use reactor::{AsDescriptor, Events, Operation, Reactor, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let stream = TcpStream::connect(listener.local_addr()?)?;
///
/// // Of the drivers only io_uring carries out operations.
/// if let Some(operations) = reactor.operations() {
///     let send = Operation::Send(b"hello");
///     let id = operations.start(stream.as_descriptor(), send, Token::new(1, 0))?;
///     let mut events = Events::new();
///     while events.is_empty() {
///         reactor.turn(&mut events, None)?;
///     }
///     let count = reactor.operations().and_then(|operations| operations.take(id));
///     assert_eq!(count.transpose()?, Some(5));
/// }
/// # std::io::Result::Ok(())
/// ```
pub trait Operations {
    /// Queues an operation, without a system call.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if the kernel does not support it; [`io::ErrorKind::WouldBlock`] if there are
    /// 65,536 operations already, in which case make the call directly; [`io::ErrorKind::OutOfMemory`] if its buffer
    /// cannot be allocated.
    fn start(
        &mut self,
        descriptor: Descriptor,
        operation: Operation<'_>,
        token: Token,
    ) -> io::Result<OperationId>;

    /// The number of operations not yet submitted to the kernel.
    fn queued(&self) -> usize;

    /// Submits all queued operations to the kernel, without waiting for outcomes.
    ///
    /// Operations that the kernel cannot accept now (`EAGAIN`, `EBUSY`) stay queued.
    ///
    /// # Errors
    ///
    /// The errors of io_uring_enter(2); none are known to occur before the driver is dropped.
    fn submit(&mut self) -> io::Result<()>;

    /// Ends an operation and returns its outcome: the number of bytes transferred, or the error.
    ///
    /// None if there is no outcome yet; the operation then continues. `EINVAL` if the id is not of a current operation.
    fn take(&mut self, id: OperationId) -> Option<io::Result<usize>>;

    /// Whether the operation has an outcome that has not been taken.
    fn is_complete(&self, id: OperationId) -> bool;

    /// Whether the next poll has an outcome to report. If so, a thread must not sleep on [`Driver::descriptor`],
    /// because that need not become readable for the outcome. The default is false.
    fn has_unreported(&self) -> bool {
        false
    }

    /// Changes the token under which the operation will be reported. No effect once it has been reported.
    fn redirect(&mut self, id: OperationId, token: Token);

    /// Removes and ends an operation that has not been submitted. False if it has been submitted.
    fn withdraw(&mut self, id: OperationId) -> bool;

    /// Submits all queued operations and blocks until this one has an outcome.
    ///
    /// # Errors
    ///
    /// The errors of io_uring_enter(2); none are known to occur before the driver is dropped.
    fn wait(&mut self, id: OperationId) -> io::Result<()>;

    /// Ends an operation and drops its outcome. It is withdrawn if it has not been submitted, and cancelled if it is in
    /// flight.
    fn abandon(&mut self, id: OperationId);
}
