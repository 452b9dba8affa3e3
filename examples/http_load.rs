//! A bounded HTTP/1.1 load: REQUESTS requests over CONNECTIONS connections at a time, in one thread on one reactor.
//!
//! ```text
//! http_load 127.0.0.1:8080 CONNECTIONS REQUESTS keep-alive|close
//! ```
//!
//! Prints one line of JSON: requests answered, errors, seconds, and latencies in microseconds.

use std::{
    collections::VecDeque,
    env,
    error::Error,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use reactor::{Descriptor, Events, Interest, OwnerId, Reactor, Token, Wait};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, connections, requests, mode] = arguments.as_slice() else {
        return Err("usage: http_load ADDRESS CONNECTIONS REQUESTS keep-alive|close".into());
    };
    let connections: usize = connections.parse()?;
    let mut load = Load::new(
        address.parse()?,
        requests.parse()?,
        connections,
        mode == "keep-alive",
    )?;
    let started = Instant::now();
    load.run()?;
    let seconds = started.elapsed().as_secs_f64();
    let [p50, p99, max] = load.latencies();
    println!(
        "{{\"requests\":{},\"errors\":{},\"seconds\":{seconds:.6},\"p50\":{p50},\"p99\":{p99},\"max\":{max}}}",
        load.latencies.len(),
        load.errors
    );
    Ok(())
}

struct Load {
    reactor: Reactor,
    address: SocketAddr,
    keep_alive: bool,
    /// Requests that each connection slot has still to make.
    quotas: Vec<usize>,
    connections: Vec<Option<Connection>>,
    opened: u64,
    errors: usize,
    latencies: Vec<u32>,
}

struct Connection {
    stream: TcpStream,
    owner: OwnerId,
    answer: Answer,
    sent: Instant,
}

impl Load {
    fn new(
        address: SocketAddr,
        requests: usize,
        connections: usize,
        keep_alive: bool,
    ) -> io::Result<Self> {
        let share = |slot| requests / connections + usize::from(slot < requests % connections);
        Ok(Self {
            reactor: Reactor::open(None)?,
            address,
            keep_alive,
            quotas: (0..connections).map(share).collect(),
            connections: (0..connections).map(|_| None).collect(),
            opened: 0,
            errors: 0,
            latencies: Vec::with_capacity(requests),
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut due: VecDeque<usize> = (0..self.connections.len()).collect();
        let mut events = Events::default();
        loop {
            while let Some(slot) = due.pop_front() {
                self.advance(slot)?;
            }
            if self.connections.iter().all(Option::is_none) {
                return Ok(());
            }
            events.clear();
            let limit = Duration::from_secs(30);
            let timeout = Instant::now() + limit;
            while events.is_empty() {
                self.reactor.turn(&mut events, Some(limit))?;
                if events.is_empty() && self.reactor.clock() >= timeout {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            due.extend(events.iter().map(|event| event.token.index() as usize));
        }
    }

    /// Continues one connection until it would block or its quota is done.
    fn advance(&mut self, slot: usize) -> io::Result<()> {
        loop {
            if self.connections[slot].is_none() && !self.open(slot)? {
                return Ok(());
            }
            let Some(connection) = &mut self.connections[slot] else {
                return Ok(());
            };
            match connection.answer.read_from(&mut connection.stream) {
                Ok(true) => {
                    let elapsed = connection.sent.elapsed().as_micros();
                    self.latencies.push(elapsed.try_into().unwrap_or(u32::MAX));
                    self.quotas[slot] -= 1;
                    if !self.keep_alive || self.quotas[slot] == 0 {
                        self.close(slot);
                    } else {
                        connection.request(true)?;
                    }
                }
                Ok(false) => {
                    self.errors += 1;
                    self.quotas[slot] -= 1;
                    self.close(slot);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.wait(slot);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.errors += 1;
                    self.quotas[slot] -= 1;
                    self.close(slot);
                }
            }
        }
    }

    fn open(&mut self, slot: usize) -> io::Result<bool> {
        if self.quotas[slot] == 0 {
            return Ok(false);
        }
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        self.opened += 1;
        let mut connection = Connection {
            stream,
            owner: OwnerId(self.opened),
            answer: Answer::default(),
            sent: Instant::now(),
        };
        connection.request(self.keep_alive)?;
        self.connections[slot] = Some(connection);
        Ok(true)
    }

    fn wait(&mut self, slot: usize) -> io::Result<()> {
        let Some(connection) = &self.connections[slot] else {
            return Ok(());
        };
        let token = Token::new(slot as u32, 0);
        let descriptor = descriptor(&connection.stream);
        let owner = connection.owner;
        match self
            .reactor
            .wait(descriptor, owner, Interest::READABLE, token)?
        {
            Wait::Pending(_) => Ok(()),
            Wait::Ready(_) => Err(io::ErrorKind::Unsupported.into()), // Never for a socket.
        }
    }

    fn close(&mut self, slot: usize) {
        if let Some(connection) = self.connections[slot].take() {
            self.reactor.deregister(descriptor(&connection.stream));
        }
    }

    fn latencies(&mut self) -> [u32; 3] {
        self.latencies.sort_unstable();
        let at = |share: f64| {
            let last = self.latencies.len().saturating_sub(1);
            self.latencies
                .get((last as f64 * share) as usize)
                .copied()
                .unwrap_or(0)
        };
        [at(0.5), at(0.99), at(1.0)]
    }
}

impl Connection {
    fn request(&mut self, keep_alive: bool) -> io::Result<()> {
        const KEEP: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        const CLOSE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        self.answer = Answer::default();
        self.sent = Instant::now();
        // A request fits into any socket buffer that is empty.
        self.stream.write_all(if keep_alive { KEEP } else { CLOSE })
    }
}

/// The part of the answer to one request that has arrived.
#[derive(Default)]
struct Answer {
    head: Vec<u8>,
    /// Bytes of the body still to come, once the head is complete.
    body: Option<usize>,
}

impl Answer {
    /// Reads until the answer is complete (true), the peer has closed (false), or it would block.
    fn read_from(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        let mut buffer = [0; 16 * 1024];
        loop {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Ok(false);
            }
            if self.take(&buffer[..count]) {
                return Ok(true);
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> bool {
        if let Some(body) = &mut self.body {
            *body = body.saturating_sub(bytes.len());
            return *body == 0;
        }
        self.head.extend_from_slice(bytes);
        let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else {
            return false;
        };
        let length = content_length(&self.head[..end]);
        let rest = length.saturating_sub(self.head.len() - end - 4);
        self.body = Some(rest);
        rest == 0
    }
}

fn content_length(head: &[u8]) -> usize {
    let text = String::from_utf8_lossy(head);
    let value = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse().ok())
            .flatten()
    });
    value.unwrap_or(0)
}

#[cfg(unix)]
fn descriptor(stream: &TcpStream) -> Descriptor {
    std::os::fd::AsRawFd::as_raw_fd(stream)
}

#[cfg(windows)]
fn descriptor(stream: &TcpStream) -> Descriptor {
    std::os::windows::io::AsRawSocket::as_raw_socket(stream)
}
