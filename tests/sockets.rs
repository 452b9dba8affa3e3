//! The contract of drivers, turns, wakes and timers, with sockets and safe sources only. These tests run on Windows, too.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    thread,
    time::{Duration, Instant},
};

use reactor::{
    AsDescriptor, Attempt, Backend, CachedReadiness, Driver, Event, Events, Interest, Reactor,
    Ready, Registration, Source, Token, Wait, WaitId,
};

use sockets::{NOW, TEST_TIMEOUT, backends, tcp};

#[path = "support/sockets.rs"]
mod sockets;

const READ: Interest = Interest::READABLE;
const WRITE: Interest = Interest::WRITABLE;
/// How long to wait for an event that must not come.
const SILENCE: Option<Duration> = Some(Duration::from_millis(20));

fn token(index: u32) -> Token {
    Token::new(index, 1)
}

// --- the driver ------------------------------------------------------------------------------------------------------

/// A driver, and a buffer for its events.
struct Port {
    driver: Box<dyn Driver>,
    events: Events,
}

impl Port {
    fn arm(&mut self, socket: &impl AsDescriptor, number: u32, interest: Interest) {
        let socket = socket.as_descriptor();
        let armed = self.driver.register(socket, token(number), interest, false);
        assert_ne!(armed.unwrap(), Registration::Unpollable);
    }

    fn poll(&mut self, timeout: Option<Duration>) -> Vec<Event> {
        self.driver.poll(&mut self.events, timeout).unwrap();
        self.events.to_vec()
    }

    /// Polls until the token is reported with all these reasons.
    fn until(&mut self, number: u32, expected: Ready) {
        let (mut seen, deadline) = (Ready::EMPTY, Instant::now() + TEST_TIMEOUT.unwrap());
        while !seen.contains(expected) {
            assert!(Instant::now() < deadline, "only {seen:?}");
            for event in self.poll(SILENCE) {
                assert_eq!(
                    event.token,
                    token(number),
                    "a token that was not registered"
                );
                seen |= event.ready;
            }
        }
    }
}

fn on_every_driver(test: impl Fn(&mut Port)) {
    for backend in backends() {
        let (_, driver) = Backend::open(Some(backend)).unwrap();
        test(&mut Port {
            driver,
            events: Events::new(),
        });
    }
}

#[test]
fn a_ready_socket_is_reported_at_once_and_when_it_is_registered_again() {
    on_every_driver(|port| {
        let (ours, mut theirs) = tcp();
        port.arm(&ours, 1, WRITE);
        port.until(1, Ready::WRITABLE);
        theirs.write_all(b"x").unwrap();
        let socket = ours.as_descriptor();
        let again = port.driver.register(socket, token(2), READ | WRITE, true);
        assert_eq!(again.unwrap(), Registration::Kept);
        port.until(2, Ready::READABLE | Ready::WRITABLE);
    });
}

#[test]
fn registering_twice_replaces() {
    on_every_driver(|port| {
        let (ours, mut theirs) = tcp();
        port.arm(&ours, 1, WRITE);
        port.arm(&ours, 2, READ);
        assert_eq!(port.poll(SILENCE), []);
        theirs.write_all(b"x").unwrap();
        port.until(2, Ready::READABLE);
    });
}

#[test]
fn a_deregistered_socket_is_silent_and_can_be_registered_again() {
    on_every_driver(|port| {
        let (ours, mut theirs) = tcp();
        port.arm(&ours, 1, READ);
        port.driver.deregister(ours.as_descriptor()).unwrap();
        port.driver.deregister(ours.as_descriptor()).unwrap();
        theirs.write_all(b"x").unwrap();
        assert_eq!(port.poll(SILENCE), []);
        port.arm(&ours, 2, READ);
        port.until(2, Ready::READABLE);
    });
}

#[test]
fn the_driver_does_not_close_sockets() {
    on_every_driver(|port| {
        let (mut ours, mut theirs) = tcp();
        port.arm(&ours, 1, READ | WRITE);
        port.until(1, Ready::WRITABLE);
        port.driver.deregister(ours.as_descriptor()).unwrap();
        port.arm(&ours, 2, WRITE);
        let (_, fresh) = Backend::open(None).unwrap();
        port.driver = fresh; // This drops the old driver, which has a registration.
        ours.write_all(b"still open").unwrap();
        let mut buffer = [0; 10];
        theirs.read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"still open");
    });
}

