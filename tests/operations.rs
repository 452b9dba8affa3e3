//! The contract of `Operations`, on each available backend that carries them out, with real descriptors.

#![cfg(unix)]

use std::{
    fs::{self, File},
    io::{self, Read, Seek, Write},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::PathBuf,
    process,
    sync::{PoisonError, RwLock},
    thread,
    time::Duration,
};

use reactor::{
    Backend, Driver, Events, Interest, Operation, OperationId, Operations, Reactor, Ready, Token,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    pipe::pipe,
};

use sockets::{NOW, TEST_TIMEOUT, backends, pair, tcp};

#[path = "support/sockets.rs"]
mod sockets;

/// Held for writing by the test that forks. Its child has a copy of all descriptors until it exits, and meanwhile a socket
/// that another test closes would stay open.
static FORK: RwLock<()> = RwLock::new(());

/// One driver for each backend that carries out operations here.
fn on_every_driver(test: impl Fn(&mut Subject)) {
    let _no_fork = FORK.read().unwrap_or_else(PoisonError::into_inner);
    on_every_driver_alone(test);
}

/// The same, for the test that holds the lock for writing.
fn on_every_driver_alone(test: impl Fn(&mut Subject)) {
    for backend in backends() {
        let (_, mut driver) = Backend::open(Some(backend)).unwrap();
        if driver.operations().is_some() {
            test(&mut Subject {
                driver,
                events: Events::new(),
            });
        }
    }
}

struct Subject {
    driver: Box<dyn Driver>,
    events: Events,
}

impl Subject {
    fn operations(&mut self) -> &mut dyn Operations {
        self.driver.operations().unwrap()
    }

    fn start(&mut self, on: &impl AsRawFd, operation: Operation<'_>, token: u32) -> OperationId {
        let token = Token::new(token, 0);
        let started = self.operations().start(on.as_raw_fd(), operation, token);
        started.unwrap()
    }

    fn poll(&mut self, timeout: Option<Duration>) -> Vec<u32> {
        self.driver.poll(&mut self.events, timeout).unwrap();
        let reports = self.events.iter().inspect(|event| {
            assert_eq!(event.ready, Ready::COMPLETED);
        });
        reports.map(|event| event.token.index()).collect()
    }

    /// Polls until `count` operations are reported. Returns their tokens in the order of the reports.
    fn reported(&mut self, count: usize) -> Vec<u32> {
        let mut found = Vec::new();
        while found.len() < count {
            found.extend(self.poll(TEST_TIMEOUT));
        }
        assert_eq!(found.len(), count);
        found
    }

    fn take(&mut self, id: OperationId) -> io::Result<usize> {
        self.operations().take(id).unwrap()
    }

    fn error(&mut self, id: OperationId) -> Option<Errno> {
        let error = self.take(id).unwrap_err();
        Errno::from_io_error(&error)
    }
}

fn is_readable(source: &impl AsRawFd) -> bool {
    let answer = reactor::poll_now(source.as_raw_fd(), Interest::READABLE);
    answer.unwrap().is_some()
}

/// Blocks until the descriptor is ready: bytes that were sent over TCP arrive some time after send(2) has returned.
fn wait_for(source: &impl AsFd, flags: PollFlags) {
    let mut entries = [PollFd::new(source, flags)];
    assert_eq!(poll(&mut entries, None).unwrap(), 1);
}

/// A file of this test. It is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, contents: &[u8]) -> (Self, File) {
        let place = std::env::temp_dir().join(format!("reactor-{}-{name}", process::id()));
        fs::write(&place, contents).unwrap();
        let file = File::options().read(true).write(true).open(&place).unwrap();
        (Self(place), file)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_file(&self.0).unwrap();
    }
}

// --- sockets ---------------------------------------------------------------------------------------------------------

