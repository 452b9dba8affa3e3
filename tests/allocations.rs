//! After warm-up, waiting, timing out and turning allocate nothing; nor does what is for a reactor that was dropped.

#![cfg(unix)]

use std::{
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    time::Duration,
};

#[path = "support/memory.rs"]
mod memory;
#[path = "support/sockets.rs"]
mod sockets;

use reactor::{Attempt, Deadline, Events, Interest, Operation, OwnerId, Reactor, Token, Wait};

/// One wait with a timeout on each stream, from the start of the timer to its cancellation.
fn round(reactor: &mut Reactor, streams: &mut [(UnixStream, UnixStream)], events: &mut Events) {
    const READ: Interest = Interest::READABLE;
    let handle = reactor.handle();
    for (number, (ours, theirs)) in (1..).zip(streams) {
        let (descriptor, owner) = (ours.as_raw_fd(), OwnerId(number));
        let timer = reactor.timer(Deadline::after(Duration::from_secs(60)), Token::new(9, 0));
        let wait = reactor.wait(descriptor, owner, READ, Token::new(1, 0));
        let Ok(Wait::Pending(wait)) = wait else {
            panic!("expected a pending wait, got {wait:?}");
        };
        theirs.write_all(b"hello").unwrap();
        handle.notify(Token::new(2, 0)).unwrap();
        events.clear();
        while events.len() < 2 {
            reactor.turn(events, None).unwrap();
        }
        assert!(!reactor.end(wait), "its event has ended it");
        assert!(reactor.cancel(timer));
        assert_eq!(ours.read(&mut [0; 64]).unwrap(), 5);
        reactor.attempted(descriptor, owner, READ, Attempt::Short);
    }
}

/// One operation on each stream, from its start to its outcome.
fn round_of_operations(
    reactor: &mut Reactor,
    streams: &[(UnixStream, UnixStream)],
    events: &mut Events,
) {
    let Some(operations) = reactor.operations() else {
        return;
    };
    let token = Token::new(1, 0);
    let mut ids = [None; 20];
    for (id, (ours, _)) in ids.iter_mut().zip(streams) {
        let operation = Operation::Send(b"hello");
        *id = operations.start(ours.as_raw_fd(), operation, token).ok();
    }
    events.clear();
    while events.len() < streams.len() {
        reactor.turn(events, None).unwrap();
    }
    for (id, (_, theirs)) in ids.into_iter().zip(streams) {
        let operations = reactor.operations().unwrap();
        let taken = operations.take(id.unwrap());
        assert_eq!(taken.unwrap().unwrap(), 5);
        let (mut reader, mut buffer) = (theirs, [0; 5]);
        reader.read_exact(&mut buffer).unwrap();
    }
}

#[test]
fn none_after_warm_up() {
    memory::start();
    for backend in sockets::backends() {
        let mut reactor = Reactor::open(Some(backend)).unwrap();
        let mut events = Events::new();
        let mut streams: Vec<_> = (0..20).map(|_| UnixStream::pair().unwrap()).collect();
        round(&mut reactor, &mut streams, &mut events);
        round_of_operations(&mut reactor, &streams, &mut events);

        let before = memory::allocations();
        for _ in 0..50 {
            round(&mut reactor, &mut streams, &mut events);
            round_of_operations(&mut reactor, &streams, &mut events);
        }
        assert_eq!(memory::allocations() - before, 0, "{backend}");
    }
}

#[test]
fn none_for_the_notifications_of_a_dropped_reactor() {
    memory::start();
    let reactor = Reactor::open(None).unwrap();
    let waker = reactor.handle().waker(Token::new(1, 0));
    drop(reactor);
    let before = memory::allocations();
    (0..100).for_each(|_| waker.wake_by_ref());
    assert_eq!(memory::allocations() - before, 0);
}
