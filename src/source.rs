//! A descriptor or socket with its owner id and the value that owns or borrows it, so that it stays open while
//! registered.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use crate::{
    descriptor::Descriptor,
    interest::Interest,
    reactor::Reactor,
    registry::{Attempt, OwnerId, Wait},
    token::Token,
};

/// A type that has a descriptor: any type with `AsFd` on Unix or `AsSocket` on Windows.
///
/// This includes streams, listeners, datagram sockets, pipes, `OwnedFd`, `BorrowedFd`, and references, `Box`, `Rc` and
/// `Arc` of these. The trait cannot be implemented for other types.
///
/// ```
/// use reactor::AsDescriptor;
///
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// assert_eq!(listener.as_descriptor(), (&listener).as_descriptor());
/// # std::io::Result::Ok(())
/// ```
pub trait AsDescriptor {
    /// The descriptor, valid while `self` is borrowed.
    fn as_descriptor(&self) -> Descriptor;
}

#[cfg(unix)]
impl<T: std::os::fd::AsFd + ?Sized> AsDescriptor for T {
    fn as_descriptor(&self) -> Descriptor {
        std::os::fd::AsRawFd::as_raw_fd(&self.as_fd())
    }
}

#[cfg(windows)]
impl<T: std::os::windows::io::AsSocket + ?Sized> AsDescriptor for T {
    fn as_descriptor(&self) -> Descriptor {
        std::os::windows::io::AsRawSocket::as_raw_socket(&self.as_socket())
    }
}

/// A descriptor or socket with its own [`OwnerId`].
///
/// # Owned and borrowed
///
/// `Source::new(stream)` owns the stream, `Source::new(&stream)` borrows it, `Source::new(Arc::clone(&stream))` shares
/// it. The descriptor stays open while the source exists, and the reactor never closes it.
///
/// A source borrows no reactor. The first wait registers the descriptor. [`Source::detach`] ends the registration and
/// returns the stream. Dropping a source instead is safe: owner ids are unique, so a source that gets the same
/// descriptor number never sees stale readiness. But waits on a dropped source are answered only when they are
/// next re-armed (after 100 to 200 ms; after up to 25.6 s if they have lasted longer), when another source waits for the same
/// number or, if a duplicate keeps the file open, with its next event. kqueue, IOCP and poll(2) may not tell that a
/// number has another file: such waits may then be answered only by an event of that file. [`Source::close`] answers
/// them at once.
///
/// # Example
///
/// ```
/// use std::{io::{ErrorKind, Read, Write}, net::{TcpListener, TcpStream}};
///
/// use reactor::{Events, Interest, Reactor, Source, Token, Wait};
///
/// let mut reactor = Reactor::open(None)?;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut theirs = TcpStream::connect(listener.local_addr()?)?;
/// let (ours, _) = listener.accept()?;
/// ours.set_nonblocking(true)?;
///
/// let mut ours = Source::new(ours);
/// let mut buffer = [0; 64];
/// // Try first. The outcome of the attempt is cached, so the wait that follows makes no further system call.
/// let tried = ours.attempt(&mut reactor, Interest::READABLE, |stream| stream.read(&mut buffer));
/// assert_eq!(tried.unwrap_err().kind(), ErrorKind::WouldBlock);
/// let wait = ours.wait(&mut reactor, Interest::READABLE, Token::new(7, 0))?;
/// assert!(matches!(wait, Wait::Pending(_)), "a socket can be waited for");
///
/// theirs.write_all(b"hello")?;
/// let mut events = Events::new();
/// while events.is_empty() {
///     reactor.turn(&mut events, None)?;
/// }
/// assert_eq!(events[0].token, Token::new(7, 0));
/// let count = ours.attempt(&mut reactor, Interest::READABLE, |stream| stream.read(&mut buffer))?;
/// assert_eq!(&buffer[..count], b"hello");
///
/// let stream: TcpStream = ours.detach(&mut reactor);
/// drop(stream);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Source<T> {
    io: T,
    owner: OwnerId,
}

