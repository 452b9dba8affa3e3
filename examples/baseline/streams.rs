//! Workloads with many bytes or with many connections.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
};

use super::{
    messages::{ANY, tcp_pair},
    poll::Poll,
    report::{check, measure, mebibytes, plainly},
};

/// One end of a connection, and the bytes that it has still to send and to receive.
struct End<S> {
    stream: S,
    to_send: usize,
    to_receive: usize,
    writing: bool,
}

impl<S: Read + Write + std::os::fd::AsFd> End<S> {
    fn new(stream: S) -> Self {
        Self {
            stream,
            to_send: 0,
            to_receive: 0,
            writing: false,
        }
    }

    /// Sends until the socket is full. It waits for room only while bytes are left.
    fn send(&mut self, poll: &Poll, number: usize, body: &[u8]) -> io::Result<()> {
        while self.to_send > 0 {
            let part = self.to_send.min(body.len());
            match self.stream.write(&body[body.len() - part..]) {
                Ok(sent) => self.to_send -= sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let writing = self.to_send > 0;
        if writing != self.writing {
            poll.change(&self.stream, number, writing)?;
            self.writing = writing;
        }
        Ok(())
    }

    /// One read. Zero if it would block.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(buffer) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) => Ok(got),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }
}

/// `clients` ask with a byte and read an answer of `size` bytes, `count` times in all.
pub fn transfer(clients: usize, size: usize, count: usize) -> io::Result<()> {
    let listener = TcpListener::bind(ANY)?;
    let mut poll = Poll::new()?;
    let mut ends = Vec::new();
    for _ in 0..clients {
        let (near, far) = tcp_pair(&listener)?;
        for stream in [near, far] {
            poll.add(&stream, ends.len())?;
            ends.push(End::new(stream));
        }
    }
    measure(
        count,
        |count| answers(&mut poll, &mut ends, size, count),
        mebibytes(count * size),
    )
}

fn answers(
    poll: &mut Poll,
    ends: &mut [End<TcpStream>],
    size: usize,
    count: usize,
) -> io::Result<()> {
    let body = vec![b'x'; size];
    let mut buffer = vec![0; 256 << 10];
    let clients = ends.len() / 2;
    let mut left: Vec<usize> = (0..clients)
        .map(|index| count / clients + usize::from(index < count % clients))
        .collect();
    let mut done = 0;
    for client in 0..clients {
        ask(&mut ends[2 * client], &mut left[client], size)?;
    }
    while done < count {
        for number in poll.wait(None)? {
            let got = ends[number].receive(&mut buffer)?;
            let end = &mut ends[number];
            if number % 2 == 1 {
                end.to_send += got * size;
                end.send(poll, number, &body)?;
                continue;
            }
            end.to_receive -= got;
            if got > 0 && end.to_receive == 0 {
                done += 1;
                ask(end, &mut left[number / 2], size)?;
            }
        }
    }
    Ok(())
}

fn ask(client: &mut End<TcpStream>, left: &mut usize, size: usize) -> io::Result<()> {
    if *left > 0 {
        *left -= 1;
        client.to_receive = size;
        check(client.stream.write(b"?")?, 1, "bytes taken")?;
    }
    Ok(())
}

/// Both ends of a socket pair send and receive `count` messages at the same time.
pub fn mixed(size: usize, count: usize) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let (near, far) = UnixStream::pair()?;
    let mut ends = Vec::new();
    for stream in [near, far] {
        stream.set_nonblocking(true)?;
        poll.add(&stream, ends.len())?;
        ends.push(End::new(stream));
    }
    measure(
        count,
        |count| both_ways(&mut poll, &mut ends, size, count),
        mebibytes(2 * count * size),
    )
}

fn both_ways(
    poll: &mut Poll,
    ends: &mut [End<UnixStream>],
    size: usize,
    count: usize,
) -> io::Result<()> {
    let chunk = vec![b'x'; size];
    let mut buffer = vec![0; 4 * size];
    for (number, end) in ends.iter_mut().enumerate() {
        end.to_send = count * size;
        end.to_receive = count * size;
        end.send(poll, number, &chunk)?;
    }
    while ends.iter().any(|end| end.to_receive > 0) {
        for number in poll.wait(None)? {
            let end = &mut ends[number];
            end.to_receive -= end.receive(&mut buffer)?;
            end.send(poll, number, &chunk)?;
        }
    }
    Ok(())
}

/// `clients` at a time connect, receive a byte, close, and connect again.
pub fn accept_storm(clients: usize, count: usize) -> io::Result<()> {
    let listener = TcpListener::bind(ANY)?;
    rustix::net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let mut storm = Storm {
        poll: Poll::new()?,
        listener,
        streams: Vec::new(),
        free: [Vec::new(), Vec::new()],
    };
    storm.poll.add(&storm.listener, usize::MAX)?;
    measure(count, |count| storm.run(clients, count), plainly)
}

/// Connections that are opened and closed. Those of clients have even numbers, those of the server odd ones.
struct Storm {
    poll: Poll,
    listener: TcpListener,
    streams: Vec<Option<TcpStream>>,
    /// Free numbers: of clients, of the server.
    free: [Vec<usize>; 2],
}

impl Storm {
    fn run(&mut self, clients: usize, count: usize) -> io::Result<()> {
        let (mut opened, mut served) = (0, 0);
        while opened < clients.min(count) {
            opened += 1;
            self.connect()?;
        }
        while served < count {
            for number in self.poll.wait(None)? {
                if number == usize::MAX {
                    self.accept()?;
                    continue;
                }
                self.end(number)?;
                if number % 2 == 1 {
                    served += 1;
                } else if opened < count {
                    opened += 1;
                    self.connect()?;
                }
            }
        }
        Ok(())
    }

    fn connect(&mut self) -> io::Result<()> {
        let stream = TcpStream::connect(self.listener.local_addr()?)?;
        self.keep(stream, 0)
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((mut stream, _)) = self.listener.accept() {
            check(stream.write(b"!")?, 1, "bytes taken")?;
            self.keep(stream, 1)?;
        }
        Ok(())
    }

    fn keep(&mut self, stream: TcpStream, side: usize) -> io::Result<()> {
        if self.free[side].is_empty() {
            self.free[0].push(self.streams.len());
            self.free[1].push(self.streams.len() + 1);
            self.streams.extend([None, None]);
        }
        let number = self.free[side].pop().ok_or(ErrorKind::OutOfMemory)?;
        self.poll.add(&stream, number)?;
        self.streams[number] = Some(stream);
        Ok(())
    }

    /// A client reads its byte, or the server reads the end of a client's connection.
    fn end(&mut self, number: usize) -> io::Result<()> {
        let side = number % 2;
        let mut stream = self.streams[number].take().ok_or(ErrorKind::InvalidData)?;
        self.free[side].push(number);
        check(stream.read(&mut [0; 16])?, 1 - side, "bytes that came")
    }
}
