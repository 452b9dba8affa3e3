//! The port to mio: epoll on Linux, kqueue on macOS and the BSDs, IOCP on Windows.
//!
//! mio is edge-triggered throughout, which is what the contract of [`Driver`] asks for. On Windows mio knows sockets
//! only; a raw one is lent to it for as long as it is registered.
#![allow(unsafe_code)]

use std::{io, sync::Arc, time::Duration};

use mio::{Poll, Waker, event::Event as Reported};

use crate::{
    driver::{Descriptor, Driver, Registration, Renewal, Wake},
    event::{Event, Events, Ready},
    interest::Interest,
    token::Token,
};

/// Events taken from the kernel at a time.
const CAPACITY: usize = 1024;

/// The driver over mio.
pub struct Poller {
    poll: Poll,
    reported: mio::Events,
    waker: Arc<Waker>,
    sources: Sources,
    /// Who waits for urgent data: mio reports that as readable too, so these are asked again.
    urgent: Vec<(Token, Descriptor)>,
}

impl Poller {
    /// Opens the platform's selector.
    ///
    /// # Errors
    ///
    /// EMFILE, ENFILE, ENOMEM: see epoll_create1(2), kqueue(2).
    pub fn open() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), mio::Token(Token::WAKE.into()))?;
        Ok(Self {
            poll,
            reported: mio::Events::with_capacity(CAPACITY),
            waker: Arc::new(waker),
            sources: Sources::new(),
            urgent: Vec::new(),
        })
    }

    fn note_urgency(&mut self, descriptor: Descriptor, token: Token, interest: Interest) {
        if interest.is_priority() || !self.urgent.is_empty() {
            self.urgent.retain(|(_, other)| *other != descriptor);
            if interest.is_priority() {
                self.urgent.push((token, descriptor));
            }
        }
    }

    /// mio's `is_readable` is true for urgent data alone as well: ask the kernel which it is.
    fn refine(&self, token: Token, ready: Ready) -> Ready {
        if !ready.contains(Ready::PRIORITY | Ready::READABLE) {
            return ready;
        }
        let known = self.urgent.iter().find(|(other, _)| *other == token);
        let readable = known.map(|(_, descriptor)| poll_now(*descriptor, Interest::READABLE));
        match readable {
            Some(Ok(None)) => ready.without(Ready::READABLE),
            _ => ready,
        }
    }
}

impl Driver for Poller {
    fn register(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registration> {
        self.note_urgency(descriptor, token, interest);
        let (registry, sources) = (self.poll.registry(), &mut self.sources);
        match sources.register(registry, descriptor, token, interest) {
            Ok(()) => Ok(Registration::Armed),
            Err(error) if is_unpollable(&error) => Ok(Registration::Unpollable),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                sources.reregister(registry, descriptor, token, interest)?;
                Ok(Registration::Kept)
            }
            Err(error) => Err(error),
        }
    }

    fn reregister(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Renewal> {
        self.note_urgency(descriptor, token, interest);
        let (registry, sources) = (self.poll.registry(), &mut self.sources);
        match sources.reregister(registry, descriptor, token, interest) {
            Ok(()) => return Ok(Renewal::Kept),
            Err(error) if is_unpollable(&error) => return Ok(Renewal::Unpollable),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(match self.register(descriptor, token, interest)? {
            Registration::Armed | Registration::Kept => Renewal::Renewed,
            Registration::Unpollable => Renewal::Unpollable,
        })
    }

    fn deregister(&mut self, descriptor: Descriptor) -> io::Result<()> {
        self.urgent.retain(|(_, other)| *other != descriptor);
        match self.sources.deregister(self.poll.registry(), descriptor) {
            Err(error) if is_gone(&error) || is_unpollable(&error) => Ok(()),
            answer => answer,
        }
    }

    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.reported, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            answer => answer?,
        }
        for reported in &self.reported {
            let token = Token::from(reported.token().0);
            if token != Token::WAKE {
                let ready = self.refine(token, ready_of(reported));
                events.push(Event { token, ready });
            }
        }
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.waker.clone()
    }

