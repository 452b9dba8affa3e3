//! Unix: the system calls on file descriptors: poll(2), ppoll(2), fcntl(2), fstat(2).

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    slice,
    time::Duration,
};

use super::bad_descriptor;
use crate::{event::Ready, interest::Interest};

/// Reports that the peer has shut down its writing half. Elsewhere `POLLIN` alone does.
#[cfg(any(target_os = "linux", target_os = "android"))]
const READ_CLOSED: libc::c_short = libc::POLLRDHUP;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const READ_CLOSED: libc::c_short = 0;

/// Returns which directions of `interest` the descriptor is ready for now: poll(2) with a zero timeout.
///
/// None if it is ready for none. A hang-up or an error makes reading and writing ready. On Windows the system
/// call is `WSAPoll`; it does not support [`Interest::PRIORITY`].
///
/// # Errors
///
/// `EBADF` if the descriptor is not open; otherwise the errors of poll(2).
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
        return Err(bad_descriptor()); // poll(2) silently ignores negative numbers
    }
    let mut entry = poll_entry(descriptor, asked_of_poll(interest));
    while poll_for(slice::from_mut(&mut entry), Some(Duration::ZERO)) < 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(answer_of_poll(entry)?.answers(interest))
}

pub(crate) fn poll_entry(fd: RawFd, events: libc::c_short) -> libc::pollfd {
    libc::pollfd {
        fd,
        events,
        revents: 0,
    }
}

/// The events by which poll(2) reports these directions.
pub(crate) fn asked_of_poll(interest: Interest) -> libc::c_short {
    let mut events = 0;
    if interest.is_readable() {
        events |= libc::POLLIN | READ_CLOSED;
    }
    if interest.is_priority() {
        events |= libc::POLLPRI;
    }
    if interest.is_writable() {
        events |= libc::POLLOUT;
    }
    events
}

fn answer_of_poll(entry: libc::pollfd) -> io::Result<Ready> {
    match entry.revents & libc::POLLNVAL {
        0 => Ok(ready_of_poll(entry.revents)),
        _ => Err(bad_descriptor()),
    }
}

/// What an answer of poll(2) means.
pub(crate) fn ready_of_poll(answer: libc::c_short) -> Ready {
    let meanings = [
        (libc::POLLIN, Ready::READABLE),
        (libc::POLLPRI, Ready::PRIORITY),
        (libc::POLLOUT, Ready::WRITABLE),
        (READ_CLOSED, Ready::READ_CLOSED),
        (libc::POLLHUP, Ready::READ_CLOSED | Ready::HANGUP),
        (libc::POLLERR, Ready::ERROR),
    ];
    let reported = meanings.into_iter().filter(|(flag, _)| answer & flag != 0);
    reported.fold(Ready::EMPTY, |ready, (_, meaning)| ready | meaning)
}

/// Duplicates the descriptor, close-on-exec.
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
    // SAFETY: the descriptor is new, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Waits until the descriptor is readable, a signal arrives, or `timeout` elapses (None: no limit).
///
/// # Errors
///
/// `EBADF` if the descriptor is not open; otherwise the errors of ppoll(2).
pub(crate) fn sleep_on(descriptor: RawFd, timeout: Option<Duration>) -> io::Result<()> {
    let mut entry = poll_entry(descriptor, libc::POLLIN);
    poll_all(slice::from_mut(&mut entry), timeout)?;
    answer_of_poll(entry).map(drop)
}

/// Waits until one of the entries is ready, a signal arrives, or `timeout` elapses (None: no limit). Returns how many are
/// ready: 0 after a signal.
///
/// # Errors
///
/// The errors of ppoll(2): `EINVAL` if there are more entries than descriptors are allowed (`RLIMIT_NOFILE`), `ENOMEM`.
pub(crate) fn poll_all(
    entries: &mut [libc::pollfd],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let answer = poll_for(entries, timeout);
    usize::try_from(answer).or_else(|_| {
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => Ok(0),
            _ => Err(error),
        }
    })
}

/// Whether this is a regular file or a directory: always ready, and no queue reports it.
///
/// # Errors
///
/// `EBADF` if the descriptor is not open; see fstat(2).
pub(crate) fn is_file(descriptor: RawFd) -> io::Result<bool> {
    // SAFETY: stat has only integers, for which zero is a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: fstat(2) writes to `status` and keeps no pointer to it.
    if unsafe { libc::fstat(descriptor, &mut status) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let kind = status.st_mode & libc::S_IFMT;
    Ok(kind == libc::S_IFREG || kind == libc::S_IFDIR)
}

/// ppoll(2) takes its timeout in nanoseconds.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn poll_for(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> libc::c_int {
    let timeout = timeout.map(|timeout| libc::timespec {
        // At most 68 years, to fit a 32-bit time_t. A longer sleep returns early, without an event.
        tv_sec: timeout.as_secs().min(i32::MAX as u64) as _,
        // Below 10^9, so it fits a 32-bit C long.
        tv_nsec: timeout.subsec_nanos() as _,
    });
    let limit = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    let (first, count) = (entries.as_mut_ptr(), entries.len() as libc::nfds_t);
    // SAFETY: the entries and the timespec outlive the call; no signal mask is given.
    unsafe { libc::ppoll(first, count, limit, std::ptr::null()) }
}

/// poll(2) takes its timeout in milliseconds.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
fn poll_for(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> libc::c_int {
    let milliseconds = timeout.map_or(-1, |timeout| {
        let rounded_up = timeout.saturating_add(Duration::from_nanos(999_999));
        rounded_up
            .as_millis()
            .try_into()
            .unwrap_or(libc::c_int::MAX)
    });
    let (first, count) = (entries.as_mut_ptr(), entries.len() as libc::nfds_t);
    // SAFETY: the entries outlive the call.
    unsafe { libc::poll(first, count, milliseconds) }
}
