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

/// close(2) of a descriptor that its owner has given up.
pub fn close(descriptor: RawFd) {
    // SAFETY: the VM has handed the descriptor over to be closed and forgets it, so no other code uses it.
    unsafe { libc::close(descriptor) };
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