#[test]
fn a_closed_socket_never_fails_the_poll() {
    on_every_driver(|port| {
        let (ours, theirs) = tcp();
        port.arm(&ours, 1, READ);
        assert_eq!(port.poll(NOW), []);
        drop(ours);
        drop(theirs);
        for event in port.poll(SILENCE) {
            assert_eq!(event.token, token(1));
        }
        // A socket that is closed before the first poll.
        let (ours, _theirs) = tcp();
        port.arm(&ours, 2, READ | WRITE);
        drop(ours);
        for event in port.poll(SILENCE) {
            assert!([1, 2].contains(&event.token.index()));
        }
        let (ours, _theirs) = tcp();
        port.arm(&ours, 3, WRITE);
        let mut found = Ready::EMPTY;
        let deadline = Instant::now() + TEST_TIMEOUT.unwrap();
        while !found.contains(Ready::WRITABLE) {
            assert!(Instant::now() < deadline);
            let events = port.poll(SILENCE);
            let newest = events.iter().filter(|event| event.token == token(3));
            newest.for_each(|event| found |= event.ready);
        }
    });
}

#[test]
fn the_peers_shutdown_closes_the_reading_half() {
    on_every_driver(|port| {
        let (ours, theirs) = tcp();
        port.arm(&ours, 1, READ);
        theirs.shutdown(Shutdown::Write).unwrap();
        let deadline = Instant::now() + TEST_TIMEOUT.unwrap();
        loop {
            assert!(Instant::now() < deadline);
            let events = port.poll(SILENCE);
            let ready = events.iter().fold(Ready::EMPTY, |all, e| all | e.ready);
            if ready.answers(READ) == Some(READ) {
                let is_closed = ready.contains(Ready::READABLE | Ready::READ_CLOSED);
                assert!(is_closed || cfg!(windows), "{ready:?}");
                break assert!(!ready.intersects(Ready::HANGUP | Ready::ERROR));
            }
        }
    });
}

#[test]
fn no_wake_is_swallowed_by_a_registration() {
    on_every_driver(|port| {
        let waker = port.driver.waker();
        let (ours, _theirs) = tcp();
        for number in 0..20 {
            waker.wake().unwrap();
            port.arm(&ours, number, READ);
            assert_eq!(port.poll(None), []);
        }
    });
}

// --- turns -----------------------------------------------------------------------------------------------------------

fn on_every_reactor(test: impl Fn(Reactor)) {
    backends().for_each(|backend| test(Reactor::open(Some(backend)).unwrap()));
}

fn wait<T: AsDescriptor>(
    reactor: &mut Reactor,
    source: &Source<T>,
    interest: Interest,
    number: u32,
) -> WaitId {
    match source.wait(reactor, interest, token(number)) {
        Ok(Wait::Pending(wait)) => wait,
        other => panic!("expected a pending wait, got {other:?}"),
    }
}

/// Turns until there are `count` events.
fn turn(reactor: &mut Reactor, count: usize) -> Vec<Event> {
    let (mut events, deadline) = (Events::new(), Instant::now() + TEST_TIMEOUT.unwrap());
    while events.len() < count {
        assert!(Instant::now() < deadline, "only {:?}", &events[..]);
        reactor.turn(&mut events, TEST_TIMEOUT).unwrap();
    }
    events.to_vec()
}

#[test]
fn a_conversation_needs_one_registration() {
    on_every_reactor(|mut reactor| {
        let (ours, mut theirs) = tcp();
        let mut ours = Source::new(ours);
        let mut buffer = [0; 64];
        for number in 0..20 {
            wait(&mut reactor, &ours, READ, number);
            theirs.write_all(b"hello").unwrap();
            // Wait until the bytes have arrived: a wait that idles for 100 ms would be armed again and counted.
            while reactor::poll_now(ours.descriptor(), READ)
                .unwrap()
                .is_none()
            {
                thread::yield_now();
            }
            let event = turn(&mut reactor, 1)[0];
            assert_eq!(event.token, token(number));
            assert!(event.ready.contains(Ready::READABLE));
            let count = ours.attempt(&mut reactor, READ, |stream| stream.read(&mut buffer));
            assert_eq!(count.unwrap(), 5);
            let drained = ours.attempt(&mut reactor, READ, |stream| stream.read(&mut buffer));
            assert_eq!(drained.unwrap_err().kind(), ErrorKind::WouldBlock);
            assert_eq!(
                ours.cached_readiness(&reactor).readable,
                CachedReadiness::Drained
            );
        }
        let statistics = reactor.statistics();
        // No wait was answered only because it was armed again after 100 ms.
        assert_eq!((statistics.registered, statistics.rearmed), (1, 0));
        assert_eq!((statistics.waits, statistics.skipped), (20, 19));
    });
}

