//! The contract of `Driver`, on each available backend, with real descriptors.

#![cfg(unix)]

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read, Write},
    net::TcpListener,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    thread,
    time::{Duration, Instant},
};

use reactor::{Backend, Driver, Events, Interest, Ready, Registration, Token};
use rustix::{
    io::{Errno, dup2, fcntl_dupfd_cloexec},
    net::{SendFlags, send},
    pipe::pipe,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use sockets::{NOW, TEST_TIMEOUT, far_away, pair, tcp};

#[path = "support/sockets.rs"]
mod sockets;

const READ: Interest = Interest::READABLE;
const WRITE: Interest = Interest::WRITABLE;
/// Makes each function a test of each backend. Tests of unavailable backends pass.
macro_rules! contract {
    ($($backend:ident: $variant:ident;)* => $tests:tt) => {
        $(contract!(@backend $backend $variant $tests);)*
    };
    (@backend $backend:ident $variant:ident {$($test:ident)*}) => {
        mod $backend {
            $(
                #[test]
                fn $test() {
                    super::run(reactor::Backend::$variant, super::$test);
                }
            )*
        }
    };
}

contract! {
    epoll: Epoll; kqueue: Kqueue; uring: Uring; poll: Poll; => {
        a_forgotten_registration_is_renewed
        a_closed_number_is_an_error
        deregistering_nothing_is_fine
        a_registration_keeps_nothing_open
        the_duplicate_of_a_closed_descriptor_carries_the_old_token
        files_and_directories_are_unpollable
        a_number_that_became_a_file_is_unpollable
        a_full_hangup_answers_both_directions
        a_reader_that_goes_is_an_error_to_the_writer
        urgent_data_is_not_readable
        many_wakes_are_one
        the_own_descriptor_tells_whether_there_is_something
        more_than_one_batch_arrives
    }
}

fn run(backend: Backend, test: fn(&mut Subject)) {
    if backend.availability().is_ok() {
        let (_, driver) = Backend::open(Some(backend)).unwrap();
        test(&mut Subject {
            driver,
            events: Events::new(),
        });
    }
}

/// A driver, and a buffer for its events.
struct Subject {
    driver: Box<dyn Driver>,
    events: Events,
}

impl Subject {
    fn arm(&mut self, descriptor: &impl AsRawFd, token: u32, interest: Interest) {
        let descriptor = descriptor.as_raw_fd();
        let armed = self
            .driver
            .register(descriptor, name(token), interest, false);
        assert_ne!(armed.unwrap(), Registration::Unpollable);
    }

    fn renew(&mut self, number: RawFd, token: u32, interest: Interest) -> io::Result<Registration> {
        self.driver.register(number, name(token), interest, true)
    }

    fn poll(&mut self, timeout: Option<Duration>) -> Vec<(u32, Ready)> {
        self.driver.poll(&mut self.events, timeout).unwrap();
        let events = self.events.iter();
        events.map(|e| (e.token.index(), e.ready)).collect()
    }

    /// Polls until this token is reported, and returns all its reasons.
    fn until(&mut self, token: u32) -> Ready {
        loop {
            let mut ready = Ready::EMPTY;
            for (index, reported) in self.poll(TEST_TIMEOUT) {
                assert_eq!(index, token, "a token that was not registered");
                ready |= reported;
            }
            if !ready.is_empty() {
                return ready;
            }
        }
    }
}

fn name(token: u32) -> Token {
    Token::new(token, 1)
}

// --- registrations and edges -----------------------------------------------------------------------------------------

fn a_forgotten_registration_is_renewed(subject: &mut Subject) {
    let (old, _old_peer) = pair();
    let (new, mut new_peer) = pair();
    let mut number = far_away(old);
    subject.arm(&number, 1, READ);
    dup2(&new, &mut number).unwrap();
    let registration = subject.renew(number.as_raw_fd(), 2, READ).unwrap();
    // kqueue does not report the difference. It adds the registration in both cases.
    assert_ne!(registration, Registration::Unpollable);
    new_peer.write_all(b"x").unwrap();
    assert_eq!(subject.until(2), Ready::READABLE);
}

fn a_closed_number_is_an_error(subject: &mut Subject) {
    let (ours, _theirs) = pair();
    let number = far_away(ours);
    subject.arm(&number, 1, READ);
    let closed = number.as_raw_fd();
    drop(number);
    let expected = Some(Errno::BADF.raw_os_error());
    let error = subject.renew(closed, 2, READ).unwrap_err();
    assert_eq!(error.raw_os_error(), expected);
    let error = subject
        .driver
        .register(closed, name(2), READ, false)
        .unwrap_err();
    assert_eq!(error.raw_os_error(), expected);
    let error = subject
        .driver
        .register(-1, name(2), READ, false)
        .unwrap_err();
    assert_eq!(error.raw_os_error(), expected);
    assert_eq!(subject.poll(NOW), []);
}

fn deregistering_nothing_is_fine(subject: &mut Subject) {
    let (ours, _theirs) = pair();
    subject.driver.deregister(ours.as_raw_fd()).unwrap();
    let number = far_away(ours);
    subject.arm(&number, 1, READ);
    let closed = number.as_raw_fd();
    drop(number);
    subject.driver.deregister(closed).unwrap();
    let file = File::open("/dev/null").unwrap();
    subject.driver.deregister(file.as_raw_fd()).unwrap();
}

fn a_registration_keeps_nothing_open(subject: &mut Subject) {
    let (ours, mut theirs) = pair();
    subject.arm(&ours, 1, READ | WRITE);
    assert_eq!(subject.until(1), Ready::WRITABLE);
    drop(ours);
    assert_eq!(
        theirs.read(&mut [0; 1]).unwrap(),
        0,
        "the peer reads the end"
    );

    // Another program may get the port in between. This is rare, so one of ten attempts succeeds.
    let rebound = (0..10).any(|_| {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        subject.arm(&listener, 2, READ);
        assert_eq!(subject.poll(NOW), []);
        drop(listener);
        TcpListener::bind(address).is_ok()
    });
    assert!(rebound, "the registration keeps the port");
}

fn the_duplicate_of_a_closed_descriptor_carries_the_old_token(subject: &mut Subject) {
    let (old, mut old_peer) = pair();
    let (new, mut new_peer) = pair();
    let _duplicate = old.try_clone().unwrap();
    let mut number = far_away(old);
    subject.arm(&number, 1, READ);
    dup2(&new, &mut number).unwrap();
    subject.arm(&number, 2, READ);
    old_peer.write_all(b"x").unwrap();
    new_peer.write_all(b"x").unwrap();
    let mut found = Vec::new();
    while !found.contains(&2) {
        found.extend(subject.poll(TEST_TIMEOUT).iter().map(|(index, _)| *index));
    }
    assert!(found.iter().all(|index| [1, 2].contains(index)));
}

fn files_and_directories_are_unpollable(subject: &mut Subject) {
    for path in [concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), "/"] {
        let file = File::open(path).unwrap();
        let answer = subject
            .driver
            .register(file.as_raw_fd(), name(1), READ, false);
        assert_eq!(answer.unwrap(), Registration::Unpollable);
    }
    assert_eq!(subject.poll(NOW), []);
}

