//! The Linux driver that carries out operations itself: mio's driver for readiness, io_uring(7) for operations.
//!
//! The operations started during a turn are submitted with one io_uring_enter(2) at the start of the next poll.
//! Outcomes are read from shared memory. A thread sleeps on the epoll descriptor; operations that complete later add to
//! an eventfd(2) that epoll watches. Other threads never use the ring.
//!
//! Readiness does not use `IORING_OP_POLL_ADD`, because a poll request keeps its file open until it is removed. If one
//! outlived its wait, close(2) would have no effect: a socket's peer would not see the end, and a listener would keep
//! its port.
//!
//! Sleeping in io_uring_enter(2) would save a system call but no time: bench/NOTES.md, "Where the uring driver sleeps".

mod operation_slot;
mod operation_table;
mod ring;

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use crate::{
    descriptor::Descriptor,
    driver::{BATCH, Driver, Operations, Registration, Unavailable, Wake, mio::MioDriver},
    event::Events,
    interest::Interest,
    token::Token,
};

use operation_table::OperationTable;
use ring::Ring;

/// mio's driver and a ring.
struct UringDriver {
    operations: OperationTable,
    readiness: MioDriver,
    /// The eventfd(2) to which completions add. It is never read: each addition is an edge for epoll, and the 64-bit
    /// counter cannot overflow in practice.
    _event_fd: OwnedFd,
}

/// Opens epoll and the ring, and probes the ring's operations.
///
/// # Errors
///
/// The error of the system call that failed. Causes are seccomp(2), the sysctl `kernel.io_uring_disabled`, a limit, or
/// an old kernel.
pub(crate) fn open() -> Result<Box<dyn Driver>, Unavailable> {
    let event_fd = event_fd().map_err(|error| refused("eventfd", &error))?;
    let number = event_fd.as_raw_fd();
    let ring = Ring::open(number)?;
    // Half a batch; the other half is for operations.
    let mut readiness =
        MioDriver::open(BATCH / 2).map_err(|error| refused("epoll_create1", &error))?;
    let registered = readiness
        .register(number, Token::WAKE, Interest::READABLE, false)
        .map_err(|error| refused("epoll_ctl", &error))?;
    if registered == Registration::Unpollable {
        // Without it, no completion would wake the polling thread.
        let error = io::Error::from_raw_os_error(libc::EPERM);
        return Err(refused("epoll_ctl", &error));
    }
    Ok(Box::new(UringDriver {
        operations: OperationTable::new(ring),
        readiness,
        _event_fd: event_fd,
    }))
}

/// The given system call failed.
fn refused(call: &'static str, error: &io::Error) -> Unavailable {
    Unavailable::new(call, error.raw_os_error())
}

fn event_fd() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointer.
    match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new, and this is its only owner.
        descriptor => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
    }
}

impl Driver for UringDriver {
    fn register(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
        is_known: bool,
    ) -> io::Result<Registration> {
        self.readiness
            .register(descriptor, token, interest, is_known)
    }

    fn deregister(&mut self, descriptor: Descriptor) -> io::Result<()> {
        self.readiness.deregister(descriptor)
    }

    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        if self.operations.is_quiet() {
            return self.readiness.poll(events, timeout);
        }
        events.clear();
        self.operations.submit()?;
        self.operations.collect()?;
        let timeout = if self.operations.has_unreported() {
            Some(Duration::ZERO)
        } else {
            self.operations.limit(timeout)
        };
        let polled = self
            .readiness
            .poll(events, timeout)
            .and_then(|()| self.operations.collect());
        self.operations.report(events, BATCH - events.len());
        // An event is reported only once. A persistent error recurs at the next poll.
        if events.is_empty() { polled } else { Ok(()) }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.readiness.waker()
    }

    fn descriptor(&self) -> Option<Descriptor> {
        self.readiness.descriptor()
    }

    fn operations(&mut self) -> Option<&mut dyn Operations> {
        Some(&mut self.operations)
    }
}
