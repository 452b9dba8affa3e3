//! io_uring_enter(2) may take no operation for a while (`EAGAIN`, `EBUSY`), or fewer than it is given. No operation is lost,
//! their order is kept, and no thread spins.

#![cfg(all(target_os = "linux", feature = "uring"))]

use std::{
    io::{self, Read},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    ptr,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use reactor::{Backend, Driver, Events, Operation, Reactor, Token};
use rustix::pipe::pipe;

/// The result of one io_uring_enter(2).
#[derive(Clone, Copy)]
enum Answer {
    Error(i32),
    /// Zero: no operation was taken.
    TookNothing,
    /// The call is made.
    Real,
}

const AGAIN: Answer = Answer::Error(libc::EAGAIN);
const BUSY: Answer = Answer::Error(libc::EBUSY);
const INTERRUPTED: Answer = Answer::Error(libc::EINTR);

/// Runs the test on a thread. Its first calls of io_uring_enter(2) get these answers. Further calls are made.
fn with_answers(answers: Vec<Answer>, test: impl FnOnce(Box<dyn Driver>) + Send) {
    let Ok((_, driver)) = Backend::open(Some(Backend::Uring)) else {
        return; // Not available; see tests/io_uring_denied.rs.
    };
    let (sender, listener) = mpsc::channel();
    thread::scope(|scope| {
        // Started before the filter is set, because threads inherit it. The listener reports the end of the filtered thread.
        scope.spawn(move || {
            if let Ok(listener) = listener.recv() {
                assert!(
                    answer(&listener, answers),
                    "there were fewer calls than answers"
                );
            }
        });
        scope.spawn(move || match listen() {
            Ok(listener) => {
                sender.send(listener).unwrap();
                test(driver);
            }
            Err(error) => eprintln!("no listener for system calls here: {error}"),
        });
    });
}

/// A filter for the calling thread that asks the returned listener about each io_uring_enter(2): seccomp(2),
/// `SECCOMP_RET_USER_NOTIF`.
fn listen() -> io::Result<OwnedFd> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    const ASK: u32 = 0x7fc0_0000;
    const NEW_LISTENER: libc::c_ulong = 1 << 3;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD, 0, 0, 0), // seccomp_data.nr
        step(JUMP, 0, 1, libc::SYS_io_uring_enter as u32),
        step(RETURN, 0, 0, ASK),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let nothing = ptr::null::<libc::sock_fprog>();
    // SAFETY: no pointer is passed.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, nothing, nothing, nothing) };
    let (set, mode) = (libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER);
    // SAFETY: the program and its filter outlive the call, which copies them.
    let listener = unsafe { libc::syscall(set, mode, NEW_LISTENER, &raw const program) };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(listener as i32) })
}

