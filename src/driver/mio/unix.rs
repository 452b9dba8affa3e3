//! Unix: sources are file descriptors, and mio borrows them by number.

mod oneshot;

use std::{
    collections::HashMap,
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    sync::Arc,
    time::Duration,
};

use mio::{Registry, event::Source, unix::SourceFd};

use crate::{
    driver::{Registration, Reregistration, Wake},
    event::Ready,
    interest::Interest,
    token::Token,
};

use oneshot::{ONE_SHOT, Oneshots};

pub(super) use oneshot::descriptor as pollable;

/// Does the queue itself refuse what it cannot poll? epoll does (`EPERM`); kqueue takes a regular file and then reports
/// it only before its end; poll(2) takes every number, open or not.
const REFUSES_FILES: bool = cfg!(any(target_os = "linux", target_os = "android")) && !ONE_SHOT;

/// What mio does not remember for us.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The newest token of each descriptor that is registered for urgent data. Nearly always empty.
    urgent: HashMap<RawFd, Token>,
    oneshots: Oneshots,
}

impl Sources {
    pub(super) fn register(
        &mut self,
        registry: &Registry,
        descriptor: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registration> {
        let asked = translate(interest)?;
        let number = mio::Token(token.into());
        if is_always_ready(descriptor)? {
            return Ok(Registration::Unpollable);
        }
        let mut source = SourceFd(&descriptor);
        let result = match source.register(registry, number, asked) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                source.reregister(registry, number, asked)
            }
            result => result,
        };
        match result {
            Ok(()) => {
                self.note(descriptor, token, interest);
                Ok(Registration::Armed)
            }
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(Registration::Unpollable),
            Err(error) => Err(error),
        }
    }

    pub(super) fn reregister(
        &mut self,
        registry: &Registry,
        descriptor: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<Reregistration> {
        let asked = translate(interest)?;
        if is_always_ready(descriptor)? {
            return Ok(Reregistration::Unpollable);
        }
        match SourceFd(&descriptor).reregister(registry, mio::Token(token.into()), asked) {
            Ok(()) => {
                self.note(descriptor, token, interest);
                Ok(Reregistration::Kept)
            }
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                Ok(Reregistration::Unpollable)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let registration = self.register(registry, descriptor, token, interest)?;
                Ok(match registration {
                    Registration::Armed => Reregistration::Renewed,
                    Registration::Unpollable => Reregistration::Unpollable,
                })
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn deregister(&mut self, registry: &Registry, descriptor: RawFd) -> io::Result<()> {
        if !self.urgent.is_empty() {
            self.urgent.remove(&descriptor);
        }
        if ONE_SHOT {
            self.oneshots.remove(descriptor);
        }
        match SourceFd(&descriptor).deregister(registry) {
            // Closed, closed and reopened, or replaced by a regular file: nothing of ours is there.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    || matches!(error.raw_os_error(), Some(libc::EBADF | libc::EPERM)) =>
            {
                Ok(())
            }
            result => result,
        }
    }

    /// A waker of our own; None where mio's is good.
    pub(super) fn open_waker(&mut self, registry: &Registry) -> io::Result<Option<Arc<dyn Wake>>> {
        if !ONE_SHOT {
            return Ok(None);
        }
        self.oneshots.open_waker(registry).map(Some)
    }

    /// The waker was heard.
    pub(super) fn woken(&mut self, registry: &Registry) -> io::Result<()> {
        if !ONE_SHOT {
            return Ok(());
        }
        self.oneshots.woken(registry)
    }

    /// epoll and kqueue keep a registration armed after an event, poll(2) does not.
    pub(super) fn renew_fired(&mut self, registry: &Registry) {
        if !ONE_SHOT {
            return;
        }
        while let Some((descriptor, token, interest)) = self.oneshots.next_fired() {
            let renewed = self.reregister(registry, descriptor, token, interest);
            if !matches!(renewed, Ok(Reregistration::Kept | Reregistration::Renewed)) {
                // Closed without a word, or replaced by a file: its waiters are told when they re-arm.
                _ = self.deregister(registry, descriptor);
            }
        }
    }

    /// mio calls urgent data readable as well; only the kernel knows whether ordinary data is there.
    pub(super) fn refine(&mut self, token: Token, ready: Ready) -> Ready {
        if ONE_SHOT {
            self.oneshots.fired(token);
        }
        if !ready.contains(Ready::PRIORITY | Ready::READABLE) {
            return ready;
        }
        let urgent = self.urgent.iter().find(|(_, newest)| **newest == token);
        let Some((descriptor, _)) = urgent else {
            return ready;
        };
        match poll_now(*descriptor, Interest::READABLE) {
            Ok(None) => ready.without(Ready::READABLE),
            _ => ready,
        }
    }

    fn note(&mut self, descriptor: RawFd, token: Token, interest: Interest) {
        if interest.is_priority() {
            self.urgent.insert(descriptor, token);
        } else if !self.urgent.is_empty() {
            self.urgent.remove(&descriptor);
        }
        if ONE_SHOT {
            self.oneshots.note(descriptor, token, interest);
        }
    }
}

fn translate(interest: Interest) -> io::Result<mio::Interest> {
    let readable = interest.is_readable().then_some(mio::Interest::READABLE);
    let writable = interest.is_writable().then_some(mio::Interest::WRITABLE);
    let priority = if interest.is_priority() {
        Some(urgent_interest()?)
    } else {
        None
    };
    [readable, writable, priority]
        .into_iter()
        .flatten()
        .reduce(mio::Interest::add)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn urgent_interest() -> io::Result<mio::Interest> {
    Ok(mio::Interest::PRIORITY)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn urgent_interest() -> io::Result<mio::Interest> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this platform's queue does not report urgent data",
    ))
}

/// Regular files and directories, where the queue would accept them and then stay silent.
fn is_always_ready(descriptor: RawFd) -> io::Result<bool> {
    if REFUSES_FILES {
        return Ok(false);
    }
    // SAFETY: stat is plain old data, for which all zeroes are a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: fstat(2) writes into the stat we own and keeps no pointer to it.
    if unsafe { libc::fstat(descriptor, &mut status) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let kind = status.st_mode & libc::S_IFMT;
    Ok(kind == libc::S_IFREG || kind == libc::S_IFDIR)
}

/// Asks the kernel, without waiting, which of the directions a descriptor is ready for: poll(2) with a zero timeout.
///
/// None means none of them. A hang-up and an error count as ready for everything asked. On Windows the system call is
/// `WSAPoll`, and [`Interest::PRIORITY`] is refused.
///
/// # Errors
///
/// `EBADF` if the descriptor is not open; otherwise those of poll(2).
///
/// ```
/// use reactor::{AsDescriptor, Interest, poll_now};
///
/// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert_eq!(poll_now(socket.as_descriptor(), both)?, Some(Interest::WRITABLE));
/// # std::io::Result::Ok(())
/// ```
pub fn poll_now(descriptor: RawFd, interest: Interest) -> io::Result<Option<Interest>> {
    if descriptor < 0 {
        // poll(2) passes over these without a word.
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let mut entry = libc::pollfd {
        fd: descriptor,
        events: asked_of_poll(interest),
        revents: 0,
    };
    loop {
        // SAFETY: one pollfd is passed, it is ours and outlives the call.
        match unsafe { libc::poll(&mut entry, 1, 0) } {
            0 => return Ok(None),
            1 => return answer_of_poll(entry.revents, interest),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

fn asked_of_poll(interest: Interest) -> libc::c_short {
    let mut events = 0;
    if interest.is_readable() {
        events |= libc::POLLIN;
    }
    if interest.is_priority() {
        events |= libc::POLLPRI;
    }
    if interest.is_writable() {
        events |= libc::POLLOUT;
    }
    events
}

fn answer_of_poll(answer: libc::c_short, interest: Interest) -> io::Result<Option<Interest>> {
    if answer & libc::POLLNVAL != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    if answer & (libc::POLLHUP | libc::POLLERR) != 0 {
        return Ok(Some(interest));
    }
    let mut ready = Ready::EMPTY;
    if answer & libc::POLLIN != 0 {
        ready |= Ready::READABLE;
    }
    if answer & libc::POLLPRI != 0 {
        ready |= Ready::PRIORITY;
    }
    if answer & libc::POLLOUT != 0 {
        ready |= Ready::WRITABLE;
    }
    Ok(ready.answers(interest))
}

/// Another descriptor of the same open file, closed on exec(2).
///
/// # Errors
///
/// `EBADF` if the descriptor is not open, `EMFILE`; see fcntl(2).
pub(crate) fn duplicate(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    let number = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is fresh and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Waits until the descriptor is readable, for at most `timeout` (None: for ever), or until a signal comes.
///
/// # Errors
///
/// `EBADF` if the descriptor is not open; otherwise those of ppoll(2).
pub(crate) fn sleep_on(descriptor: RawFd, timeout: Option<Duration>) -> io::Result<()> {
    let mut entry = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    if poll_for(&mut entry, timeout) < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        };
    }
    if entry.revents & libc::POLLNVAL != 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    Ok(())
}

/// ppoll(2): to the nanosecond.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn poll_for(entry: &mut libc::pollfd, timeout: Option<Duration>) -> libc::c_int {
    let timeout = timeout.map(|timeout| libc::timespec {
        // 68 years, which fit wherever time_t has 32 bits; whoever sleeps longer is woken for nothing.
        tv_sec: timeout.as_secs().min(i32::MAX as u64) as _,
        // Below a billion, so it fits wherever a C long has 32 bits.
        tv_nsec: timeout.subsec_nanos() as _,
    });
    let limit = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one pollfd is passed, and it and the timespec outlive the call; no signal mask is given.
    unsafe { libc::ppoll(entry, 1, limit, std::ptr::null()) }
}

/// poll(2): to the next millisecond.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn poll_for(entry: &mut libc::pollfd, timeout: Option<Duration>) -> libc::c_int {
    let milliseconds = timeout.map_or(-1, |timeout| {
        let rounded_up = timeout.saturating_add(Duration::from_nanos(999_999));
        rounded_up
            .as_millis()
            .try_into()
            .unwrap_or(libc::c_int::MAX)
    });
    // SAFETY: one pollfd is passed, and it outlives the call.
    unsafe { libc::poll(entry, 1, milliseconds) }
}