#[test]
fn sent_bytes_arrive_with_the_next_poll_and_not_before() {
    on_every_driver(|subject| {
        let (ours, mut theirs) = pair();
        theirs.set_nonblocking(true).unwrap();
        let id = subject.start(&ours, Operation::Send(b"hello"), 7);
        let mut buffer = [0; 9];
        let early = theirs.read(&mut buffer).unwrap_err();
        assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
        assert!(subject.operations().take(id).is_none());
        assert_eq!(subject.poll(NOW), [7]);
        assert_eq!(theirs.read(&mut buffer).unwrap(), 5);
        assert_eq!(&buffer[..5], b"hello");
        assert_eq!(subject.take(id).unwrap(), 5);
        assert_eq!(subject.error(id), Some(Errno::INVAL), "it has ended");
        assert!(subject.poll(NOW).is_empty());
    });
}

#[test]
fn a_send_does_not_block() {
    on_every_driver(|subject| {
        let (ours, _theirs) = pair();
        let chunk = vec![0; 1 << 16];
        let sends: Vec<_> = (1..21)
            .map(|token| subject.start(&ours, Operation::Send(&chunk), token))
            .collect();
        subject.reported(20);
        let last = *sends.last().unwrap();
        assert_eq!(subject.error(last), Some(Errno::AGAIN));
    });
}

#[test]
fn an_error_is_reported_by_its_operation_only() {
    on_every_driver(|subject| {
        let (ours, theirs) = pair();
        drop(theirs);
        let (fine, mut peer) = pair();
        let ids = [
            subject.start(&ours, Operation::Send(b"x"), 1),
            subject.start(&fine, Operation::Send(b"x"), 2),
            subject.start(&File::open("/").unwrap(), Operation::Send(b"x"), 3),
        ];
        subject.reported(3);
        assert_eq!(subject.error(ids[0]), Some(Errno::PIPE));
        assert_eq!(subject.take(ids[1]).unwrap(), 1);
        peer.read_exact(&mut [0]).unwrap();
        assert!([Some(Errno::BADF), Some(Errno::NOTSOCK)].contains(&subject.error(ids[2])));

        let (ours, theirs) = tcp();
        (&ours).write_all(b"unread").unwrap();
        wait_for(&theirs, PollFlags::IN);
        drop(theirs); // With unread data: this resets the connection.
        wait_for(&ours, PollFlags::IN);
        let id = subject.start(&ours, Operation::Send(b"x"), 4);
        subject.reported(1);
        assert_eq!(subject.error(id), Some(Errno::CONNRESET));
    });
}

#[test]
fn more_operations_than_the_queue_holds_are_carried_out_in_order() {
    const COUNT: u32 = 20_000;
    on_every_driver(|subject| {
        let (ours, mut theirs) = pair();
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).unwrap();
            all
        });
        let (mut expected, mut next) = (Vec::new(), 0);
        while next < COUNT {
            let batch: Vec<_> = (next..COUNT.min(next + 5000))
                .map(|number| {
                    let bytes = number.to_be_bytes();
                    (
                        number,
                        subject.start(&ours, Operation::Send(&bytes), number),
                    )
                })
                .collect();
            let reported = subject.reported(batch.len());
            assert!(
                reported
                    .iter()
                    .copied()
                    .eq(batch.iter().map(|(number, _)| *number))
            );
            // The socket may fill up. The first send that failed is repeated, with all that follow it.
            let mut full = false;
            for (number, id) in batch {
                match subject.take(id) {
                    Ok(4) if !full => {
                        expected.extend(number.to_be_bytes());
                        next = number + 1;
                    }
                    Ok(4) => expected.extend(number.to_be_bytes()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => full = true,
                    other => panic!("{other:?}"),
                }
            }
            if full {
                wait_for(&ours, PollFlags::OUT);
            }
        }
        drop(ours);
        assert_eq!(reader.join().unwrap(), expected);
    });
}

// --- ends ------------------------------------------------------------------------------------------------------------