/// `struct seccomp_notif`, of which only the id is read.
#[repr(C)]
#[derive(Default)]
struct Question {
    id: u64,
    rest: [u64; 9],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Reply {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// Answers until the thread with the filter has ended. False if there were fewer calls than answers.
fn answer(listener: &OwnedFd, answers: Vec<Answer>) -> bool {
    const RECEIVE: libc::c_ulong = 0xc050_2100;
    const SEND: libc::c_ulong = 0xc018_2101;
    const GO_ON: u32 = 1;
    let mut answers = answers.into_iter();
    loop {
        let mut poll = libc::pollfd {
            fd: listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one record is passed, which outlives the call.
        unsafe { libc::poll(&mut poll, 1, -1) };
        if poll.revents & libc::POLLIN == 0 {
            return answers.next().is_none();
        }
        let mut question = Question::default();
        // SAFETY: the kernel writes 80 bytes, the size of `question`.
        if unsafe { libc::ioctl(listener.as_raw_fd(), RECEIVE as _, &raw mut question) } != 0 {
            continue; // The call was interrupted meanwhile.
        }
        let (error, flags) = match answers.next() {
            Some(Answer::Error(number)) => (-number, 0),
            Some(Answer::TookNothing) => (0, 0),
            Some(Answer::Real) | None => (0, GO_ON),
        };
        let reply = Reply {
            id: question.id,
            value: 0,
            error,
            flags,
        };
        // SAFETY: the kernel reads 24 bytes, the size of `reply`. It fails if the call was interrupted meanwhile.
        unsafe { libc::ioctl(listener.as_raw_fd(), SEND as _, &raw const reply) };
    }
}

fn token(index: u32) -> Token {
    Token::new(index, 0)
}

#[test]
fn operations_that_the_kernel_does_not_take_stay_queued_in_order() {
    let answers = vec![AGAIN, BUSY, Answer::TookNothing, INTERRUPTED];
    with_answers(answers, |mut driver| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let operations = driver.operations().unwrap();
        for (index, text) in [b"first ", b"second"].into_iter().enumerate() {
            let operation = Operation::Send(text);
            let started = operations.start(ours.as_raw_fd(), operation, token(index as u32));
            started.unwrap();
        }
        for _ in 0..3 {
            operations.submit().unwrap();
            assert_eq!(operations.queued(), 2);
        }
        operations.submit().unwrap(); // Interrupted once, and repeated.
        assert_eq!(operations.queued(), 0);
        let mut events = Events::new();
        driver.poll(&mut events, Some(Duration::ZERO)).unwrap();
        let reported = events.iter().map(|event| event.token.index());
        assert!(reported.eq([0, 1]));
        let mut all = [0; 12];
        theirs.read_exact(&mut all).unwrap();
        assert_eq!(&all, b"first second");
    });
}

#[test]
fn a_reactor_limits_its_sleep_while_operations_are_queued() {
    with_answers(vec![BUSY; 5], |driver| {
        let mut reactor = Reactor::with_driver(driver);
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let operations = reactor.operations().unwrap();
        let operation = Operation::Send(b"x");
        operations
            .start(ours.as_raw_fd(), operation, token(7))
            .unwrap();
        let mut events = Events::new();
        let mut turns = 0;
        while events.is_empty() {
            reactor.turn(&mut events, None).unwrap();
            turns += 1;
        }
        assert!((2..10).contains(&turns), "{turns}");
        assert_eq!(events[0].token, token(7));
        theirs.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn a_poll_without_a_limit_ends_while_operations_are_queued() {
    with_answers(vec![AGAIN, BUSY], |mut driver| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let operations = driver.operations().unwrap();
        let operation = Operation::Send(b"x");
        operations
            .start(ours.as_raw_fd(), operation, token(7))
            .unwrap();
        let mut events = Events::new();
        while events.is_empty() {
            driver.poll(&mut events, None).unwrap();
        }
        assert_eq!(events[0].token, token(7));
        theirs.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn waiting_for_an_outcome_does_not_spin() {
    const REFUSALS: u32 = 30;
    with_answers(vec![AGAIN; REFUSALS as usize], |mut driver| {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let operations = driver.operations().unwrap();
        let operation = Operation::Send(b"x");
        let id = operations
            .start(ours.as_raw_fd(), operation, token(1))
            .unwrap();
        let start = Instant::now();
        operations.wait(id).unwrap();
        // The first refusal is that of the submission. After each further one there is a pause of 1 ms.
        assert!(start.elapsed() >= Duration::from_millis(1) * (REFUSALS - 1));
        assert_eq!(operations.take(id).unwrap().unwrap(), 1);
    });
}

#[test]
fn the_memory_of_an_abandoned_operation_is_kept_until_its_cancellation_is_taken() {
    const SIZE: usize = 4096;
    with_answers(vec![Answer::Real, BUSY], |mut driver| {
        let (reader, writer) = pipe().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let operations = driver.operations().unwrap();
        let read = Operation::Read(0, SIZE);
        let id = operations.start(reader.as_raw_fd(), read, token(1));
        operations.submit().unwrap();
        operations.abandon(id.unwrap()); // The kernel does not take the cancellation.
        // The send gets the memory that is free now. The abandoned read takes the bytes from the pipe.
        let send = Operation::Send(&[b'a'; SIZE]);
        let id = operations.start(ours.as_raw_fd(), send, token(2)).unwrap();
        rustix::io::write(&writer, &[b'b'; SIZE]).unwrap();
        operations.wait(id).unwrap();
        assert_eq!(operations.take(id).unwrap().unwrap(), SIZE);
        let mut sent = [0; SIZE];
        theirs.read_exact(&mut sent).unwrap();
        assert!(sent.iter().all(|byte| *byte == b'a'));
    });
}

#[test]
fn dropping_the_driver_does_not_wait_for_a_kernel_that_takes_no_cancellation() {
    // More operations than the submission queue holds cancellations.
    let (in_flight, submissions) = (300, 256);
    let mut answers = vec![Answer::Real; 2];
    answers.extend(vec![BUSY; submissions]);
    with_answers(answers, |mut driver| {
        let (reader, _writer) = pipe().unwrap();
        let operations = driver.operations().unwrap();
        for index in 0..in_flight {
            let operation = Operation::Read(0, 100);
            let started = operations.start(reader.as_raw_fd(), operation, token(index));
            started.unwrap();
        }
        operations.submit().unwrap();
        drop(driver);
    });
}
