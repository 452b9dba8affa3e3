//! Descriptors, and the system calls on them: poll(2), ppoll(2), fcntl(2), fstat(2).

#![allow(unsafe_code)]

#[cfg_attr(unix, path = "descriptor/unix.rs")]
#[cfg_attr(windows, path = "descriptor/windows.rs")]
mod platform;

use std::io;

pub use platform::poll_now;
pub(crate) use platform::sleep_on;

#[cfg(unix)]
pub(crate) use platform::{asked_of_poll, duplicate, is_file, poll_all, poll_entry, ready_of_poll};

#[cfg(windows)]
pub(crate) use platform::unsupported;

/// A file descriptor.
#[cfg(unix)]
pub type Descriptor = std::os::fd::RawFd;

/// A socket. Windows can wait for sockets only.
#[cfg(windows)]
pub type Descriptor = std::os::windows::io::RawSocket;

/// The error for a number that cannot be a descriptor.
pub(crate) fn bad_descriptor() -> io::Error {
    io::Error::from_raw_os_error(BAD_DESCRIPTOR)
}

#[cfg(unix)]
const BAD_DESCRIPTOR: i32 = libc::EBADF;

/// `WSAENOTSOCK`.
#[cfg(windows)]
const BAD_DESCRIPTOR: i32 = 10038;
