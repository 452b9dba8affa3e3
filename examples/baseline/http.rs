//! The HTTP server of bin/bench: reads to the blank line, writes a fixed answer. It requests load from the harness on
//! descriptor 4, and reads the account of the load on descriptor 3.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
};

use super::{
    messages::ANY,
    poll::Poll,
    report::{Usage, warm_up},
};

const LISTENER: usize = usize::MAX;
const HARNESS: usize = usize::MAX - 1;

struct Server {
    poll: Poll,
    listener: TcpListener,
    answer: Vec<u8>,
    close: bool,
    connections: Vec<Option<(TcpStream, Vec<u8>)>>,
    free: Vec<usize>,
    asks: File,
    answers: BufReader<File>,
}

pub fn serve(count: usize, connections: usize, mode: &str, body_bytes: usize) -> io::Result<()> {
    let listener = TcpListener::bind(ANY)?;
    rustix::net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let body = "x".repeat(body_bytes);
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n{body}");
    let mut server = Server {
        poll: Poll::new()?,
        listener,
        answer: answer.into_bytes(),
        close: mode == "close",
        connections: Vec::new(),
        free: Vec::new(),
        asks: OpenOptions::new().write(true).open("/dev/fd/4")?,
        answers: BufReader::new(File::open("/dev/fd/3")?),
    };
    server.poll.add(&server.listener, LISTENER)?;
    server.poll.add(server.answers.get_ref(), HARNESS)?;
    server.under_load(connections, warm_up(count).max(connections), mode)?;
    let usage = Usage::now();
    let account = server.under_load(connections, count, mode)?;
    if !account.contains("\"errors\":0,") {
        return Err(io::Error::other(account));
    }
    let seconds = figure(&account, "seconds");
    let extra = format!(
        ",\"rate\":{},\"p50\":{},\"p99\":{},\"max\":{}",
        count as f64 / seconds,
        figure(&account, "p50"),
        figure(&account, "p99"),
        figure(&account, "max")
    );
    usage.print(count, &extra)
}

/// A number in a flat JSON object.
fn figure(json: &str, name: &str) -> f64 {
    let (_, rest) = json
        .split_once(&format!("\"{name}\":"))
        .unwrap_or(("", "0"));
    let end = rest.find([',', '}']).unwrap_or(rest.len());
    rest[..end].trim().parse().unwrap_or(f64::NAN)
}

impl Server {
    /// Serves until the load has ended. Returns the account of the load.
    fn under_load(&mut self, connections: usize, count: usize, mode: &str) -> io::Result<String> {
        let port = self.listener.local_addr()?.port();
        let ask = format!("[\"load\",{port},{connections},{count},\"{mode}\"]\n");
        self.asks.write_all(ask.as_bytes())?;
        loop {
            for number in self.poll.wait(None)? {
                match number {
                    LISTENER => self.accept()?,
                    HARNESS => {
                        let mut line = String::new();
                        self.answers.read_line(&mut line)?;
                        return Ok(line);
                    }
                    connection => self.answer(connection)?,
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nodelay(true)?;
            let number = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.poll.add(&stream, number)?;
            self.connections[number] = Some((stream, Vec::new()));
        }
        Ok(())
    }

    fn answer(&mut self, number: usize) -> io::Result<()> {
        let Some((stream, head)) = &mut self.connections[number] else {
            return Ok(());
        };
        let mut buffer = [0; 4096];
        let got = match stream.read(&mut buffer) {
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(error),
        };
        head.extend_from_slice(&buffer[..got]);
        let complete = head.ends_with(b"\r\n\r\n");
        if complete {
            head.clear();
            stream.write_all(&self.answer)?;
        }
        if got == 0 || (complete && self.close) {
            self.connections[number] = None;
            self.free.push(number);
        }
        Ok(())
    }
}
