//! A descriptor by its number: readiness, flags, size, closing.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use reactor::Interest;
use rustix::fs::{FileType, OFlags};

use crate::system::errno::Errno;

/// A descriptor named by Ruby.
///
/// Another fiber may have closed it, and its number may have been reused. A call then fails, or acts on another file, just
/// as it would in plain Ruby; memory safety does not depend on it. While a worker uses a descriptor, it is marked as in
/// use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor(RawFd);

impl Descriptor {
    /// # Safety
    ///
    /// The number is not negative, and its IO object, or whoever else owns it, allows the caller to use the descriptor.
    pub const unsafe fn new(number: RawFd) -> Self {
        Self(number)
    }

    pub const fn number(self) -> RawFd {
        self.0
    }

    /// The number by which the core knows it.
    pub const fn polled(self) -> reactor::Descriptor {
        self.0
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the number is not -1, and its owner allows us to use it: see `new`.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// Closes a socket or pipe. Returns false and does nothing if the close may block: for a file with unwritten data, or a
/// socket that lingers (SO_LINGER in socket(7)). Like Ruby, it ignores errors, because the descriptor is gone either way.
///
/// # Safety
///
/// The descriptor's owner has given it up.
pub unsafe fn close_unless_blocking(descriptor: Descriptor) -> bool {
    let is_instant = match rustix::net::sockopt::socket_linger(descriptor) {
        Ok(linger) => linger.is_none(),
        Err(_) => rustix::fs::fstat(descriptor)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo),
    };
    if is_instant {
        // SAFETY: the caller guarantees that the owner has given it up.
        unsafe { rustix::io::close(descriptor.0) };
    }
    is_instant
}

/// Whether O_NONBLOCK is set.
pub fn is_nonblocking(descriptor: Descriptor) -> bool {
    rustix::fs::fcntl_getfl(descriptor).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// EAGAIN unless poll(2) reports the descriptor as ready now.
pub fn check_ready(descriptor: Descriptor, interest: Interest) -> Result<(), Errno> {
    match reactor::poll_now(descriptor.polled(), interest) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Errno::AGAIN),
        Err(error) => Err(error.into()),
    }
}

/// The size of a regular file; 0 for anything else.
pub fn file_size(descriptor: Descriptor) -> u64 {
    match rustix::fs::fstat(descriptor) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            stat.st_size as u64
        }
        _ => 0,
    }
}

#[cfg(test)]
impl Descriptor {
    pub fn of(file: &impl std::os::fd::AsRawFd) -> Self {
        Self(file.as_raw_fd())
    }
}
