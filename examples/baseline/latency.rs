//! The latency of one ready connection among many.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use rustix::time::ClockId;

use super::{
    poll::Poll,
    report::{Usage, check, time, warm_up},
};

/// The distance between two connections that are written to one after the other. It divides no number of connections.
const STRIDE: usize = 7919;

/// The process that writes. It connects, prints a line, and waits for a byte on its first connection. Then it sends the time to
/// one connection after another, every `interval` microseconds, and stays until its standard input ends.
pub fn ping(port: u16, connections: usize, messages: usize, interval: u64) -> io::Result<()> {
    raise_limit();
    let mut streams = dial(port, connections)?;
    println!("{{\"connected\":{connections}}}");
    send(&mut streams, messages, interval)?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// Connections to one address. Linux finds half of the ports of the other end at once, and the others only after a long search.
const PER_ADDRESS: usize = 10_000;

/// Connects to 127.0.0.1, and with more connections to the loopback addresses after it.
fn dial(port: u16, connections: usize) -> io::Result<Vec<TcpStream>> {
    (0..connections)
        .map(|number| {
            let address =
                Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + (number / PER_ADDRESS) as u32);
            let stream = TcpStream::connect((address, port))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
        .collect()
}

fn send(streams: &mut [TcpStream], messages: usize, interval: u64) -> io::Result<()> {
    streams[0].read_exact(&mut [0])?;
    for message in 0..messages {
        if interval > 0 {
            thread::sleep(Duration::from_micros(interval));
        }
        let connection = message * STRIDE % streams.len();
        streams[connection].write_all(&nanoseconds().to_le_bytes())?;
    }
    Ok(())
}

fn nanoseconds() -> u64 {
    time(ClockId::Monotonic).as_nanos() as u64
}

/// The process that reads, on raw epoll.
pub fn wakeup(connections: usize, count: usize) -> io::Result<()> {
    raise_limit();
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    rustix::net::listen(&listener, 4096)?;
    let port = listener.local_addr()?.port();
    let skipped = warm_up(count);
    let program = std::env::current_exe()?;
    let words = [port.into(), connections, count + skipped, 1000].map(|word| word.to_string());
    let mut other = std::process::Command::new(program)
        .arg("ping")
        .args(words)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let mut poll = Poll::new()?;
    let mut streams = Vec::with_capacity(connections);
    while streams.len() < connections {
        let stream = listener.accept()?.0;
        poll.add(&stream, streams.len())?;
        streams.push(stream);
    }
    streams[0].write_all(b"g")?;
    let usage = Usage::now();
    let mut late = Vec::with_capacity(count + skipped);
    while late.len() < count + skipped {
        for number in poll.wait(None)? {
            let mut sent = [0; 8];
            check(streams[number].read(&mut sent)?, 8, "bytes of a message")?;
            late.push((nanoseconds() - u64::from_le_bytes(sent)) as f64 / 1000.0);
        }
    }
    late.drain(..skipped);
    let late: Vec<String> = late.iter().map(|late| format!("{late:.1}")).collect();
    usage.print(count, &format!(",\"latencies\":[{}]", late.join(",")))?;
    drop(other.stdin.take());
    other.wait()?;
    Ok(())
}

/// Raises the limit of open files to its maximum.
fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If this fails, opening a descriptor above the limit fails later.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}
