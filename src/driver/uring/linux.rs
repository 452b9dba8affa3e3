//! The Linux driver that carries out operations by itself: epoll(7) for readiness, io_uring(7) for operations.
//!
//! The operations that were started in one turn go to the kernel with one io_uring_enter(2) at the beginning of the next
//! poll. Outcomes are read from shared memory. A thread sleeps on the epoll descriptor. An operation that completes later
//! adds to the same eventfd(2) that other threads' wakes add to. Other threads never use the ring.
//!
//! Sleeping in io_uring_enter(2) would save a system call and no time: docs/measured.md, "Where the uring driver sleeps".

mod operation_slot;
mod operation_table;
mod readiness;
mod ring;

use std::{
    fmt, io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use crate::{
    descriptor::Descriptor,
    driver::{Driver, Operations, Registration, Reregistration, Unavailable, Wake},
    event::Events,
    interest::Interest,
    token::Token,
};

use operation_table::OperationTable;
use readiness::{Readiness, check};
use ring::Ring;

/// The events that one poll returns at most; see the contract of [`Driver`].
const BATCH: usize = 1024;

/// A driver over epoll and a ring.
pub(crate) struct UringDriver {
    operations: OperationTable,
    readiness: Readiness,
    event_fd: Arc<EventFd>,
}

impl UringDriver {
    /// Opens epoll and the ring, and probes the ring's operations.
    ///
    /// # Errors
    ///
    /// The system call that failed: because of seccomp(2), the sysctl `kernel.io_uring_disabled`, a limit, or an old kernel.
    pub(crate) fn open() -> Result<Self, Unavailable> {
        let event_fd = EventFd::open().map_err(|error| refused("eventfd", &error))?;
        let number = event_fd.0.as_raw_fd();
        let ring = Ring::open(number)?;
        let readiness = Readiness::open(BATCH).map_err(|error| refused("epoll_create1", &error))?;
        let registered = readiness
            .register(number, Token::WAKE, Interest::READABLE)
            .map_err(|error| refused("epoll_ctl", &error))?;
        if registered == Registration::Unpollable {
            // Nothing would wake the thread that polls.
            let error = io::Error::from_raw_os_error(libc::EPERM);
            return Err(refused("epoll_ctl", &error));
        }
        Ok(Self {
            operations: OperationTable::new(ring),
            readiness,
            event_fd: Arc::new(event_fd),
        })
    }
}

/// This system call failed.
fn refused(call: &'static str, error: &io::Error) -> Unavailable {
    Unavailable::new(call, error.raw_os_error())
}

impl Driver for UringDriver {
    fn register(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registration> {
        self.readiness.register(descriptor, token, interest)
    }

    fn reregister(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Reregistration> {
        self.readiness.reregister(descriptor, token, interest)
    }

    fn deregister(&mut self, descriptor: Descriptor) -> io::Result<()> {
        self.readiness.deregister(descriptor)
    }

    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.clear();
        if self.operations.is_quiet() {
            return self.readiness.collect(events, BATCH, timeout);
        }
        self.operations.submit()?;
        self.operations.collect()?;
        self.operations.report(events, BATCH / 2);
        let timeout = if events.is_empty() {
            self.operations.limit(timeout)
        } else {
            Some(Duration::ZERO)
        };
        let collected = self
            .readiness
            .collect(events, BATCH - events.len(), timeout)
            .and_then(|()| self.operations.collect());
        self.operations.report(events, BATCH - events.len());
        // An event is reported once. An error that lasts comes again with the next poll.
        if events.is_empty() { collected } else { Ok(()) }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.event_fd) as Arc<dyn Wake>
    }

    fn descriptor(&self) -> Option<Descriptor> {
        Some(self.readiness.descriptor())
    }

    fn operations(&mut self) -> Option<&mut dyn Operations> {
        Some(&mut self.operations)
    }
}

impl fmt::Debug for UringDriver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("UringDriver")
            .finish_non_exhaustive()
    }
}

/// An eventfd(2), to which other threads and completions add. It is never read: each addition is an edge for epoll, and its
/// 64-bit counter does not overflow.
struct EventFd(OwnedFd);

impl EventFd {
    fn open() -> io::Result<Self> {
        // SAFETY: the call takes no pointer.
        let descriptor =
            check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the descriptor is new, and this is its only owner.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }
}

impl Wake for EventFd {
    fn wake(&self) -> io::Result<()> {
        let one = 1_u64;
        loop {
            // SAFETY: the call reads the eight bytes of `one`.
            let written = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
            if written == 8 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}
