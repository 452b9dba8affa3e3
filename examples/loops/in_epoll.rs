//! The reactor in a loop that calls epoll itself.
//!
//! The reactor's queue is readable while the kernel has an event for it. For timers and other threads the host holds a
//! prepared sleep. The sleep has the timeout of the next timer, and while it exists, notifications make the queue readable.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::Duration,
};

use reactor::{Deadline, Events, Interest, Reactor, Source, Token};
use rustix::event::{
    Timespec,
    epoll::{self, EventData, EventFlags},
};

/// The host's keys of the reactor and of a socket of its own.
const REACTOR: u64 = 1;
const SOCKET: u64 = 2;

/// Waits for a socket of the host, and for a socket, a timer and a notification of the reactor. Returns their names, sorted.
pub fn run() -> io::Result<Vec<String>> {
    let host = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let (mut hosts, mut to_host) = UnixStream::pair()?;
    epoll::add(&host, &hosts, EventData::new_u64(SOCKET), EventFlags::IN)?;

    let mut reactor = Reactor::open(None)?;
    let queue = reactor.queue()?;
    epoll::add(&host, &queue, EventData::new_u64(REACTOR), EventFlags::IN)?;

    let (ours, mut to_us) = UnixStream::pair()?;
    let ours = Source::new(ours);
    _ = ours.wait(&mut reactor, Interest::READABLE, Token::new(1, 0))?;
    reactor.timer(Deadline::after(Duration::from_millis(20)), Token::new(2, 0));
    let handle = reactor.handle();
    let thread = thread::spawn(move || {
        thread::sleep(Duration::from_millis(5));
        to_host.write_all(b"x")?;
        to_us.write_all(b"x")?;
        handle.notify(Token::new(3, 0))?;
        io::Result::Ok((to_host, to_us)) // Kept open: the ends of the streams would be events, too.
    });

    let (mut found, mut events) = (Vec::new(), Events::new());
    let mut reported = Vec::with_capacity(16);
    while found.len() < 4 {
        let sleep = reactor.sleep(None);
        let limit = sleep.timeout().map(|limit| Timespec {
            tv_sec: limit.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        reported.clear();
        let room = rustix::buffer::spare_capacity(&mut reported);
        match epoll::wait(&host, room, limit.as_ref()) {
            Err(rustix::io::Errno::INTR) => {}
            result => _ = result?,
        }
        drop(sleep);
        for event in &reported {
            if event.data.u64() == SOCKET {
                hosts.read_exact(&mut [0])?;
                found.push("host: socket".to_owned());
            }
        }
        // If the queue was readable or a timer is due, this finds the events. It never blocks.
        events.clear();
        reactor.collect(&mut events)?;
        for event in &events {
            found.push(format!(
                "reactor: {} {:?}",
                event.token.index(),
                event.ready
            ));
        }
    }
    drop(thread.join());
    found.sort();
    Ok(found)
}
