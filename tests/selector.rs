//! What a selector saves, and how it copes with closed, reused and duplicated descriptors, with real descriptors.

#![cfg(unix)]

use std::{
    io::{ErrorKind, Read, Write},
    net::Shutdown,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use reactor::{
    Attempt, CachedReadiness, Events, Interest, OwnerId, Ready, Selector, Token, Wait, WaitId,
};
use rustix::io::dup2;

use sockets::{NOW, backends, far_away, pair, tcp};

#[path = "support/sockets.rs"]
mod sockets;

const READ: Interest = Interest::READABLE;
const OURS: OwnerId = OwnerId(1);
const OTHER: OwnerId = OwnerId(2);

/// Runs the test with a selector on each available backend.
fn on_every_backend(test: impl Fn(&mut Subject)) {
    for backend in backends() {
        test(&mut Subject {
            selector: Selector::open(Some(backend)).unwrap(),
            now: Instant::now(),
        });
    }
}

struct Subject {
    selector: Selector,
    /// The time that is passed to the selector. It stands still.
    now: Instant,
}

impl Subject {
    fn wait(
        &mut self,
        source: &impl AsRawFd,
        owner: OwnerId,
        interest: Interest,
        token: u32,
    ) -> WaitId {
        let (number, token) = (source.as_raw_fd(), Token::new(token, 0));
        match self.selector.wait(number, owner, interest, token, self.now) {
            Ok(Wait::Pending(wait)) => wait,
            other => panic!("expected a pending wait, got {other:?}"),
        }
    }

    /// The tokens of one poll.
    fn poll(&mut self, limit: Option<Duration>) -> Vec<u32> {
        let mut events = Events::new();
        self.selector.poll(&mut events, limit, self.now).unwrap();
        events.iter().map(|event| event.token.index()).collect()
    }

    fn is_silent(&mut self) -> bool {
        self.poll(NOW).is_empty()
    }

    /// Polls until `count` waits are answered. Returns their tokens in ascending order.
    fn answered(&mut self, count: usize) -> Vec<u32> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut tokens = Vec::new();
        while tokens.len() < count {
            assert!(Instant::now() < deadline, "only {tokens:?} were answered");
            tokens.extend(self.poll(Some(Duration::from_secs(1))));
        }
        tokens.sort_unstable();
        tokens
    }

    /// One attempt to read. Its outcome is reported to the selector.
    fn read(&mut self, source: &mut (impl Read + AsRawFd), room: usize) -> Option<usize> {
        let mut buffer = vec![0; room];
        let (count, attempt) = match source.read(&mut buffer) {
            Ok(count) if count < room => (Some(count), Attempt::Short),
            Ok(count) => (Some(count), Attempt::Complete),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                (None, Attempt::WouldBlock)
            }
        };
        let number = source.as_raw_fd();
        self.selector.attempted(number, OURS, READ, attempt);
        count
    }

    fn readable(&self, source: &impl AsRawFd) -> CachedReadiness {
        self.selector
            .cached_readiness(source.as_raw_fd(), OURS)
            .readable
    }
}

// --- what it saves ---------------------------------------------------------------------------------------------------

#[test]
fn data_and_fin_in_one_segment_are_both_seen() {
    on_every_backend(|subject| {
        let (mut ours, mut theirs) = tcp();
        let wait = subject.wait(&ours, OURS, READ, 1);
        theirs.write_all(b"bye").unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        subject.answered(1);
        subject.selector.end(wait);
        assert_eq!(subject.read(&mut ours, 64), Some(3));
        // The end of the stream may come with the data or after it. If it comes after it, it is reported.
        if subject.readable(&ours) == CachedReadiness::Drained {
            let wait = subject.wait(&ours, OURS, READ, 2);
            assert_eq!(subject.answered(1), [2]);
            subject.selector.end(wait);
        }
        assert_eq!(subject.read(&mut ours, 64), Some(0));
    });
}

#[test]
fn a_short_read_after_a_hangup_is_not_taken_for_drained() {
    on_every_backend(|subject| {
        let (mut ours, mut theirs) = pair();
        theirs.write_all(b"bye").unwrap();
        drop(theirs);
        let wait = subject.wait(&ours, OURS, READ, 1);
        subject.answered(1);
        subject.selector.end(wait);
        assert_eq!(subject.read(&mut ours, 64), Some(3));
        assert_ne!(subject.readable(&ours), CachedReadiness::Drained);
        let wait = subject.wait(&ours, OURS, READ, 2);
        assert_eq!(subject.answered(1), [2]);
        subject.selector.end(wait);
        assert_eq!(subject.read(&mut ours, 64), Some(0));
    });
}

