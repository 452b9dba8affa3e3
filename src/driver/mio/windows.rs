//! Windows: sources are sockets, and mio wants to own what it polls.

use std::{
    collections::HashMap,
    io,
    mem::ManuallyDrop,
    os::windows::io::{FromRawSocket, IntoRawSocket, RawSocket},
    sync::Arc,
    time::Duration,
};

use mio::{Registry, event::Source, net::UdpSocket};

use crate::{
    driver::{Registration, Reregistration, Wake},
    event::Ready,
    interest::Interest,
    token::Token,
};

/// `WSAPoll` and what it speaks, from winsock2.h.
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

/// The one number that is never a socket; see winsock2.h.
const INVALID_SOCKET: RawSocket = RawSocket::MAX;

/// The sockets mio polls for us. It disarms each one with the event it reports, so whatever has fired is armed again
/// before the next poll: a level-triggered port.
#[derive(Debug, Default)]
pub(super) struct Sources {
    sockets: HashMap<RawSocket, Borrowed>,
    tokens: HashMap<Token, RawSocket>,
    fired: Vec<Token>,
}

/// A socket of the caller's, dressed as one of mio's. It is never closed by us.
#[derive(Debug)]
struct Borrowed {
    socket: ManuallyDrop<UdpSocket>,
    token: Token,
    interest: Interest,
}

impl Borrowed {
    fn register(
        registry: &Registry,
        socket: RawSocket,
        token: Token,
        interest: Interest,
    ) -> io::Result<Self> {
        let asked = translate(interest)?;
        if socket == INVALID_SOCKET {
            return Err(io::Error::from_raw_os_error(winsock::WSAENOTSOCK));
        }
        // SAFETY: it is no INVALID_SOCKET, and the UdpSocket is only a handle for mio to poll. It is taken apart again in Drop, before it could
        // close the socket, which stays the caller's.
        let source = unsafe { UdpSocket::from_raw_socket(socket) };
        let mut borrowed = Self {
            socket: ManuallyDrop::new(source),
            token,
            interest,
        };
        borrowed
            .socket
            .register(registry, mio::Token(token.into()), asked)?;
        Ok(borrowed)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // SAFETY: the socket is taken exactly once, here, and not used afterwards.
        let socket = unsafe { ManuallyDrop::take(&mut self.socket) };
        // This ends mio's poll of the socket and leaves the socket itself open.
        _ = socket.into_raw_socket();
    }
}

impl Sources {
    pub(super) fn register(
        &mut self,
        registry: &Registry,
        socket: RawSocket,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registration> {
        self.remove(socket);
        let borrowed = Borrowed::register(registry, socket, token, interest)?;
        self.sockets.insert(socket, borrowed);
        self.tokens.insert(token, socket);
        Ok(Registration::Armed)
    }

    /// What mio polls is the socket that was open when it was registered; the number may have a new owner by now. So it
    /// is always registered afresh.
    pub(super) fn reregister(
        &mut self,
        registry: &Registry,
        socket: RawSocket,
        token: Token,
        interest: Interest,
    ) -> io::Result<Reregistration> {
        let known = self.sockets.contains_key(&socket);
        self.register(registry, socket, token, interest)?;
        Ok(if known {
            Reregistration::Kept
        } else {
            Reregistration::Renewed
        })
    }

    pub(super) fn deregister(&mut self, _registry: &Registry, socket: RawSocket) -> io::Result<()> {
        self.remove(socket);
        Ok(())
    }

    fn remove(&mut self, socket: RawSocket) {
        if let Some(borrowed) = self.sockets.remove(&socket) {
            self.tokens.remove(&borrowed.token);
        }
    }

    /// mio's own waker, a completion packet, is good.
    pub(super) fn open_waker(&mut self, _registry: &Registry) -> io::Result<Option<Arc<dyn Wake>>> {
        Ok(None)
    }

    /// A completion packet is gone once it was heard.
    pub(super) fn woken(&mut self, _registry: &Registry) -> io::Result<()> {
        Ok(())
    }

    /// Arms again what the last poll has reported.
    pub(super) fn renew_fired(&mut self, registry: &Registry) {
        for token in std::mem::take(&mut self.fired) {
            let Some(socket) = self.tokens.get(&token).copied() else {
                continue;
            };
            let Some(interest) = self.sockets.get(&socket).map(|known| known.interest) else {
                continue;
            };
            // A socket that was closed meanwhile is not ours to report: its waiters are told when they re-arm.
            _ = self.register(registry, socket, token, interest);
        }
    }

    /// Takes note of what has to be armed again.
    pub(super) fn refine(&mut self, token: Token, ready: Ready) -> Ready {
        self.fired.push(token);
        ready
    }
}

pub(super) fn pollable(_poll: &mio::Poll) -> Option<RawSocket> {
    None
}

fn translate(interest: Interest) -> io::Result<mio::Interest> {
    if interest.is_priority() {
        return Err(unsupported("urgent data cannot be waited for on Windows"));
    }
    Ok(match (interest.is_readable(), interest.is_writable()) {
        (true, true) => mio::Interest::READABLE.add(mio::Interest::WRITABLE),
        (_, true) => mio::Interest::WRITABLE,
        _ => mio::Interest::READABLE,
    })
}

fn unsupported(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// Asks the kernel, without waiting, which of the directions a socket is ready for: `WSAPoll` with a zero timeout.
///
/// None means none of them. A hang-up and an error count as ready for everything asked.
///
/// # Errors
///
/// `WSAENOTSOCK` if it is no open socket; [`io::ErrorKind::Unsupported`] for [`Interest::PRIORITY`]; otherwise those of
/// `WSAPoll`.
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
        return Err(unsupported("urgent data cannot be polled for on Windows"));
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
    // SAFETY: one entry is passed, it is ours and outlives the call.
    match unsafe { winsock::WSAPoll(&mut entry, 1, 0) } {
        0 => Ok(None),
        1 => answer_of_poll(entry.revents, interest),
        _ => Err(io::Error::last_os_error()),
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

/// There is nothing to sleep on: the driver has no descriptor.
pub(crate) fn sleep_on(_socket: RawSocket, _timeout: Option<Duration>) -> io::Result<()> {
    Err(unsupported("the driver has no descriptor to sleep on"))
}
