//! The number by which the kernel knows what is waited for, and the system calls on one of them.

#![allow(unsafe_code)]

#[cfg_attr(unix, path = "descriptor/unix.rs")]
#[cfg_attr(windows, path = "descriptor/windows.rs")]
mod platform;

use std::io;

pub use platform::poll_now;
pub(crate) use platform::sleep_on;

#[cfg(unix)]
pub(crate) use platform::duplicate;

#[cfg(windows)]
pub(crate) use platform::unsupported;

/// What the kernel knows a source by: a file descriptor.
#[cfg(unix)]
pub type Descriptor = std::os::fd::RawFd;

/// What the kernel knows a source by: a socket. Nothing else can be waited for on Windows.
#[cfg(windows)]
pub type Descriptor = std::os::windows::io::RawSocket;

/// The error for a number that can be no descriptor.
pub(crate) fn bad_descriptor() -> io::Error {
    io::Error::from_raw_os_error(BAD_DESCRIPTOR)
}

#[cfg(unix)]
const BAD_DESCRIPTOR: i32 = libc::EBADF;

/// `WSAENOTSOCK`.
#[cfg(windows)]
const BAD_DESCRIPTOR: i32 = 10038;
