//! The half of a turn that blocks.

use std::{io, time::Duration};

use crate::{
    descriptor::{Descriptor, sleep_on},
    handle::Handle,
};

/// A prepared sleep: a descriptor and a timeout. It borrows nothing of the reactor.
///
/// Another thread than the reactor's may use it.
///
/// ```
/// use std::{io::ErrorKind, time::Duration};
///
/// use reactor::{Events, Reactor};
///
/// let mut reactor = Reactor::open(None)?;
/// let sleep = reactor.sleep(Some(Duration::from_millis(5)));
/// assert!(sleep.timeout() <= Some(Duration::from_millis(5)));
/// match sleep.block() {
///     Err(error) if error.kind() == ErrorKind::Unsupported => {} // Windows, poll(2): only a turn sleeps.
///     result => result?,
/// }
/// drop(sleep);
/// reactor.collect(&mut Events::new())?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "other threads' notifications make system calls until this is dropped"]
pub struct Sleep {
    descriptor: Option<Descriptor>,
    timeout: Option<Duration>,
    handle: Handle,
}

impl Sleep {
    /// To be made after `Handle::prepare_sleep`. Dropping it calls `Handle::finish_sleep`.
    pub(super) fn new(
        descriptor: Option<Descriptor>,
        timeout: Option<Duration>,
        handle: Handle,
    ) -> Self {
        Self {
            descriptor,
            timeout,
            handle,
        }
    }

    /// The driver's own descriptor, readable when [`Reactor::collect`](crate::Reactor::collect) would find an event. None
    /// where the platform has none; see [`Driver::descriptor`](crate::Driver::descriptor).
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.descriptor
    }

    /// How long to sleep at most, counted from the preparation; None: without limit.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Blocks until the descriptor is readable, until a signal arrives, or for the timeout. On Linux, Android and FreeBSD the
    /// timeout counts nanoseconds (ppoll(2)), elsewhere it is rounded up to milliseconds (poll(2)).
    ///
    /// It collects no events: the next [`Reactor::collect`](crate::Reactor::collect) does.
    ///
    /// # Errors
    ///
    /// `EBADF` if the driver's descriptor was closed. [`io::ErrorKind::Unsupported`] where the driver has no descriptor, on
    /// Windows and with poll(2): there only [`Reactor::turn`](crate::Reactor::turn) sleeps.
    pub fn block(&self) -> io::Result<()> {
        match self.descriptor {
            Some(descriptor) => sleep_on(descriptor, self.timeout),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.handle.finish_sleep();
    }
}
