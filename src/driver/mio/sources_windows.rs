//! Windows: sources are sockets. mio owns the sockets it polls, so each is wrapped without transferring ownership.

use std::{
    collections::HashMap,
    io,
    mem::ManuallyDrop,
    os::windows::io::{FromRawSocket, IntoRawSocket, RawSocket},
};

use mio::{Registry, event::Source, net::UdpSocket};

use crate::{
    descriptor::{bad_descriptor, unsupported},
    driver::Registration,
    event::Ready,
    interest::Interest,
    token::Token,
};

/// The number that is never a socket; see winsock2.h.
const INVALID_SOCKET: RawSocket = RawSocket::MAX;

/// The registered sockets. mio disarms a socket when it reports an event, and the next poll or sleep re-arms the
/// socket. This makes the driver level-triggered.
#[derive(Debug, Default)]
pub(super) struct Sources {
    sockets: HashMap<RawSocket, Registered>,
    tokens: HashMap<Token, RawSocket>,
    /// Sockets that have fired since they were last armed. Some may have been reregistered or deregistered since.
    fired: Vec<RawSocket>,
}

#[derive(Debug)]
struct Registered {
    token: Token,
    interest: Interest,
    /// None from an event until the socket is re-armed.
    polled: Option<Borrowed>,
}

/// A caller's socket wrapped in a mio type. Never closed here.
#[derive(Debug)]
struct Borrowed(ManuallyDrop<UdpSocket>);

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
        // SAFETY: the number is not INVALID_SOCKET. mio only polls the UdpSocket. `Drop` unwraps it before it could close the
        // socket, which belongs to the caller.
        let source = unsafe { UdpSocket::from_raw_socket(socket) };
        let mut borrowed = Self(ManuallyDrop::new(source));
        borrowed
            .0
            .register(registry, mio::Token(token.into()), asked)?;
        Ok(borrowed)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // SAFETY: the socket is taken once, here, and not used afterwards.
        let socket = unsafe { ManuallyDrop::take(&mut self.0) };
        // Ends mio's poll of the socket, and leaves the socket open.
        _ = socket.into_raw_socket();
    }
}

impl Sources {
    /// Always registers anew: mio polls the socket that was open at registration, but its number may have been reused
    /// for another socket since.
    pub(super) fn register(
        &mut self,
        registry: &Registry,
        socket: RawSocket,
        token: Token,
        interest: Interest,
        is_known: bool,
    ) -> io::Result<Registration> {
        let is_kept = is_known && self.sockets.contains_key(&socket);
        self.remove(socket);
        let polled = Some(Borrowed::register(registry, socket, token, interest)?);
        let registered = Registered {
            token,
            interest,
            polled,
        };
        self.sockets.insert(socket, registered);
        self.tokens.insert(token, socket);
        Ok(match is_kept {
            true => Registration::Kept,
            false => Registration::New,
        })
    }

    pub(super) fn deregister(&mut self, _registry: &Registry, socket: RawSocket) -> io::Result<()> {
        self.remove(socket);
        Ok(())
    }

    /// Forgets the socket, because fired sockets are re-armed by number, and by then another handle may have the
    /// number. (Wine 10.0's server exits if that handle is an AFD one.)
    pub(super) fn note_close(&mut self, socket: RawSocket) {
        self.remove(socket);
    }

    fn remove(&mut self, socket: RawSocket) {
        if let Some(registered) = self.sockets.remove(&socket) {
            self.tokens.remove(&registered.token);
        }
    }

    /// mio disarmed this token's socket with an event. Ending its poll now saves calls: mio would keep polling the
    /// socket for errors and have to cancel that to re-arm it. A round trip takes 4 calls to the port and AFD instead
    /// of 7 (counted under Wine).
    pub(super) fn fired(&mut self, token: mio::Token) {
        let Some(socket) = self.tokens.get(&Token::from(token.0)) else {
            return;
        };
        if let Some(registered) = self.sockets.get_mut(socket) {
            registered.polled = None;
            self.fired.push(*socket);
        }
    }

    /// Re-arms the sockets that have fired.
    pub(super) fn arm_fired(&mut self, registry: &Registry) {
        for socket in std::mem::take(&mut self.fired) {
            let Some(registered) = self.sockets.get_mut(&socket) else {
                continue;
            };
            let Registered {
                token, interest, ..
            } = *registered;
            if registered.polled.is_none() {
                registered.polled = Borrowed::register(registry, socket, token, interest).ok();
            }
            // If the socket was closed, re-arming it answers its waits.
            if registered.polled.is_none() {
                self.remove(socket);
            }
        }
    }

    /// Returns `ready` unchanged: mio reports exactly the readiness that the socket has.
    pub(super) fn refine(&self, _token: Token, ready: Ready) -> Ready {
        ready
    }
}

fn translate(interest: Interest) -> io::Result<mio::Interest> {
    if interest.is_priority() {
        return Err(unsupported("Windows cannot wait for urgent data"));
    }
    Ok(match (interest.is_readable(), interest.is_writable()) {
        (true, true) => mio::Interest::READABLE.add(mio::Interest::WRITABLE),
        (_, true) => mio::Interest::WRITABLE,
        _ => mio::Interest::READABLE,
    })
}
