//! If the kernel refuses io_uring, as the seccomp filters of containers do, only an explicit choice of it fails.

#![cfg(target_os = "linux")]

use std::{
    io::{self, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    ptr, thread,
};

use reactor::{Backend, Events, Interest, OwnerId, Reactor, Token, Wait};

/// Makes io_uring_setup(2) fail in the calling thread from now on, by a seccomp(2) filter.
fn refuse_io_uring(error: i32) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD, 0, 0, 0), // seccomp_data.nr
        step(JUMP, 0, 1, libc::SYS_io_uring_setup as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let nothing = ptr::null::<libc::sock_fprog>();
    // SAFETY: no pointer is passed.
    let promised = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, nothing, nothing, nothing) };
    assert_eq!(promised, 0, "{}", io::Error::last_os_error());
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its filter outlive the call, which copies them.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

#[test]
fn without_a_choice_a_denied_ring_is_replaced_by_epoll() {
    // The result of the probe is kept for the process, so this file has only one test.
    let thread = thread::spawn(|| {
        refuse_io_uring(libc::EPERM);
        let reason = Backend::Uring.availability().unwrap_err();
        assert_eq!(reason.raw_os_error(), uring_built().then_some(libc::EPERM));

        let error = Backend::open(Some(Backend::Uring)).map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(error.to_string(), format!("uring: {reason}"));

        // epoll, or poll(2) if the build forces it.
        let next = Backend::native();
        assert!([Backend::Epoll, Backend::Poll].contains(&next));
        let (fallback, _) = Backend::open_first(&[Backend::Uring, next]).unwrap();
        assert_eq!(fallback, next);
        assert!(Backend::open_first(&[Backend::Uring]).is_err());
        works(Reactor::open(None).unwrap());
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