#[test]
fn detaching_a_source_answers_its_waits() {
    on_every_reactor(|mut reactor| {
        let (ours, _theirs) = tcp();
        let ours = Source::new(ours);
        let waiting = wait(&mut reactor, &ours, READ, 1);
        drop(ours.detach(&mut reactor));
        let events = turn(&mut reactor, 1);
        assert_eq!((events[0].token, events[0].ready), (token(1), Ready::ERROR));
        assert!(!reactor.end(waiting), "its event has ended it");
    });
}

#[test]
fn closing_a_source_answers_its_waits_and_closes_the_socket() {
    on_every_reactor(|mut reactor| {
        let (ours, mut theirs) = tcp();
        let ours = Source::new(ours);
        wait(&mut reactor, &ours, READ, 1);
        ours.close(&mut reactor);
        let events = turn(&mut reactor, 1);
        assert_eq!((events[0].token, events[0].ready), (token(1), Ready::ERROR));
        theirs.set_nonblocking(false).unwrap();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn a_reader_and_a_writer_share_a_source() {
    on_every_reactor(|mut reactor| {
        let (ours, mut theirs) = tcp();
        let ours = Source::new(ours);
        let read = |mut stream: &TcpStream| stream.read(&mut [0; 8]);
        for number in 0..10 {
            let tried = ours.try_io(&mut reactor, READ, read);
            assert_eq!(tried.unwrap_err().kind(), ErrorKind::WouldBlock);
            wait(&mut reactor, &ours, READ, number);
            let write = |mut stream: &TcpStream| stream.write(b"x");
            let written = ours.try_io(&mut reactor, Interest::WRITABLE, write);
            assert_eq!(written.unwrap(), 1);
            theirs.write_all(b"hello").unwrap();
            turn(&mut reactor, 1);
            while ours.try_io(&mut reactor, READ, read).is_ok() {}
        }
        assert!(reactor.statistics().rearmed <= 1);
    });
}

#[test]
fn a_reused_descriptor_number_is_registered_again() {
    on_every_reactor(|mut reactor| {
        for round in 0..20 {
            let (ours, mut theirs) = tcp();
            let ours = Source::new(ours);
            wait(&mut reactor, &ours, READ, round);
            theirs.write_all(b"x").unwrap();
            assert_eq!(turn(&mut reactor, 1)[0].token, token(round));
            ours.attempted(&mut reactor, READ, Attempt::WouldBlock);
            // The source is dropped without detach.
        }
    });
}

/// Where the queue tells that a number has another file: epoll does.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn a_wait_for_a_dropped_source_is_answered_although_its_number_is_used_again() {
    for is_awaited in [true, false] {
        for backend in backends().filter(|backend| *backend != Backend::Poll) {
            let mut reactor = Reactor::open(Some(backend)).unwrap();
            let (ours, _theirs) = tcp();
            let (other, mut peer) = tcp();
            peer.write_all(b"x").unwrap();
            let mut file = std::os::fd::OwnedFd::from(ours);
            wait(&mut reactor, &Source::new(&file), READ, 1);
            rustix::io::dup2(&other, &mut file).unwrap(); // closes it, and gives the number to another
            let number = file.as_descriptor();
            if is_awaited {
                wait(&mut reactor, &Source::new(&file), READ, 2);
                assert_eq!(reactor.waiters(number), [token(2)]);
            }
            let mut events = turn(&mut reactor, 1 + usize::from(is_awaited));
            events.sort_by_key(|event| event.token.index());
            let answers: Vec<_> = events.iter().map(|e| (e.token, e.ready)).collect();
            let expected = [(token(1), Ready::ERROR), (token(2), Ready::READABLE)];
            assert_eq!(answers, expected[..answers.len()]);
            assert_eq!(reactor.waiters(number), []);
        }
    }
}

#[test]
fn a_socket_without_a_wait_is_deregistered() {
    on_every_reactor(|mut reactor| {
        let (ours, mut theirs) = tcp();
        let ours = Source::new(ours);
        let waiting = wait(&mut reactor, &ours, READ, 1);
        assert!(reactor.end(waiting));
        let (mut events, deadline) = (Events::new(), Instant::now() + TEST_TIMEOUT.unwrap());
        while reactor.statistics().deregistered == 0 {
            assert!(Instant::now() < deadline);
            theirs.write_all(b"x").unwrap();
            reactor.turn(&mut events, SILENCE).unwrap();
        }
        assert!(events.is_empty());
        assert_eq!(reactor.statistics().spurious, 2);
        wait(&mut reactor, &ours, READ, 2);
        assert_eq!(turn(&mut reactor, 1)[0].token, token(2));
    });
}
