//! A descriptor by its number: polled, asked, closed.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use reactor::Interest;
use rustix::fs::{FileType, OFlags};

use crate::system::errno::Errno;

/// A descriptor that Ruby has named.
///
/// It may be closed since, by another fiber, and its number reused. Then a call fails, or is made on another file, as it would be if
/// Ruby made it: no memory depends on it. While a worker uses a descriptor, it is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor(RawFd);

impl Descriptor {
    /// # Safety
    ///
    /// The number is not negative, and its IO object, or other owner, lets the caller use the descriptor.
    pub const unsafe fn new(number: RawFd) -> Self {
        Self(number)
    }

    pub const fn number(self) -> RawFd {
        self.0
    }

    /// The core's name of it.
    pub const fn polled(self) -> reactor::Descriptor {
        self.0
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the number is not -1, and its owner lets us use it: see `new`.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

/// Closes a socket or a pipe. False, and nothing done, for a close that may block: a file with data that must be written, and a socket
/// that lingers (SO_LINGER in socket(7)). As in Ruby itself, an error is not reported, because the descriptor is gone either way.
///
/// # Safety
///
/// Its owner has given it up.
pub unsafe fn close_unless_blocking(descriptor: Descriptor) -> bool {
    let is_instant = match rustix::net::sockopt::socket_linger(descriptor) {
        Ok(linger) => linger.is_none(),
        Err(_) => rustix::fs::fstat(descriptor)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo),
    };
    if is_instant {
        // SAFETY: the caller has it closed.
        unsafe { rustix::io::close(descriptor.0) };
    }
    is_instant
}

/// Whether O_NONBLOCK is set.
pub fn is_nonblocking(descriptor: Descriptor) -> bool {
    rustix::fs::fcntl_getfl(descriptor).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// EAGAIN unless the descriptor polls as ready now.
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
