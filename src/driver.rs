//! The port: what a kernel must be able to do for us, and nothing more.

use std::{io, sync::Arc, time::Duration};

use crate::{event::Events, interest::Interest, token::Token};

#[cfg(any(test, feature = "mock"))]
pub mod mock;
pub mod poll;

/// What the kernel calls a thing one can wait for.
#[cfg(unix)]
pub type Descriptor = std::os::fd::RawFd;
/// What the kernel calls a thing one can wait for: a socket.
#[cfg(windows)]
pub type Descriptor = std::os::windows::io::RawSocket;

/// How a first registration went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// Events will come.
    Armed,
    /// The same, but the kernel knew the descriptor already (EEXIST): its registration was replaced.
    Kept,
    /// The kernel does not poll such things (EPERM of epoll_ctl(2): regular files, directories), because they are
    /// always ready. Nothing is registered.
    Unpollable,
}

/// How a renewed registration went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The kernel knew the descriptor, and now knows the new interest.
    Kept,
    /// The kernel had forgotten it (it was closed and reused, or replaced by dup2(2)): it was registered afresh.
    Renewed,
    /// As [`Registration::Unpollable`].
    Unpollable,
}

/// Ends a poll from any thread, also from a signal handler.
pub trait Wake: Send + Sync {
    /// Ends the poll that goes on, or the next one. Takes no lock and allocates nothing.
    ///
    /// # Errors
    ///
    /// Whatever the kernel says; a wake-up that is already pending is no error.
    fn wake(&self) -> io::Result<()>;
}

/// One way to ask one kernel. Every driver passes the same tests (`tests/drivers.rs`).
///
/// # The contract
///
/// *Edges.* An event is reported at least once after each transition to ready, and at least once after every
/// [`register`](Driver::register) and [`reregister`](Driver::reregister) if the descriptor is ready then. It need not be
/// reported again while nothing changes. It may be reported although somebody has consumed the readiness meanwhile.
///
/// *Tokens.* An event carries the token of the latest registration of its descriptor, or of an earlier one whose
/// description lives on elsewhere (a duplicate). Tokens are never made up.
///
/// *Closing.* A descriptor may be closed, reused or replaced at any time behind the driver's back. That never makes
/// `poll` fail, and the errors that follow from it in registering are healed inside: EEXIST by renewing, ENOENT by
/// registering afresh, ENOENT and EBADF in deregistering by nothing.
///
/// *Bounds.* One poll reports a bounded number of events; the others come at the next.
///
/// *Waking.* A wake-up ends the poll that goes on or the next one, and is not shown as an event.
pub trait Driver: Send {
    /// Begins to report a descriptor.
    ///
    /// # Errors
    ///
    /// EBADF if it is not open, ENOMEM and ENOSPC if the kernel has no room (epoll_ctl(2)). Then nothing is registered.
    fn register(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registration>;

    /// Replaces token and interest, and has the descriptor reported again if it is ready.
    ///
    /// # Errors
    ///
    /// As [`register`](Driver::register).
    fn reregister(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Renewal>;

    /// Stops reporting a descriptor. One that is not registered or not open is no error.
    ///
    /// # Errors
    ///
    /// What the kernel says beyond that.
    fn deregister(&mut self, descriptor: Descriptor) -> io::Result<()>;

    /// Appends what has happened to `events`, waiting for it at most so long (`None`: for ever, zero: not at all).
    /// A signal ends the wait like a timeout.
    ///
    /// # Errors
    ///
    /// Only what makes the driver unusable.
    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()>;

    /// A way to end a poll from elsewhere.
    fn waker(&self) -> Arc<dyn Wake>;

    /// A descriptor that polls as readable whenever `poll` would return something at once, for sleeping elsewhere:
    /// under another loop, or without a lock that other threads need. `None` where the platform has none.
    fn descriptor(&self) -> Option<Descriptor>;
}
