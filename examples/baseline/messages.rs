//! Round trips of messages of one size: each client waits for its answer before it sends again.

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use super::{
    poll::Poll,
    report::{check, measure, plainly},
};

pub const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The two ends of one conversation, each with the descriptor that it reads and the one that it writes.
struct Pair {
    near: (OwnedFd, OwnedFd),
    far: (OwnedFd, OwnedFd),
    /// Messages that the near end has still to send.
    left: usize,
}

pub fn tcp_pair(listener: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    for stream in [&near, &far] {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    Ok((near, far))
}

/// `clients` TCP connections, beside `parked` UDP sockets that receive no message.
pub fn tcp(clients: usize, size: usize, parked: usize, count: usize) -> io::Result<()> {
    let listener = TcpListener::bind(ANY)?;
    let mut pairs = Vec::new();
    for _ in 0..clients {
        let (near, far) = tcp_pair(&listener)?;
        pairs.push(both(near.into(), far.into())?);
    }
    let parked: Vec<UdpSocket> = (0..parked)
        .map(|_| UdpSocket::bind(ANY))
        .collect::<io::Result<_>>()?;
    exchange(pairs, &parked, size, count)
}

pub fn unix(count: usize) -> io::Result<()> {
    let (near, far) = UnixStream::pair()?;
    exchange(vec![both(near.into(), far.into())?], &[], 1, count)
}

pub fn pipe(count: usize) -> io::Result<()> {
    let (near, to_near) = rustix::pipe::pipe()?;
    let (far, to_far) = rustix::pipe::pipe()?;
    let pair = Pair {
        near: (near, to_far),
        far: (far, to_near),
        left: 0,
    };
    exchange(vec![pair], &[], 1, count)
}

pub fn udp(clients: usize, size: usize, count: usize) -> io::Result<()> {
    let mut pairs = Vec::new();
    for _ in 0..clients {
        let (near, far) = (UdpSocket::bind(ANY)?, UdpSocket::bind(ANY)?);
        near.connect(far.local_addr()?)?;
        far.connect(near.local_addr()?)?;
        pairs.push(both(near.into(), far.into())?);
    }
    exchange(pairs, &[], size, count)
}

fn both(near: OwnedFd, far: OwnedFd) -> io::Result<Pair> {
    let near = (near.try_clone()?, near);
    let far = (far.try_clone()?, far);
    Ok(Pair { near, far, left: 0 })
}

fn exchange(
    mut pairs: Vec<Pair>,
    parked: &[UdpSocket],
    size: usize,
    count: usize,
) -> io::Result<()> {
    let mut poll = Poll::new()?;
    for (index, pair) in pairs.iter().enumerate() {
        poll.add(&pair.near.0, 2 * index)?;
        poll.add(&pair.far.0, 2 * index + 1)?;
    }
    for socket in parked {
        poll.add(socket, usize::MAX)?;
    }
    measure(
        count,
        |count| run(&mut poll, &mut pairs, size, count),
        plainly,
    )
}

fn run(poll: &mut Poll, pairs: &mut [Pair], size: usize, count: usize) -> io::Result<()> {
    let clients = pairs.len();
    let message = vec![b'x'; size];
    let mut buffer = vec![0; size];
    let mut answered = 0;
    for (index, pair) in pairs.iter_mut().enumerate() {
        pair.left = count / clients + usize::from(index < count % clients);
        if pair.left > 0 {
            write(&pair.near.1, &message)?;
        }
    }
    while answered < count {
        for number in poll.wait(None)? {
            let Some(pair) = pairs.get_mut(number / 2) else {
                return Err(ErrorKind::InvalidData.into());
            };
            if number % 2 == 1 {
                let got = rustix::io::read(&pair.far.0, &mut buffer)?;
                write(&pair.far.1, &buffer[..got])?;
                continue;
            }
            check(
                rustix::io::read(&pair.near.0, &mut buffer)?,
                size,
                "bytes of an answer",
            )?;
            answered += 1;
            pair.left -= 1;
            if pair.left > 0 {
                write(&pair.near.1, &message)?;
            }
        }
    }
    Ok(())
}

/// Writes a small message, which fits into an empty socket buffer.
fn write(to: impl AsFd, bytes: &[u8]) -> io::Result<()> {
    check(rustix::io::write(to, bytes)?, bytes.len(), "bytes taken")
}