#[test]
fn a_withdrawn_operation_is_not_carried_out() {
    on_every_driver(|subject| {
        let (ours, mut theirs) = pair();
        let first = subject.start(&ours, Operation::Send(b"first"), 1);
        let second = subject.start(&ours, Operation::Send(b"second"), 2);
        assert!(subject.operations().withdraw(first));
        assert!(!subject.operations().withdraw(first));
        assert_eq!(subject.reported(1), [2]);
        assert!(!subject.operations().withdraw(second), "it was carried out");
        assert_eq!(subject.take(second).unwrap(), 6);
        drop(ours);
        let mut all = String::new();
        theirs.read_to_string(&mut all).unwrap();
        assert_eq!(all, "second");
    });
}

#[test]
fn an_outcome_that_was_waited_for_is_not_reported() {
    on_every_driver(|subject| {
        let (ours, _theirs) = pair();
        let id = subject.start(&ours, Operation::Send(b"x"), 1);
        subject.operations().wait(id).unwrap();
        assert_eq!(subject.take(id).unwrap(), 1);
        assert!(subject.poll(NOW).is_empty());
    });
}

#[test]
fn an_operation_is_reported_under_its_last_token() {
    on_every_driver(|subject| {
        let (reader, writer) = pipe().unwrap();
        let id = subject.start(&reader, Operation::Read(0, 10), 1);
        assert!(subject.poll(NOW).is_empty());
        assert!(!subject.operations().is_complete(id));
        subject.operations().redirect(id, Token::new(2, 0));
        File::from(writer).write_all(b"late").unwrap();
        assert_eq!(subject.reported(1), [2]);
        assert!(subject.operations().is_complete(id));
        assert_eq!(subject.take(id).unwrap(), 4);
        assert!(!subject.operations().is_complete(id), "it has ended");
    });
}

#[test]
fn an_abandoned_operation_is_not_reported_and_takes_no_data() {
    on_every_driver(|subject| {
        // In the stages queued, in flight, and complete.
        let (mut reader, mut writer) = pipe().map(|(r, w)| (File::from(r), File::from(w))).unwrap();
        let queued = subject.start(&reader, Operation::Read(0, 10), 1);
        subject.operations().abandon(queued);
        let in_flight = subject.start(&reader, Operation::Read(0, 10), 2);
        assert!(subject.poll(NOW).is_empty());
        subject.operations().abandon(in_flight);
        // If the read were still in flight, it would take these bytes.
        writer.write_all(b"hello").unwrap();
        assert!(subject.poll(NOW).is_empty());
        assert!(is_readable(&reader), "an abandoned read took the bytes");
        assert_eq!(reader.read(&mut [0; 9]).unwrap(), 5);

        let (ours, _theirs) = pair();
        let complete = subject.start(&ours, Operation::Send(b"x"), 3);
        subject.operations().submit().unwrap();
        subject.operations().abandon(complete);
        assert!(subject.poll(NOW).is_empty());
        assert_eq!(subject.error(complete), Some(Errno::INVAL));
    });
}

#[test]
fn an_old_id_does_not_reach_the_next_operation_of_its_slot() {
    on_every_driver(|subject| {
        let (reader, mut writer) = pipe().map(|(r, w)| (r, File::from(w))).unwrap();
        let old = subject.start(&reader, Operation::Read(0, 10), 1);
        subject.operations().abandon(old);
        let new = subject.start(&reader, Operation::Read(0, 10), 2);
        assert_eq!(old.slot(), new.slot());
        assert!(!subject.operations().withdraw(old));
        assert!(subject.poll(NOW).is_empty());
        subject.operations().abandon(old);
        subject.operations().redirect(old, Token::new(3, 0));
        writer.write_all(b"hello").unwrap();
        assert_eq!(subject.reported(1), [2]);
        assert!(!subject.operations().is_complete(old));
        assert_eq!(subject.error(old), Some(Errno::INVAL));
        assert_eq!(subject.take(new).unwrap(), 5);
    });
}

