//! A descriptor or socket in safe hands: what owns it, or borrows it, and who it is to the reactor.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use crate::{
    descriptor::Descriptor,
    interest::Interest,
    reactor::Reactor,
    registry::{Attempt, DescriptorReadiness, OwnerId, Wait},
    token::Token,
};

/// What has a descriptor: whatever is [`AsFd`](std::os::fd::AsFd) on Unix, and whatever is `AsSocket` on Windows.
///
/// Streams, listeners, datagram sockets, pipes, `OwnedFd` and `BorrowedFd` are; so are references, `Box`, `Rc` and `Arc` of
/// them. It is implemented for all of these and cannot be implemented for anything else.
///
/// ```
/// use reactor::AsDescriptor;
///
/// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
/// assert_eq!(listener.as_descriptor(), (&listener).as_descriptor());
/// # std::io::Result::Ok(())
/// ```
pub trait AsDescriptor {
    /// The number the kernel knows it by, valid as long as `self` is borrowed.
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

/// A descriptor or socket attached under an [`OwnerId`] of its own.
///
/// # Owned and borrowed
///
/// `Source::new(stream)` owns the stream, `Source::new(&stream)` borrows it, `Source::new(Arc::clone(&stream))` shares it:
/// whichever it is, the descriptor stays open as long as the source lives, and is closed by whoever owns it. The reactor
/// itself never closes it.
///
/// A source holds no registration and borrows no reactor. The first wait registers the descriptor; [`Source::detach`]
/// ends that, and gives the stream back. A source that is dropped instead is safe too: no other source ever has its
/// owner, so the next owner of the number starts afresh. Only whoever still waits for it hears of that late, after
/// 100 ms, and if a duplicate keeps the file open then not before its next event.
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
/// // Try first. What the attempt saw is remembered, so the wait that follows need not ask the kernel again.
/// let tried = ours.attempt(&mut reactor, Interest::READABLE, |stream| stream.read(&mut buffer));
/// assert_eq!(tried.unwrap_err().kind(), ErrorKind::WouldBlock);
/// let Wait::Pending(wait) = ours.wait(&mut reactor, Interest::READABLE, Token::new(7, 0))? else {
///     unreachable!("a socket can be waited for");
/// };
///
/// theirs.write_all(b"hello")?;
/// let mut events = Events::new();
/// while events.is_empty() {
///     reactor.turn(&mut events, None)?;
/// }
/// assert_eq!(events[0].token, Token::new(7, 0));
/// reactor.end(wait);
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
    /// Attaches something that has a descriptor. No system call is made.
    ///
    /// It should be non-blocking for [`Source::attempt`]; waiting alone works for blocking ones as well.
    pub fn new(io: T) -> Self {
        Self {
            io,
            owner: next_owner_id(),
        }
    }

    /// Starts to wait until the descriptor is ready for some of `interest`; see [`Selector::wait`](crate::Selector::wait).
    ///
    /// # Errors
    ///
    /// As [`Selector::wait`](crate::Selector::wait).
    pub fn wait(
        &self,
        reactor: &mut Reactor,
        interest: Interest,
        token: Token,
    ) -> io::Result<Wait> {
        reactor.wait(self.descriptor(), self.owner, interest, token)
    }

    /// Makes one non-blocking call in the direction of `interest`, and notes if it would have blocked: the wait that
    /// follows then costs no system call.
    ///
    /// # Errors
    ///
    /// Those of `call`, unchanged; [`io::ErrorKind::WouldBlock`] is the one to wait after.
    pub fn attempt<R>(
        &mut self,
        reactor: &mut Reactor,
        interest: Interest,
        call: impl FnOnce(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        call(&mut self.io).inspect_err(|error| {
            if error.kind() == io::ErrorKind::WouldBlock {
                self.attempted(reactor, interest, Attempt::WouldBlock);
            }
        })
    }

    /// Notes what a non-blocking call of the caller's own has just seen; see
    /// [`Selector::attempted`](crate::Selector::attempted).
    pub fn attempted(&self, reactor: &mut Reactor, interest: Interest, attempt: Attempt) {
        reactor.attempted(self.descriptor(), self.owner, interest, attempt);
    }

    /// What is known about the descriptor; see [`Selector::cached_readiness`](crate::Selector::cached_readiness).
    pub fn cached_readiness(&self, reactor: &Reactor) -> DescriptorReadiness {
        reactor.cached_readiness(self.descriptor(), self.owner)
    }

    /// Ends the registration, if there is one, and gives back what was attached, still open. Whoever waits for it is
    /// answered with [`Ready::ERROR`](crate::Ready::ERROR) by the next turn.
    pub fn detach(self, reactor: &mut Reactor) -> T {
        reactor.deregister(self.descriptor());
        self.io
    }

    /// The descriptor.
    pub fn descriptor(&self) -> Descriptor {
        self.io.as_descriptor()
    }
}

impl<T> Source<T> {
    /// Who it is to the reactor. No two sources of a process are the same.
    pub fn owner_id(&self) -> OwnerId {
        self.owner
    }

    /// What was attached.
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// What was attached. To put something else in its place is allowed: the wait that follows finds out, at the latest
    /// after 100 ms.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }
}

/// The upper half of all owner ids: the lower one is for callers who number their own objects.
fn next_owner_id() -> OwnerId {
    static LAST: Mutex<u64> = Mutex::new(1 << 63);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last += 1;
    OwnerId(*last)
}
