//! Windows: sources are sockets, and mio wants to own what it polls.

use std::{
    collections::HashMap,
    io,
    mem::ManuallyDrop,
    os::windows::io::{FromRawSocket, IntoRawSocket, RawSocket},
    sync::Arc,
};

use mio::{Registry, event::Source, net::UdpSocket};

use crate::{
    descriptor::{bad_descriptor, unsupported},
    driver::{Registration, Reregistration, Wake},
    event::Ready,
    interest::Interest,
    token::Token,
};

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
            return Err(bad_descriptor());
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