#[test]
fn the_kernel_does_not_write_to_the_memory_of_an_abandoned_operation() {
    const SIZE: usize = 4096;
    on_every_driver(|subject| {
        let (reader, writer) = pipe().unwrap();
        let (ours, theirs) = pair();
        for _ in 0..100 {
            let in_flight = subject.start(&reader, Operation::Read(0, SIZE), 1);
            assert!(subject.poll(NOW).is_empty());
            subject.operations().abandon(in_flight);
            // These operations get the memory that is free now. The bytes that come to the pipe must not reach it.
            let ids =
                [2, 3].map(|token| subject.start(&ours, Operation::Send(&[b'a'; SIZE]), token));
            rustix::io::write(&writer, &[b'b'; SIZE]).unwrap();
            subject.reported(2);
            for id in ids {
                assert_eq!(subject.take(id).unwrap(), SIZE);
            }
            let mut sent = [0; 2 * SIZE];
            (&theirs).read_exact(&mut sent).unwrap();
            assert!(sent.iter().all(|byte| *byte == b'a'));
            let mut kept = [0; SIZE];
            assert!(is_readable(&reader), "an abandoned read took the bytes");
            assert_eq!(rustix::io::read(&reader, &mut kept).unwrap(), SIZE);
        }
    });
}

#[test]
fn a_driver_is_dropped_with_operations_in_every_stage() {
    on_every_driver(|subject| {
        let (reader, _writer) = pipe().unwrap();
        for token in 0..300 {
            let id = subject.start(&reader, Operation::Read(0, 1000), token);
            if token % 3 == 0 {
                subject.poll(NOW);
            }
            if token % 5 == 0 {
                subject.operations().abandon(id);
            }
        }
        let (_, fresh) = Backend::open(Some(Backend::Uring)).unwrap();
        // The drop returns because all reads are cancelled: no byte is ever written.
        drop(std::mem::replace(&mut subject.driver, fresh));
    });
}

// --- later -----------------------------------------------------------------------------------------------------------

#[test]
fn a_late_outcome_makes_the_own_descriptor_readable() {
    on_every_driver(|subject| {
        let own = subject.driver.descriptor().unwrap();
        let (reader, writer) = pipe().unwrap();
        subject.start(&reader, Operation::Read(0, 10), 1);
        assert!(subject.poll(NOW).is_empty());
        assert!(!is_readable(&own));
        File::from(writer).write_all(b"late").unwrap();
        while !is_readable(&own) {
            thread::yield_now();
        }
        assert_eq!(subject.reported(1), [1]);
    });
}

#[test]
fn many_late_outcomes_at_once_are_all_reported() {
    const COUNT: u32 = 5000;
    on_every_driver(|subject| {
        let (reader, writer) = pipe().unwrap();
        let ids: Vec<_> = (0..COUNT)
            .map(|token| subject.start(&reader, Operation::Read(0, 1), token))
            .collect();
        assert!(subject.poll(NOW).is_empty());
        drop(writer); // All reads complete at once, with the end of the stream.
        let mut tokens = subject.reported(COUNT as usize);
        tokens.sort_unstable();
        assert!(tokens.into_iter().eq(0..COUNT));
        for id in ids {
            assert_eq!(subject.take(id).unwrap(), 0);
        }
    });
}

#[test]
fn operations_outlive_the_thread_that_started_them() {
    on_every_driver(|subject| {
        let (reader, writer) = pipe().unwrap();
        let (ours, mut theirs) = pair();
        let (late, queued) = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let late = subject.start(&reader, Operation::Read(0, 10), 1);
                subject.operations().submit().unwrap();
                (late, subject.start(&ours, Operation::Send(b"x"), 2))
            });
            thread.join().unwrap()
        });
        assert_eq!(subject.reported(1), [2]);
        assert_eq!(subject.take(queued).unwrap(), 1);
        theirs.read_exact(&mut [0]).unwrap();
        File::from(writer).write_all(b"late").unwrap();
        assert_eq!(subject.reported(1), [1]);
        // The kernel may have cancelled the operation when the thread ended. It then has read nothing.
        match subject.take(late) {
            Ok(count) => assert_eq!(count, 4),
            Err(error) => {
                assert_eq!(Errno::from_io_error(&error), Some(Errno::CANCELED));
                assert_eq!(File::from(reader).read(&mut [0; 9]).unwrap(), 4);
            }
        }
    });
}

