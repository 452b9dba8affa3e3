//! Unix: the system calls on one file descriptor: poll(2), ppoll(2), fcntl(2).

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use crate::{event::Ready, interest::Interest};

/// Returns which directions of `interest` the descriptor is ready for now: poll(2) with a zero timeout.
///
/// None if it is ready for none. A hang-up or an error makes every direction of `interest` ready. On Windows the system
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
        // poll(2) silently ignores negative numbers.
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let mut entry = libc::pollfd {
        fd: descriptor,
        events: asked_of_poll(interest),
        revents: 0,
    };
    loop {
        // SAFETY: one pollfd is passed, which outlives the call.
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

/// ppoll(2) takes its timeout in nanoseconds.
#[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
fn poll_for(entry: &mut libc::pollfd, timeout: Option<Duration>) -> libc::c_int {
    let timeout = timeout.map(|timeout| libc::timespec {
        // At most 68 years, to fit a 32-bit time_t. A longer sleep returns early, without an event.
        tv_sec: timeout.as_secs().min(i32::MAX as u64) as _,
        // Below 10^9, so it fits a 32-bit C long.
        tv_nsec: timeout.subsec_nanos() as _,
    });
    let limit = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one pollfd is passed, and it and the timespec outlive the call; no signal mask is given.
    unsafe { libc::ppoll(entry, 1, limit, std::ptr::null()) }
}

/// poll(2) takes its timeout in milliseconds.
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
