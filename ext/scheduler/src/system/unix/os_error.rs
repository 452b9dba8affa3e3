//! Errors of system calls as numbers of C: they are these already.

use std::io;

use crate::system::errno::Errno;

/// EIO for an error that no system call has reported.
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
