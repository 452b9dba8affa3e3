//! The interface of a driver, and the contract of all drivers.

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
    /// Not available for this reason, which no system call gave.
    pub(crate) const fn because(reason: &'static str) -> Self {
        Self::new(reason, None)
    }

    /// Not available for this reason: a sentence, or the system call that failed with this error number.
    pub(crate) const fn new(reason: &'static str, error: Option<i32>) -> Self {
        Self { reason, error }
    }

    /// Was the process or the system short of descriptors or of memory? The backend may be available later, and
    /// [`Backend::open`](crate::Backend::open) then fails with this error.
    pub fn is_shortage(&self) -> bool {
        #[cfg(unix)]
        let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN];
        #[cfg(not(unix))]
        let shortages = [];
        self.error.is_some_and(|error| shortages.contains(&error))
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
/// let token = Token::new(0, 0);
/// let armed = driver.register(listener.as_descriptor(), token, Interest::READABLE)?;
/// assert_eq!(armed, Registration::Armed);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The descriptor is registered.
    Armed,
    /// The kernel does not poll this kind of descriptor (`EPERM` of epoll_ctl(2): a regular file, a directory). It is
    /// always ready. Nothing is registered.
    Unpollable,
}

/// The result of [`Driver::reregister`].
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
    /// The registration was found and changed.
    Kept,
    /// The kernel no longer had the registration, because the descriptor was closed or replaced, and it was added again.
    /// What was cached of the old file does not apply to the new one.
    Renewed,
    /// The descriptor is now of a kind that the kernel does not poll. Nothing is registered any more.
    Unpollable,
}