    fn descriptor(&self) -> Option<Descriptor> {
        descriptor_of(&self.poll)
    }
}

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        Waker::wake(self)
    }
}

fn ready_of(reported: &Reported) -> Ready {
    let table = [
        (reported.is_readable(), Ready::READABLE),
        (reported.is_priority(), Ready::PRIORITY),
        (reported.is_writable(), Ready::WRITABLE),
        (reported.is_read_closed(), Ready::READ_CLOSED),
        (reported.is_error(), Ready::ERROR),
        (
            reported.is_read_closed() && reported.is_write_closed(),
            Ready::HANGUP,
        ),
    ];
    table
        .into_iter()
        .filter(|(is_so, _)| *is_so)
        .fold(Ready::EMPTY, |ready, (_, bit)| ready | bit)
}

fn wanted(interest: Interest) -> mio::Interest {
    let table = [
        (interest.is_readable(), mio::Interest::READABLE),
        (interest.is_writable(), mio::Interest::WRITABLE),
        #[cfg(any(target_os = "linux", target_os = "android"))]
        (interest.is_priority(), mio::Interest::PRIORITY),
    ];
    table
        .into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, interest)| interest)
        .reduce(mio::Interest::add)
        // Urgent data where the kernel cannot report it: what it comes with is data all the same.
        .unwrap_or(mio::Interest::READABLE)
}

/// EPERM of epoll_ctl(2): the kernel does not poll such files, because they never block.
fn is_unpollable(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

#[cfg(unix)]
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::EBADF)
}

#[cfg(windows)]
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

#[cfg(unix)]
use unix::{Sources, descriptor_of};
#[cfg(unix)]
pub use unix::{poll_now, sleep_on};

#[cfg(unix)]
mod unix {
    use super::{Descriptor, Duration, Interest, Poll, Token, io, wanted};
    use mio::{Registry, unix::SourceFd};
    use std::{os::fd::AsRawFd, ptr};

    /// Any descriptor is a source as it is.
    pub struct Sources;

    impl Sources {
        pub fn new() -> Self {
            Self
        }

        pub fn register(
            &mut self,
            registry: &Registry,
            descriptor: Descriptor,
            token: Token,
            interest: Interest,
        ) -> io::Result<()> {
            let token = mio::Token(token.into());
            registry.register(&mut SourceFd(&descriptor), token, wanted(interest))
        }

        pub fn reregister(
            &mut self,
            registry: &Registry,
            descriptor: Descriptor,
            token: Token,
            interest: Interest,
        ) -> io::Result<()> {
            let token = mio::Token(token.into());
            registry.reregister(&mut SourceFd(&descriptor), token, wanted(interest))
        }

        pub fn deregister(
            &mut self,
            registry: &Registry,
            descriptor: Descriptor,
        ) -> io::Result<()> {
            registry.deregister(&mut SourceFd(&descriptor))
        }
    }

    pub fn descriptor_of(poll: &Poll) -> Option<Descriptor> {
        Some(poll.as_raw_fd())
    }