/// An outcome that is there when the sleep begins ends no sleep, and nothing is left queued.
#[test]
fn a_sleep_submits_what_is_queued_and_does_not_block_while_an_outcome_is_unreported() {
    on_every_driver(|subject| {
        let (_, fresh) = Backend::open(Some(Backend::Uring)).unwrap();
        let mut reactor = Reactor::with_driver(std::mem::replace(&mut subject.driver, fresh));
        let (ours, mut theirs) = pair();
        let operations = reactor.operations().unwrap();
        let operation = Operation::Send(b"x");
        operations
            .start(ours.as_raw_fd(), operation, Token::new(1, 0))
            .unwrap();
        for _ in 0..2 {
            assert_eq!(reactor.sleep(None).timeout(), NOW);
        }
        theirs.read_exact(&mut [0]).unwrap();
        let mut events = Events::new();
        reactor.collect(&mut events).unwrap();
        assert_eq!(events[0].token, Token::new(1, 0));
        assert_eq!(reactor.sleep(None).timeout(), None);
    });
}

// --- files -----------------------------------------------------------------------------------------------------------

#[test]
fn files_are_read_at_an_offset_and_synchronised() {
    on_every_driver(|subject| {
        let (_scratch, mut file) = Scratch::new("offsets", b"0123456789");
        for (offset, count) in [(6, 4), (0, 4), (9, 1), (10, 0)] {
            let id = subject.start(&file, Operation::Read(offset, 4), 1);
            subject.reported(1);
            assert_eq!(subject.take(id).unwrap(), count);
        }
        assert_eq!(file.stream_position().unwrap(), 0);
        for operation in [Operation::Sync, Operation::SyncData] {
            let id = subject.start(&file, operation, 1);
            subject.reported(1);
            assert_eq!(subject.take(id).unwrap(), 0);
        }
    });
}

#[test]
fn a_read_before_the_start_of_a_file_is_an_error_and_does_not_move_its_position() {
    on_every_driver(|subject| {
        let (_scratch, mut file) = Scratch::new("before", b"0123456789");
        for offset in [u64::MAX, i64::MIN as u64] {
            let id = subject.start(&file, Operation::Read(offset, 4), 1);
            assert_eq!(subject.reported(1), [1]);
            assert_eq!(subject.error(id), Some(Errno::INVAL));
        }
        assert_eq!(file.stream_position().unwrap(), 0);
    });
}

// --- processes -------------------------------------------------------------------------------------------------------

#[test]
fn a_forked_child_can_drop_its_copy_of_the_driver() {
    let _alone = FORK.write().unwrap_or_else(PoisonError::into_inner);
    on_every_driver_alone(|subject| {
        let (reader, writer): (OwnedFd, OwnedFd) = pipe().unwrap();
        let id = subject.start(&reader, Operation::Read(0, 10), 1);
        assert!(subject.poll(NOW).is_empty());
        // SAFETY: the child drops the driver, which takes no lock that another thread may hold, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the value is dropped once, because _exit(2) does not return.
            unsafe {
                std::ptr::drop_in_place(&mut subject.driver);
                libc::_exit(0);
            }
        }
        let mut status = -1;
        // SAFETY: the status outlives the call.
        let reaped = unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!((reaped, status), (child, 0));
        File::from(writer).write_all(b"still").unwrap();
        assert_eq!(subject.reported(1), [1]);
        assert_eq!(subject.take(id).unwrap(), 5);
    });
}
