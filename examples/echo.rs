//! A TCP echo server in one thread: it tries first, and waits only if the call would have blocked.
//!
//! ```text
//! echo ADDRESS CONNECTIONS
//! ```
//!
//! Serves this number of connections and exits.

use std::collections::HashMap;
use std::io::{self, ErrorKind::WouldBlock, Read, Write};
use std::net::{TcpListener, TcpStream};

use reactor::{Events, Interest, Reactor, Source, Token};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [address, connections] = arguments.as_slice() else {
        return Err("usage: echo ADDRESS CONNECTIONS".into());
    };
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    Ok(serve(listener, connections.parse()?)?)
}

/// Accepts `connections` connections, echoes their bytes, and returns when the last one is closed.
pub fn serve(listener: TcpListener, connections: u32) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = Source::new(listener);
    let (mut reactor, mut events) = (Reactor::open(None)?, Events::new());
    let mut served = HashMap::new();
    let mut accepted = 0;
    _ = listener.wait(&mut reactor, Interest::READABLE, Token::new(0, 0))?;
    while accepted < connections || !served.is_empty() {
        events.clear();
        reactor.turn(&mut events, None)?;
        for token in events.iter().map(|event| event.token) {
            if let Some((mut source, mut backlog)) = served.remove(&token) {
                match echo(&mut source, &mut backlog, &mut reactor) {
                    Some(interest) => {
                        _ = source.wait(&mut reactor, interest, token)?;
                        served.insert(token, (source, backlog));
                    }
                    None => source.close(&mut reactor),
                }
            } else if token.index() == 0 && accepted < connections {
                if let Ok((stream, _)) = listener.get_ref().accept() {
                    stream.set_nonblocking(true)?;
                    accepted += 1;
                    let (source, token) = (Source::new(stream), Token::new(accepted, 0));
                    _ = source.wait(&mut reactor, Interest::READABLE, token)?;
                    served.insert(token, (source, Vec::new()));
                }
                _ = listener.wait(&mut reactor, Interest::READABLE, token)?;
            }
        }
    }
    Ok(())
}

/// Echoes until a call would block, or others have waited for long enough. Returns the direction for which to wait; `None` if the
/// client has gone.
fn echo(
    source: &mut Source<TcpStream>,
    backlog: &mut Vec<u8>,
    reactor: &mut Reactor,
) -> Option<Interest> {
    let mut buffer = [0; 16 * 1024];
    for _ in 0..32 {
        let reads = backlog.is_empty();
        let moved = source.attempt(reactor, direction(reads), |stream| match reads {
            true => stream.read(&mut buffer),
            false => stream.write(backlog),
        });
        match moved {
            Ok(0) => return None,
            Ok(count) if reads => backlog.extend_from_slice(&buffer[..count]),
            Ok(count) => drop(backlog.drain(..count)),
            Err(error) if error.kind() == WouldBlock => break,
            Err(_) => return None,
        }
    }
    Some(direction(backlog.is_empty()))
}

fn direction(reads: bool) -> Interest {
    match reads {
        true => Interest::READABLE,
        false => Interest::WRITABLE,
    }
}