impl<T: AsDescriptor> Source<T> {
    /// Creates a source, without a system call.
    ///
    /// [`Source::attempt`] needs a non-blocking descriptor; [`Source::wait`] does not.
    pub fn new(io: T) -> Self {
        Self {
            io,
            owner: next_owner_id(),
        }
    }

    /// Starts to wait until the descriptor is ready for at least one direction of `interest`; see
    /// [`Reactor::wait`].
    ///
    /// # Errors
    ///
    /// See [`Reactor::wait`].
    pub fn wait(
        &self,
        reactor: &mut Reactor,
        interest: Interest,
        token: Token,
    ) -> io::Result<Wait> {
        reactor.wait(self.descriptor(), self.owner, interest, token)
    }

    /// Makes one non-blocking call in the direction of `interest`. If the call would have blocked, that is cached, and
    /// the next wait makes no system call.
    ///
    /// # Errors
    ///
    /// Those of `call`, unchanged. After [`io::ErrorKind::WouldBlock`], wait.
    pub fn attempt<R>(
        &mut self,
        reactor: &mut Reactor,
        interest: Interest,
        call: impl FnOnce(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        let outcome = call(&mut self.io);
        self.noted(reactor, interest, outcome)
    }

    /// Like [`Source::attempt`], for a source that a reader and a writer share. Two sources of one descriptor would be
    /// two owners, and each of their waits in turn would register it again.
    ///
    /// # Errors
    ///
    /// Those of [`Source::attempt`].
    pub fn try_io<R>(
        &self,
        reactor: &mut Reactor,
        interest: Interest,
        call: impl FnOnce(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.noted(reactor, interest, call(&self.io))
    }

    fn noted<R>(
        &self,
        reactor: &mut Reactor,
        interest: Interest,
        outcome: io::Result<R>,
    ) -> io::Result<R> {
        outcome.inspect_err(|error| {
            if error.kind() == io::ErrorKind::WouldBlock {
                self.attempted(reactor, interest, Attempt::WouldBlock);
            }
        })
    }

    /// Reports the outcome of a non-blocking call that the caller has just made; see
    /// [`Reactor::attempted`].
    pub fn attempted(&self, reactor: &mut Reactor, interest: Interest, attempt: Attempt) {
        reactor.attempted(self.descriptor(), self.owner, interest, attempt);
    }

    /// Ends the registration, if any, and returns the value, still open. The next turn answers its waits with
    /// [`Ready::ERROR`](crate::Ready::ERROR), those of other sources of the descriptor, too.
    pub fn detach(self, reactor: &mut Reactor) -> T {
        reactor.deregister(self.descriptor());
        self.io
    }

    /// Like [`Source::detach`], and drops the value.
    pub fn close(self, reactor: &mut Reactor) {
        drop(self.detach(reactor));
    }

    /// The descriptor.
    pub fn descriptor(&self) -> Descriptor {
        self.io.as_descriptor()
    }
}

impl<T> Source<T> {
    /// The owner id, unique in this process.
    pub fn owner_id(&self) -> OwnerId {
        self.owner
    }

    /// A reference to the value that has the descriptor.
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// A mutable reference to the value that has the descriptor. If you replace it, the next wait notices within 100
    /// ms.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }
}

#[cfg(feature = "unstable")]
impl<T: AsDescriptor> Source<T> {
    /// The descriptor's cached readiness; see [`Reactor::cached_readiness`].
    pub fn cached_readiness(&self, reactor: &Reactor) -> crate::registry::DescriptorReadiness {
        reactor.cached_readiness(self.descriptor(), self.owner)
    }
}

/// Sources' owner ids are 2^63 and above. Smaller ones are for callers that number their own objects.
fn next_owner_id() -> OwnerId {
    static LAST: Mutex<u64> = Mutex::new(1 << 63);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last += 1;
    OwnerId(*last)
}