fn a_number_that_became_a_file_is_unpollable(subject: &mut Subject) {
    let (ours, _theirs) = pair();
    let mut number = far_away(ours);
    subject.arm(&number, 1, READ);
    dup2(File::open("/").unwrap(), &mut number).unwrap();
    let reregistration = subject.renew(number.as_raw_fd(), 2, READ);
    assert_eq!(reregistration.unwrap(), Registration::Unpollable);
}

// --- ends and errors -------------------------------------------------------------------------------------------------

fn a_full_hangup_answers_both_directions(subject: &mut Subject) {
    let (ours, theirs) = pair();
    subject.arm(&ours, 1, READ | WRITE);
    subject.until(1);
    drop(theirs);
    let mut answered = None;
    while answered != Some(READ | WRITE) {
        answered = subject.until(1).answers(READ | WRITE).or(answered);
    }
}

fn a_reader_that_goes_is_an_error_to_the_writer(subject: &mut Subject) {
    let (reader, writer) = pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
    subject.arm(&writer, 1, WRITE);
    assert_eq!(subject.poll(NOW), []);
    drop(reader);
    assert_eq!(subject.until(1).answers(WRITE), Some(WRITE));
}

fn urgent_data_is_not_readable(subject: &mut Subject) {
    let (ours, mut theirs) = tcp();
    let both = READ | Interest::PRIORITY;
    match subject
        .driver
        .register(ours.as_raw_fd(), name(1), both, false)
    {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
        answer => assert_ne!(answer.unwrap(), Registration::Unpollable),
    }
    send(&theirs, b"!", SendFlags::OOB).unwrap();
    assert_eq!(subject.until(1), Ready::PRIORITY);
    theirs.write_all(b"x").unwrap();
    let ready = subject.until(1);
    assert!(ready.contains(Ready::READABLE));
}

// --- waking and waiting ----------------------------------------------------------------------------------------------

fn many_wakes_are_one(subject: &mut Subject) {
    let waker = subject.driver.waker();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let waker = waker.clone();
            thread::spawn(move || (0..1000).for_each(|_| waker.wake().unwrap()))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(subject.poll(None), []);
    let started = Instant::now();
    assert_eq!(subject.poll(Some(Duration::from_millis(5))), []);
    assert!(started.elapsed() >= Duration::from_millis(5));
}

fn the_own_descriptor_tells_whether_there_is_something(subject: &mut Subject) {
    let Some(own) = subject.driver.descriptor() else {
        return;
    };
    let is_readable = || reactor::poll_now(own, READ).unwrap().is_some();
    let (ours, mut theirs) = pair();
    subject.arm(&ours, 1, READ);
    assert!(!is_readable());
    theirs.write_all(b"x").unwrap();
    assert!(is_readable());
    subject.until(1);
    assert!(!is_readable());
    subject.driver.waker().wake().unwrap();
    assert!(is_readable());
    subject.poll(NOW);
    assert!(!is_readable());
}

fn more_than_one_batch_arrives(subject: &mut Subject) {
    const COUNT: u32 = 1500;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < 8192) {
        return;
    }
    let raised = Rlimit {
        current: limit.current.map(|current| current.max(8192)),
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let (ours, mut theirs) = pair();
    theirs.write_all(b"x").unwrap();
    let copies: Vec<OwnedFd> = (0..COUNT)
        .map(|_| fcntl_dupfd_cloexec(&ours, 2000).unwrap())
        .collect();
    for (token, copy) in (0..).zip(&copies) {
        subject.arm(copy, token, READ);
    }
    let mut found = BTreeSet::new();
    // Nothing is read, so a driver without edges reports them again: but those first that it has not reported.
    for _ in 0..COUNT.div_ceil(512) {
        let batch = subject.poll(NOW);
        assert!(batch.len() <= 1024);
        found.extend(batch.iter().map(|(index, _)| *index));
    }
    assert!(found.into_iter().eq(0..COUNT));
}