    /// Asks, without waiting, which of the directions are ready: poll(2). A hang-up and an error answer them all.
    ///
    /// # Errors
    ///
    /// EBADF if the descriptor is not open; otherwise what poll(2) says.
    pub fn poll_now(descriptor: Descriptor, interest: Interest) -> io::Result<Option<Interest>> {
        let table = [
            (Interest::READABLE, libc::POLLIN),
            (Interest::PRIORITY, libc::POLLPRI),
            (Interest::WRITABLE, libc::POLLOUT),
        ];
        let asked = table.iter().filter(|(one, _)| interest.contains(*one));
        let mut request = libc::pollfd {
            fd: descriptor,
            events: asked.clone().fold(0, |events, (_, event)| events | event),
            revents: 0,
        };
        // SAFETY: one valid pollfd.
        if unsafe { libc::poll(&mut request, 1, 0) } < 0 {
            let error = io::Error::last_os_error();
            let interrupted = error.kind() == io::ErrorKind::Interrupted;
            return if interrupted { Ok(None) } else { Err(error) };
        }
        if request.revents & libc::POLLNVAL != 0 || descriptor < 0 {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        if request.revents & (libc::POLLHUP | libc::POLLERR) != 0 {
            return Ok(Some(interest));
        }
        Ok(asked
            .filter(|(_, event)| request.revents & event != 0)
            .map(|(one, _)| *one)
            .reduce(|all, one| all | one))
    }

    /// Sleeps until the descriptor is readable, at most so long (`None`: for ever). A signal ends the sleep early.
    ///
    /// Resolution is a nanosecond with ppoll(2) (Linux, Android, FreeBSD), elsewhere a millisecond, rounded up.
    ///
    /// # Errors
    ///
    /// What ppoll(2) or poll(2) says, but for EINTR.
    pub fn sleep_on(descriptor: Descriptor, timeout: Option<Duration>) -> io::Result<()> {
        let mut request = libc::pollfd {
            fd: descriptor,
            events: libc::POLLIN,
            revents: 0,
        };
        if wait(&mut request, timeout) < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(())
    }

    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    fn wait(request: &mut libc::pollfd, timeout: Option<Duration>) -> libc::c_int {
        let timeout = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: one valid pollfd; the timeout is null or valid, the signal mask null.
        unsafe { libc::ppoll(request, 1, timeout, ptr::null()) }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    fn wait(request: &mut libc::pollfd, timeout: Option<Duration>) -> libc::c_int {
        let timeout = timeout.map_or(-1, |timeout| {
            let milliseconds = timeout.as_nanos().div_ceil(1_000_000);
            milliseconds.try_into().unwrap_or(libc::c_int::MAX)
        });
        // SAFETY: one valid pollfd.
        unsafe { libc::poll(request, 1, timeout) }
    }
}

#[cfg(windows)]
use windows::{Sources, descriptor_of};
#[cfg(windows)]
pub use windows::{poll_now, sleep_on};

#[cfg(windows)]
mod windows {
    use super::{Descriptor, Duration, Interest, Poll, Token, io, wanted};
    use mio::{Registry, event::Source, net::UdpSocket};
    use std::{collections::HashMap, mem::ManuallyDrop, net, os::windows::io::FromRawSocket};

    /// mio wants an object per registered socket. What kind of socket it wraps makes no difference to AFD; it is never
    /// dropped, because it would close the socket, which is the caller's.
    #[derive(Default)]
    pub struct Sources(HashMap<Descriptor, ManuallyDrop<UdpSocket>>);

    impl Sources {
        pub fn new() -> Self {
            Self::default()
        }

        pub fn register(
            &mut self,
            registry: &Registry,
            descriptor: Descriptor,
            token: Token,
            interest: Interest,
        ) -> io::Result<()> {
            // SAFETY: never closed by us, see above.
            let socket = unsafe { net::UdpSocket::from_raw_socket(descriptor) };
            let mut socket = ManuallyDrop::new(UdpSocket::from_std(socket));
            socket.register(registry, mio::Token(token.into()), wanted(interest))?;
            self.0.insert(descriptor, socket);
            Ok(())
        }

        pub fn reregister(
            &mut self,
            registry: &Registry,
            descriptor: Descriptor,
            token: Token,
            interest: Interest,
        ) -> io::Result<()> {
            let known = self.0.get_mut(&descriptor);
            let socket = known.ok_or(io::ErrorKind::NotFound)?;
            socket.reregister(registry, mio::Token(token.into()), wanted(interest))
        }

        pub fn deregister(
            &mut self,
            registry: &Registry,
            descriptor: Descriptor,
        ) -> io::Result<()> {
            match self.0.remove(&descriptor) {
                Some(mut socket) => socket.deregister(registry),
                None => Ok(()),
            }
        }
    }

    pub fn descriptor_of(_: &Poll) -> Option<Descriptor> {
        None
    }

    /// There is no readiness question on Windows that a completion port could answer.
    ///
    /// # Errors
    ///
    /// Always `Unsupported`.
    pub fn poll_now(_: Descriptor, _: Interest) -> io::Result<Option<Interest>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A completion port cannot be slept on from outside.
    ///
    /// # Errors
    ///
    /// Always `Unsupported`.
    pub fn sleep_on(_: Descriptor, _: Option<Duration>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
