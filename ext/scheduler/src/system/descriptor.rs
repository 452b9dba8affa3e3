//! A descriptor as a number: borrowed for one system call, polled, closed.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, RawFd};

use reactor::Interest;
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
};

/// Borrows a descriptor for one system call. If it is closed, the kernel answers EBADF.
pub fn borrow<'a>(descriptor: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the number is not -1, because it is that of an IO that was open, or `close_unless_blocking` has looked at it. It is
    // not kept beyond the call. While a worker uses it, it is pinned. If a fiber has parked since and the IO was closed, the call
    // is made on another file, or fails: no memory depends on it.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}

/// Closes a socket or a pipe that its owner has given up. False, and nothing done, for a close that may block: a file with data
/// that must be written, and a socket that lingers (SO_LINGER in socket(7)). Nor for a number that is no descriptor.
///
/// As in Ruby itself, an error is not reported, because the descriptor is gone either way.
pub fn close_unless_blocking(descriptor: RawFd) -> bool {
    if descriptor < 0 {
        return false;
    }
    let is_instant = match rustix::net::sockopt::socket_linger(borrow(descriptor)) {
        Ok(linger) => linger.is_none(),
        Err(_) => rustix::fs::fstat(borrow(descriptor))
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo),
    };
    if is_instant {
        // SAFETY: the caller has the descriptor to be closed, and forgets it.
        unsafe { rustix::io::close(descriptor) };
    }
    is_instant
}

/// Whether O_NONBLOCK is set.
pub fn is_nonblocking(descriptor: RawFd) -> bool {
    rustix::fs::fcntl_getfl(borrow(descriptor)).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// EAGAIN unless the descriptor polls as ready now.
pub fn check_ready(descriptor: RawFd, interest: Interest) -> Result<(), Errno> {
    match reactor::poll_now(descriptor, interest) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Errno::AGAIN),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

/// The size of a regular file; 0 for anything else.
pub fn file_size(descriptor: RawFd) -> u64 {
    match rustix::fs::fstat(borrow(descriptor)) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            stat.st_size as u64
        }
        _ => 0,
    }
}
