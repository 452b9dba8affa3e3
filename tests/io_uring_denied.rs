//! If the kernel refuses io_uring, as the seccomp filters of containers do, only an explicit choice of it fails.

#![cfg(target_os = "linux")]

#[path = "support/refuse.rs"]
mod refuse;

use std::{
    io::{self, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    thread,
};

use reactor::{Backend, Events, Interest, OwnerId, Reactor, Token, Wait};
use refuse::refuse;

#[test]
fn without_a_choice_a_denied_ring_is_replaced_by_epoll() {
    // The result of the probe is kept for the process, so this file has only one test.
    let thread = thread::spawn(|| {
        refuse(libc::SYS_io_uring_setup, libc::EPERM);
        let reason = Backend::Uring.availability().unwrap_err();
        assert_eq!(reason.raw_os_error(), uring_built().then_some(libc::EPERM));

        let error = Backend::open(Some(Backend::Uring)).map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(error.to_string(), format!("uring: {reason}"));

        let reactor = Reactor::open(None).unwrap();
        assert_eq!(reactor.backend(), Some(Backend::Epoll));
        works(reactor);
    });
    thread.join().unwrap();
}

/// Without the feature the driver itself refuses.
fn uring_built() -> bool {
    cfg!(feature = "uring")
}

fn works(mut reactor: Reactor) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let reader = Token::new(1, 0);
    let wait = reactor.wait(ours.as_raw_fd(), OwnerId(1), Interest::READABLE, reader);
    assert!(matches!(wait, Ok(Wait::Pending(_))));
    theirs.write_all(b"x").unwrap();
    let mut events = Events::new();
    while events.is_empty() {
        reactor.turn(&mut events, None).unwrap();
    }
    assert_eq!(events[0].token, reader);
}