// --- several waits ----------------------------------------------------------------------------------------------------

// --- closed, reused and duplicated descriptors ------------------------------------------------------------------------

#[test]
fn a_reused_descriptor_number_is_registered_again() {
    on_every_backend(|subject| {
        let (old, _old_peer) = pair();
        let (new, mut new_peer) = pair();
        let mut number = far_away(old);
        let wait = subject.wait(&number, OURS, READ, 1);
        subject.selector.end(wait);
        subject
            .selector
            .attempted(number.as_raw_fd(), OURS, READ, Attempt::WouldBlock);
        dup2(&new, &mut number).unwrap();
        new_peer.write_all(b"x").unwrap();
        subject.wait(&number, OTHER, READ, 2);
        assert_eq!(subject.answered(1), [2]);
    });
}

#[test]
fn events_of_the_duplicate_of_a_closed_descriptor_are_dropped() {
    on_every_backend(|subject| {
        let (old, mut old_peer) = pair();
        let (new, mut new_peer) = pair();
        let _duplicate = old.try_clone().unwrap();
        let mut number = far_away(old);
        let wait = subject.wait(&number, OURS, READ, 1);
        subject.selector.end(wait);
        dup2(&new, &mut number).unwrap();
        subject.wait(&number, OURS, READ, 2);
        old_peer.write_all(b"x").unwrap();
        assert!(subject.is_silent());
        new_peer.write_all(b"x").unwrap();
        assert_eq!(subject.answered(1), [2]);
    });
}

#[test]
fn a_replaced_descriptor_heals_when_its_wait_is_armed_again() {
    on_every_backend(|subject| {
        let (old, _old_peer) = pair();
        let (new, mut new_peer) = pair();
        let mut number = far_away(old);
        subject.wait(&number, OURS, READ, 1);
        dup2(&new, &mut number).unwrap();
        new_peer.write_all(b"x").unwrap();
        assert!(subject.is_silent());

        let due = subject.selector.next_rearm().unwrap();
        let mut events = Events::new();
        subject.selector.rearm(due, &mut events).unwrap();
        assert_eq!(subject.answered(1), [1]);
    });
}

#[test]
fn a_close_without_deregister_is_reported_when_the_wait_is_armed_again() {
    on_every_backend(|subject| {
        let (ours, _theirs) = pair();
        let number = far_away(ours);
        let wait = subject.wait(&number, OURS, READ, 1);
        drop(number);
        assert!(subject.is_silent());

        let due = subject.selector.next_rearm().unwrap();
        let mut events = Events::new();
        subject.selector.rearm(due, &mut events).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(subject.selector.end(wait), Ready::ERROR);
    });
}

#[test]
fn a_deregistered_descriptor_may_be_closed_and_its_number_reused() {
    on_every_backend(|subject| {
        let (old, mut old_peer) = pair();
        let (new, mut new_peer) = pair();
        let mut number = far_away(old);
        let reader = subject.wait(&number, OURS, READ, 1);
        subject.selector.deregister(number.as_raw_fd());
        dup2(&new, &mut number).unwrap();
        assert!(old_peer.write_all(b"x").is_err());
        assert_eq!(subject.answered(1), [1]);
        assert_eq!(subject.selector.end(reader), Ready::ERROR);

        subject.wait(&number, OURS, READ, 2);
        assert!(subject.is_silent());
        new_peer.write_all(b"x").unwrap();
        assert_eq!(subject.answered(1), [2]);
    });
}

#[test]
fn note_close_without_a_close_registers_again() {
    on_every_backend(|subject| {
        let (mut ours, mut theirs) = pair();
        let wait = subject.wait(&ours, OURS, READ, 1);
        theirs.write_all(b"x").unwrap();
        assert_eq!(subject.answered(1), [1]);
        subject.selector.end(wait);
        assert_eq!(ours.read(&mut [0; 8]).unwrap(), 1);
        subject.selector.note_close(ours.as_raw_fd(), OURS);
        // The descriptor stays open, so the kernel still has the registration.
        subject.wait(&ours, OURS, READ, 2);
        theirs.write_all(b"x").unwrap();
        assert_eq!(subject.answered(1), [2]);
        assert_eq!(subject.selector.statistics().closed, 1);
    });
}
