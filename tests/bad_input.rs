//! Invalid arguments cause an error or have no effect. They never cause a panic.

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use reactor::{
    Attempt, Backend, Deadline, Descriptor, DescriptorReadiness, Event, Events, Interest, OwnerId,
    Reactor, Ready, Source, Timers, Token, Wait, WaitId,
};

const READ: Interest = Interest::READABLE;

fn reactors() -> impl Iterator<Item = Reactor> {
    let usable = Backend::ALL
        .iter()
        .copied()
        .filter(|backend| backend.availability().is_ok());
    usable.map(|backend| Reactor::open(Some(backend)).unwrap())
}

fn socket() -> Source<UdpSocket> {
    Source::new(UdpSocket::bind("127.0.0.1:0").unwrap())
}

fn pending(wait: std::io::Result<Wait>) -> WaitId {
    match wait {
        Ok(Wait::Pending(wait)) => wait,
        other => panic!("expected a pending wait, got {other:?}"),
    }
}

#[test]
fn numbers_that_are_not_descriptors() {
    let numbers: [Descriptor; 4] = [!0, Descriptor::MAX, Descriptor::MAX - 1, 54_321];
    for mut reactor in reactors() {
        for number in numbers {
            for owner in [OwnerId(0), OwnerId(1), OwnerId(u64::MAX)] {
                assert!(reactor.wait(number, owner, READ, Token::new(0, 0)).is_err());
                assert_eq!(
                    reactor.cached_readiness(number, owner),
                    DescriptorReadiness::default()
                );
                reactor.attempted(number, owner, READ, Attempt::WouldBlock);
                reactor.note_close(number, owner);
                reactor.deregister(number);
                assert!(reactor.waiters(number).is_empty());
            }
        }
        let mut events = Events::new();
        reactor.turn(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
    }
}

#[test]
fn all_tokens_are_reported_unchanged() {
    for mut reactor in reactors() {
        let sockets = [socket(), socket(), socket()];
        let tokens = [
            Token::WAKE,
            Token::from(0),
            Token::new(Token::MAX_INDEX, u32::MAX),
        ];
        for (socket, token) in sockets.iter().zip(tokens) {
            pending(socket.wait(&mut reactor, Interest::WRITABLE, token));
            reactor.timer(Deadline::now(), token);
            reactor.handle().notify(token).unwrap();
        }
        let (mut events, deadline) = (Events::new(), Instant::now() + Duration::from_secs(60));
        while events.len() < 9 {
            assert!(Instant::now() < deadline, "only {:?}", &events[..]);
            reactor
                .turn(&mut events, Some(Duration::from_secs(1)))
                .unwrap();
        }
        for token in tokens {
            let all = events.iter().filter(|event| event.token == token);
            let ready = all.fold(Ready::EMPTY, |all, event| all | event.ready);
            assert!(ready.contains(Ready::WRITABLE | Ready::ELAPSED | Ready::NOTIFIED));
        }
    }
}

#[test]
fn ids_of_another_reactors_waits_and_timers() {
    let (mut ours, mut theirs) = (Reactor::open(None).unwrap(), Reactor::open(None).unwrap());
    let socket = socket();
    let wait = pending(socket.wait(&mut theirs, READ, Token::new(0, 0)));
    let timer = theirs.timer(Deadline::after(Duration::MAX), Token::new(0, 0));
    assert!(!ours.end(wait));
    assert!(!ours.cancel(timer));
    assert!(theirs.end(wait));
    assert!(!theirs.end(wait), "once more");
    assert!(theirs.cancel(timer));
    assert!(!theirs.cancel(timer), "once more");
}

#[test]
fn infinite_durations() {
    for mut reactor in reactors() {
        reactor.timer(Deadline::after(Duration::MAX), Token::new(1, 0));
        reactor.handle().wake().unwrap();
        let mut events = Events::new();
        reactor.turn(&mut events, Some(Duration::MAX)).unwrap();
        reactor.timer(Deadline::after(Duration::from_nanos(1)), Token::new(2, 0));
        while events.is_empty() {
            reactor.turn(&mut events, Some(Duration::MAX)).unwrap();
        }
        assert_eq!(events[0].token, Token::new(2, 0));
        assert_eq!(reactor.timers(), 1);
    }
    let now = Instant::now();
    let mut timers = Timers::new();
    timers.insert(Deadline::after_from(now, Duration::MAX), Token::new(0, 0));
    timers.expire(now, &mut Events::new());
    assert_eq!(timers.len(), 1);
}

#[test]
fn events_that_a_caller_pushed_stay() {
    for mut reactor in reactors() {
        let (mut events, own) = (
            Events::new(),
            Event {
                token: Token::WAKE,
                ready: Ready::EMPTY,
            },
        );
        events.push(own);
        reactor.timer(Deadline::now(), Token::new(1, 0));
        reactor.collect(&mut events).unwrap();
        assert_eq!((events.len(), events[0]), (2, own));
    }
}
