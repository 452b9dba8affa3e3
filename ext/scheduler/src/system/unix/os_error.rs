//! System call errors as C's `errno` numbers. On Unix they already are such numbers.

use std::io;

use crate::system::errno::Errno;

/// EIO for errors that no system call reported.
impl From<&io::Error> for Errno {
    fn from(error: &io::Error) -> Self {
        error.raw_os_error().map_or(Self::IO, Self::new)
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self::new(error.raw_os_error())
    }
}
