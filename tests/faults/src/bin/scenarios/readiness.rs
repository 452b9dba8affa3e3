//! Readiness, sleeps and timers.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::{fd::AsRawFd, unix::net::UnixStream},
    time::Duration,
};

use reactor::{Backend, Events, Interest, OwnerId, Reactor, Registration, Token, Wait, poll_now};
use reactor_faults::marks::library;
use rustix::pipe::pipe;

use super::{World, number, pair, print, report, retry};

const NOW: Option<Duration> = Some(Duration::ZERO);

pub fn open(world: &World) {
    // If the ring is refused for good, the next backend is used.
    let mut reactor = retry(|| match Reactor::open(Some(world.backend)) {
        Err(error) if error.raw_os_error().is_none() => {
            let reason = world.backend.availability().unwrap_err();
            report(&reason.into());
            Reactor::open(None)
        }
        result => result,
    });
    retry(|| reactor.turn(&mut Events::new(), NOW));
    if reactor.descriptor().is_some() {
        let queue = retry(|| reactor.queue());
        let readable = retry(|| poll_now(queue.as_raw_fd(), Interest::READABLE));
        print(&format!("readable {}", readable.is_some()));
        library(|| drop(queue));
    }
    let (ours, _theirs) = pair();
    let both = Interest::READABLE | Interest::WRITABLE;
    print(&format!("{:?}", retry(|| poll_now(number(&ours), both))));
    library(|| drop(reactor));
}

/// The driver alone. An edge that is lost never comes again.
pub fn events(world: &World) {
    let (_, mut driver) = Backend::open(Some(world.backend)).unwrap();
    let (stream, mut peer) = pair();
    let (reader, writer) = pipe().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let all = [number(&stream), number(&reader), number(&listener)];
    for round in 0..3 {
        let mut reported = BTreeSet::new();
        for (place, descriptor) in (0..).zip(all) {
            let token = Token::new(place, round);
            let is_known = round == 1;
            let registered =
                retry(|| driver.register(descriptor, token, Interest::READABLE, is_known));
            // The answer to EPERM: always ready.
            if registered == Registration::Unpollable {
                reported.insert(place);
            }
        }
        peer.write_all(b"x").unwrap();
        rustix::io::write(&writer, b"x").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let waker = driver.waker();
        retry(|| waker.wake());
        let mut events = Events::new();
        while reported.len() < all.len() {
            retry(|| driver.poll(&mut events, None));
            reported.extend(events.iter().map(|event| event.token.index()));
        }
        print(&format!("reported {reported:?}"));
        drop((listener.accept().unwrap(), client));
        (&stream).read_exact(&mut [0]).unwrap();
        rustix::io::read(&reader, &mut [0]).unwrap();
        if round == 1 {
            for descriptor in all {
                retry(|| driver.deregister(descriptor));
            }
        }
    }
    let manifest = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let registered = retry(|| {
        driver.register(
            number(&manifest),
            Token::new(9, 0),
            Interest::READABLE,
            false,
        )
    });
    print(&format!("file {}", registered == Registration::Unpollable));
    library(|| drop(driver));
}

/// Transfers that wait: an attempt, a wait, a turn, the next attempt.
pub fn waits(world: &World) {
    let mut reactor = Reactor::open(Some(world.backend)).unwrap();
    let (stream, mut peer) = pair();
    let (reader, writer) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&reader, true).unwrap();
    for round in 0..2 {
        let text = receive(&mut reactor, &stream, Interest::READABLE, || {
            peer.write_all(b"stream").unwrap();
        });
        print(&format!("{round} {text}"));
        let both = Interest::READABLE | Interest::WRITABLE;
        let text = receive(
            &mut reactor,
            &File::from(reader.try_clone().unwrap()),
            both,
            || {
                rustix::io::write(&writer, b"pipe").map(drop).unwrap();
            },
        );
        print(&format!("{round} {text}"));
    }
    // The number gets another file.
    let (other, mut peer) = pair();
    let text = receive(&mut reactor, &stream, Interest::READABLE, || {
        rustix::io::dup2(&other, &mut as_owned(&stream)).unwrap();
        peer.write_all(b"other").unwrap();
    });
    print(&text);
    library(|| reactor.deregister(number(&stream)));
    library(|| drop(reactor));
}

/// A second owner of the number, which never closes it.
fn as_owned(stream: &UnixStream) -> std::mem::ManuallyDrop<std::os::fd::OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: it is not dropped, and `stream` outlives it.
    std::mem::ManuallyDrop::new(unsafe { std::os::fd::OwnedFd::from_raw_fd(stream.as_raw_fd()) })
}

fn receive<S: AsRawFd>(
    reactor: &mut Reactor,
    source: &S,
    interest: Interest,
    mut send: impl FnMut(),
) -> String
where
    for<'a> &'a S: Read,
{
    let mut bytes = [0; 20];
    let mut send = Some(&mut send);
    let mut events = Events::new();
    loop {
        match (&*source).read(&mut bytes) {
            Ok(count) => return String::from_utf8_lossy(&bytes[..count]).into_owned(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        let (token, owner) = (Token::new(1, 0), OwnerId(1));
        let begun = library(|| {
            reactor.attempted(
                number(source),
                owner,
                interest,
                reactor::Attempt::WouldBlock,
            );
            reactor.wait(number(source), owner, interest, token)
        });
        if let Some(send) = send.take() {
            send();
            library(|| reactor.replaced(number(source)));
        }
        match begun {
            Ok(Wait::Ready(_)) => {}
            Err(error) => report(&error),
            Ok(Wait::Pending(_)) => {
                events.clear();
                while events.is_empty() {
                    retry(|| reactor.turn(&mut events, None));
                }
            }
        }
    }
}

/// Waits of a descriptor whose owner closes it, with and without notice.
pub fn closes(world: &World) {
    let mut reactor = Reactor::open(Some(world.backend)).unwrap();
    for notice in [true, false] {
        let (stream, _peer) = pair();
        let (token, owner) = (Token::new(1, 0), OwnerId(1));
        let wait = retry(|| reactor.wait(number(&stream), owner, Interest::READABLE, token));
        let Wait::Pending(wait) = wait else {
            print(&format!("{notice} answered")); // EPERM: always ready.
            continue;
        };
        if notice {
            library(|| reactor.deregister(number(&stream)));
        } else {
            library(|| reactor.note_close(number(&stream), owner));
        }
        drop(stream);
        let mut events = Events::new();
        while events.is_empty() {
            retry(|| reactor.turn(&mut events, None));
        }
        assert!(!library(|| reactor.end(wait)), "answered");
        print(&format!("{notice} answered"));
    }
    library(|| drop(reactor));
}

pub fn timers(world: &World) {
    let mut reactor = Reactor::open(Some(world.backend)).unwrap();
    for (index, milliseconds) in [(1, 3), (2, 1), (3, 2)] {
        library(|| {
            let deadline = reactor.deadline(Duration::from_millis(milliseconds));
            reactor.timer(deadline, Token::new(index, 0))
        });
    }
    let mut elapsed = Vec::new();
    while elapsed.len() < 3 {
        let mut events = Events::new();
        let turned: io::Result<()> = library(|| reactor.turn(&mut events, None));
        elapsed.extend(events.iter().map(|event| event.token.index()));
        if let Err(error) = turned {
            report(&error);
        }
    }
    elapsed.sort_unstable();
    print(&format!("elapsed {elapsed:?}"));
    library(|| drop(reactor));
}