/// The part of a driver that other threads and signal handlers use: it ends a poll, and where the driver has no descriptor, a thread
/// sleeps in it. It may outlive the driver.
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
    /// Ends the current poll, or the next one if there is none.
    ///
    /// On Unix this is async-signal-safe (signal-safety(7)): one write(2) or kevent(2), no lock, no allocation.
    ///
    /// # Errors
    ///
    /// Those of the system call. None is known to occur before the driver is dropped.
    fn wake(&self) -> io::Result<()>;

    /// Blocks for at most `timeout` (None: without limit) until the driver's next poll would return, if the driver has no
    /// [descriptor](Driver::descriptor). It begins after [`Driver::prepare_sleep`].
    ///
    /// - An event or a wake ends it, also one that has come before it. Anything else may end it early.
    /// - It takes nothing: the next poll reports what has ended it, and until then no further call blocks.
    /// - The driver may be used meanwhile. Registrations count at once. A poll reports nothing then, and does not wait.
    /// - If several threads block, the end of the first one's call ends all.
    ///
    /// # Errors
    ///
    /// Those of [`Driver::poll`]. The default is [`io::ErrorKind::Unsupported`].
    fn block(&self, _timeout: Option<Duration>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A kernel interface that reports readiness: epoll(7), kqueue(2), IOCP.
///
/// # The contract
///
/// - **Edges.** An event is reported at least once after each change from not ready to ready. It is reported once more after
///   each `register` and `reregister` if the descriptor is ready at that moment. It may be reported more often: a caller must
///   not rely on silence.
/// - **Registered tokens only.** Events carry the newest token that was registered for a descriptor. An event of a token that
///   was deregistered or replaced may still come, because a duplicate of a closed descriptor keeps the old registration
///   alive. The caller recognises it by the token's generation.
/// - **One registration per descriptor.** `register` replaces an existing registration. `EEXIST`, `ENOENT` and `EBADF` that
///   result from a descriptor that was closed or reused are handled inside.
/// - **Wakes.** A wake ends the current or the next poll. [`Token::WAKE`] is never reported.
/// - **Sleeps.** A thread sleeps without borrowing the driver, on its descriptor or in [`Wake::block`], after
///   [`Driver::prepare_sleep`]. What ends the sleep stays for the next poll.
/// - **Bounds.** One poll returns at most 1024 events. The next poll returns the rest.
/// - **Files are not kept open.** A registration does not keep its file open, and ends when the file is closed.
/// - **Closed descriptors.** `poll` does not fail because a registered descriptor was closed.
///
/// A driver is used by one thread at a time. Other threads may use only the result of [`Driver::waker`].
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
    /// If the descriptor is registered already (`EEXIST`), that registration is changed.
    ///
    /// # Errors
    ///
    /// `EBADF` if the descriptor is not open, `ENOSPC` at the user's limit of watches (`max_user_watches`, see epoll(7)),
    /// `ENOMEM`; see epoll_ctl(2) and kevent(2). [`io::ErrorKind::Unsupported`] for [`Interest::PRIORITY`] on platforms other
    /// than Linux. After an error nothing is registered.
    fn register(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registration>;

    /// Replaces interest and token of a registered descriptor, and reports it once more if it is ready now.
    ///
    /// If the kernel no longer has the registration (`ENOENT`), it is added again.
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

    /// Ends the registration of a descriptor.
    ///
    /// # Errors
    ///
    /// Those of epoll_ctl(2) or kevent(2), except those of a descriptor that is not registered (`ENOENT`, `EBADF`, `EPERM`).
    fn deregister(&mut self, descriptor: Descriptor) -> io::Result<()>;

    /// A descriptor that may be registered is about to be closed, and no wait is left for it. Nothing, where the close ends its
    /// registration in the kernel.
    fn note_close(&mut self, _descriptor: Descriptor) {}

    /// Replaces the contents of `events` by the reported events. It waits at most `timeout` for the first one: None waits
    /// without limit, zero does not wait. The timeout is rounded up to the platform's unit, which is 1 ms with epoll_wait(2).
    ///
    /// After a signal (`EINTR`) it returns Ok without an event. So it does after 1 ms if the kernel takes no operation for a while
    /// (`EAGAIN`, `EBUSY` of io_uring_enter(2)). The next poll submits them again.
    ///
    /// # Errors
    ///
    /// Those of epoll_wait(2) or kevent(2). None is known to occur before the driver is dropped. There is no event then, and
    /// none is lost: if a part of the poll fails after another part had an event, the poll is no failure.
    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()>;

    /// A waker for other threads. All wakers of one driver do the same.
    fn waker(&self) -> Arc<dyn Wake>;

    /// The driver's own descriptor. It is readable while a poll with a zero timeout would return an event, so a thread can
    /// sleep on it in ppoll(2) without borrowing the driver. None on Windows, which has none: a thread sleeps in
    /// [`Wake::block`] there.
    fn descriptor(&self) -> Option<Descriptor>;

    /// A thread is about to sleep: on the [descriptor](Driver::descriptor), which this returns, or without one in [`Wake::block`]. A
    /// driver that arms registrations late arms them now.
    fn prepare_sleep(&mut self) -> Option<Descriptor> {
        self.descriptor()
    }

    /// The operations that the driver can carry out by itself; None if it reports readiness only.
    fn operations(&mut self) -> Option<&mut dyn Operations> {
        None
    }
}

/// Operations that a driver carries out by itself: io_uring(7).
///
/// # The contract
///
/// - **One event.** [`Driver::poll`] reports each operation once, with [`Ready::COMPLETED`](crate::Ready::COMPLETED), under
///   its token. An operation that was withdrawn or abandoned is not reported, nor one with an outcome taken before.
/// - **In order.** Operations reach the kernel in the order in which they were started, at the latest with the next poll.
/// - **Two owners.** The memory of an operation belongs to the caller and to the kernel. It is reused only when both have
///   released it. Abandoning an operation and dropping the driver are therefore safe at any time.
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
    /// Does the kernel support this operation?
    fn knows(&self, operation: &Operation<'_>) -> bool;

    /// Queues an operation. It makes no system call.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] if the kernel does not support it, [`io::ErrorKind::WouldBlock`] if there are 65,536
    /// operations already: make the call directly then. [`io::ErrorKind::OutOfMemory`] if there is no memory for its bytes.
    fn start(
        &mut self,
        descriptor: Descriptor,
        operation: Operation<'_>,
        token: Token,
    ) -> io::Result<OperationId>;

    /// How many operations the kernel has not taken yet.
    fn queued(&self) -> usize;

    /// Submits all queued operations to the kernel. It does not wait for an outcome.
    ///
    /// Operations that the kernel does not take now (`EAGAIN`, `EBUSY`) stay queued.
    ///
    /// # Errors
    ///
    /// Those of io_uring_enter(2). None is known to occur before the driver is dropped.
    fn submit(&mut self) -> io::Result<()>;

    /// Ends an operation and returns its outcome: the number of bytes transferred, or the error.
    ///
    /// None if there is no outcome yet; the operation then continues. `EINVAL` if the id refers to no operation.
    fn take(&mut self, id: OperationId) -> Option<io::Result<usize>>;

    /// Has the operation an outcome that was not taken?
    fn is_complete(&self, id: OperationId) -> bool;

    /// Is there an outcome that the next poll reports? Then a thread must not sleep on [`Driver::descriptor`], because the descriptor
    /// need not become readable for it. The default is false.
    fn has_unreported(&self) -> bool {
        false
    }

    /// Sets the token under which the operation will be reported. It has no effect after the report.
    fn redirect(&mut self, id: OperationId, token: Token);

    /// Removes an operation that was not submitted, and ends it. False if it was submitted.
    fn withdraw(&mut self, id: OperationId) -> bool;

    /// Submits all queued operations and blocks until this one has an outcome.
    ///
    /// # Errors
    ///
    /// Those of io_uring_enter(2). None is known to occur before the driver is dropped.
    fn wait(&mut self, id: OperationId) -> io::Result<()>;

    /// Ends an operation without an outcome: it is withdrawn if it was not submitted, cancelled if it is in flight, and its
    /// outcome is dropped if it has one.
    fn abandon(&mut self, id: OperationId);
}
