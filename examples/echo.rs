//! A TCP echo server in one thread. It tries first, reports the outcome to the reactor, and waits only if it would block.
//!
//! ```text
//! echo ADDRESS CONNECTIONS
//! ```
//!
//! Serves this number of connections and exits.

use std::{
    env,
    error::Error,
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
};

use reactor::{Attempt, Descriptor, Events, Interest, OwnerId, Reactor, Token, Wait};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, connections] = arguments.as_slice() else {
        return Err("usage: echo ADDRESS CONNECTIONS".into());
    };
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    serve(listener, connections.parse()?)?;
    Ok(())
}

/// Accepts `connections` connections, echoes their bytes, and returns when the last one is closed.
pub fn serve(listener: TcpListener, connections: usize) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut reactor = Reactor::open(None)?;
    let mut listener_watch = Watch::new(descriptor(&listener), 0);
    let mut served: Vec<Option<Connection>> = Vec::new();
    let mut open = 0;
    let mut events = Events::new();
    accept(
        &listener,
        &mut reactor,
        &mut listener_watch,
        connections,
        &mut served,
    )?;
    open += served.len();
    while open > 0 || served.len() < connections {
        events.clear();
        reactor.turn(&mut events, None)?;
        for event in &events {
            match event.token.index() as usize {
                0 => {
                    let before = served.len();
                    accept(
                        &listener,
                        &mut reactor,
                        &mut listener_watch,
                        connections,
                        &mut served,
                    )?;
                    open += served.len() - before;
                }
                number => {
                    let slot = &mut served[number - 1];
                    let Some(connection) = slot else { continue };
                    if !connection.echo(&mut reactor)? {
                        connection.watch.close(&mut reactor);
                        *slot = None;
                        open -= 1;
                    }
                }
            }
        }
    }
    listener_watch.close(&mut reactor);
    Ok(())
}

/// Accepts the pending connections, up to `limit` in all, and waits for the next one.
fn accept(
    listener: &TcpListener,
    reactor: &mut Reactor,
    listener_watch: &mut Watch,
    limit: usize,
    served: &mut Vec<Option<Connection>>,
) -> io::Result<()> {
    while served.len() < limit {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                let connection = Connection::new(stream, served.len() + 1);
                connection.watch.wait(reactor, Interest::READABLE)?;
                served.push(Some(connection));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                listener_watch.saw(reactor, Interest::READABLE, Attempt::WouldBlock);
                return listener_watch.wait(reactor, Interest::READABLE);
            }
            // The peer has closed the connection before it was accepted.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

struct Connection {
    stream: TcpStream,
    watch: Watch,
    /// Bytes that were read and have to be written.
    backlog: Vec<u8>,
}

impl Connection {
    fn new(stream: TcpStream, number: usize) -> Self {
        Self {
            watch: Watch::new(descriptor(&stream), number),
            stream,
            backlog: Vec::new(),
        }
    }

    /// Echoes until it would block, and starts a wait. False if the peer has closed the connection.
    fn echo(&mut self, reactor: &mut Reactor) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        loop {
            while !self.backlog.is_empty() {
                match self.stream.write(&self.backlog) {
                    Ok(count) => _ = self.backlog.drain(..count),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        return self.drained(reactor, Interest::WRITABLE);
                    }
                    Err(_) => return Ok(false),
                }
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => self.backlog.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.drained(reactor, Interest::READABLE);
                }
                Err(_) => return Ok(false),
            }
        }
    }

    fn drained(&mut self, reactor: &mut Reactor, interest: Interest) -> io::Result<bool> {
        self.watch.saw(reactor, interest, Attempt::WouldBlock);
        self.watch.wait(reactor, interest)?;
        Ok(true)
    }
}

/// A descriptor, its owner id, and the token of its waits.
struct Watch {
    descriptor: Descriptor,
    owner: OwnerId,
    token: Token,
}

impl Watch {
    fn new(descriptor: Descriptor, number: usize) -> Self {
        Self {
            descriptor,
            // Any number but 0 that is not used again.
            owner: OwnerId(number as u64 + 1),
            token: Token::new(number as u32, 0),
        }
    }

    fn wait(&self, reactor: &mut Reactor, interest: Interest) -> io::Result<()> {
        match reactor.wait(self.descriptor, self.owner, interest, self.token)? {
            Wait::Pending(_) => Ok(()), // Its event ends it.
            Wait::Ready(_) => Err(ErrorKind::Unsupported.into()), // Never for a socket.
        }
    }

    fn saw(&self, reactor: &mut Reactor, interest: Interest, attempt: Attempt) {
        reactor.attempted(self.descriptor, self.owner, interest, attempt);
    }

    fn close(&self, reactor: &mut Reactor) {
        reactor.deregister(self.descriptor);
    }
}

#[cfg(unix)]
fn descriptor(socket: &impl std::os::fd::AsRawFd) -> Descriptor {
    socket.as_raw_fd()
}

#[cfg(windows)]
fn descriptor(socket: &impl std::os::windows::io::AsRawSocket) -> Descriptor {
    socket.as_raw_socket()
}
