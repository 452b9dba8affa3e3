//! The half of a turn that blocks.

use std::{io, time::Duration};

use crate::{
    descriptor::{Descriptor, sleep_on},
    handle::Handle,
};

/// A prepared sleep: a descriptor and a timeout, with nothing of the reactor borrowed.
///
/// It may be moved to, or used by, another thread than the reactor's.
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
///     Err(error) if error.kind() == ErrorKind::Unsupported => {} // There only a turn sleeps.
///     result => result?,
/// }
/// drop(sleep);
/// reactor.collect(&mut Events::new())?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[must_use = "other threads take the reactor for asleep until this is dropped"]
pub struct Sleep {
    descriptor: Option<Descriptor>,
    timeout: Option<Duration>,
    handle: Handle,
}

impl Sleep {
    /// The handle was told by `prepare_sleep`; dropping the sleep tells it the end.
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

    /// What to sleep on: the driver's own descriptor, readable as soon as [`Reactor::collect`] would find something. None
    /// where the platform has none; see [`Driver::descriptor`].
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.descriptor
    }

    /// For how long at most; None: until the descriptor is readable. It was computed when the sleep was prepared.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Blocks in ppoll(2), to the nanosecond where the platform has it and to the next millisecond elsewhere.
    ///
    /// Returns after a signal, too. It collects nothing: that is the next [`Reactor::collect`]'s.
    ///
    /// # Errors
    ///
    /// `EBADF` if the driver's descriptor was closed (by a fork(2) in between, say); [`io::ErrorKind::Unsupported`] where
    /// the driver has no descriptor, on Windows and on poll(2): there only [`Reactor::turn`] sleeps.
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
