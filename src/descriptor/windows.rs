//! Windows: the one system call on sockets, `WSAPoll`.

use std::{io, os::windows::io::RawSocket, time::Duration};

use crate::{event::Ready, interest::Interest};

/// `WSAPoll` and its constants, from winsock2.h.
mod winsock {
    #[repr(C)]
    pub(super) struct PollFd {
        pub(super) socket: usize,
        pub(super) events: i16,
        pub(super) revents: i16,
    }

    pub(super) const POLLERR: i16 = 0x0001;
    pub(super) const POLLHUP: i16 = 0x0002;
    pub(super) const POLLNVAL: i16 = 0x0004;
    pub(super) const POLLWRNORM: i16 = 0x0010;
    pub(super) const POLLRDNORM: i16 = 0x0100;
    pub(super) const WSAENOTSOCK: i32 = 10038;

    #[link(name = "ws2_32")]
    unsafe extern "system" {
        pub(super) fn WSAPoll(entries: *mut PollFd, count: u32, timeout: i32) -> i32;
    }
}

pub(crate) fn unsupported(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// Returns which directions of `interest` the socket is ready for now: `WSAPoll` with a zero timeout.
///
/// None if it is ready for none. A hang-up or an error makes reading and writing ready.
///
/// # Errors
///
/// `WSAENOTSOCK` if the number is not an open socket, [`io::ErrorKind::Unsupported`] for [`Interest::PRIORITY`],
/// otherwise the errors of `WSAPoll`.
///
/// ```
/// use reactor::{AsDescriptor, Interest, poll_now};
///
/// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
/// let both = Interest::READABLE | Interest::WRITABLE;
/// assert_eq!(poll_now(socket.as_descriptor(), both)?, Some(Interest::WRITABLE));
/// # std::io::Result::Ok(())
/// ```
pub fn poll_now(socket: RawSocket, interest: Interest) -> io::Result<Option<Interest>> {
    if interest.is_priority() {
        return Err(unsupported("Windows cannot poll for urgent data"));
    }
    let mut events = 0;
    if interest.is_readable() {
        events |= winsock::POLLRDNORM;
    }
    if interest.is_writable() {
        events |= winsock::POLLWRNORM;
    }
    let mut entry = winsock::PollFd {
        socket: socket as usize,
        events,
        revents: 0,
    };
    // SAFETY: one entry is passed, which outlives the call.
    match unsafe { winsock::WSAPoll(&mut entry, 1, 0) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => answer_of_poll(entry.revents, interest),
    }
}

fn answer_of_poll(answer: i16, interest: Interest) -> io::Result<Option<Interest>> {
    if answer & winsock::POLLNVAL != 0 {
        return Err(io::Error::from_raw_os_error(winsock::WSAENOTSOCK));
    }
    if answer & (winsock::POLLHUP | winsock::POLLERR) != 0 {
        return Ok(Some(interest));
    }
    let mut ready = Ready::EMPTY;
    if answer & winsock::POLLRDNORM != 0 {
        ready |= Ready::READABLE;
    }
    if answer & winsock::POLLWRNORM != 0 {
        ready |= Ready::WRITABLE;
    }
    Ok(ready.answers(interest))
}

/// Always fails: here a thread sleeps in its driver's waker, [`Wake::block`](crate::Wake::block).
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`].
pub(crate) fn sleep_on(_socket: RawSocket, _timeout: Option<Duration>) -> io::Result<()> {
    Err(unsupported("a driver's thread sleeps in its waker"))
}
