//! Why a system call failed.

use std::io;

/// The number that C's `errno` and Ruby's exceptions (`Errno::EAGAIN::Errno`) use.
///
/// On systems with other codes, the platform's `os_error` translates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Errno(i32);

impl Errno {
    /// The call would block. (Windows uses another number for a lack of threads, EAGAIN.)
    pub const AGAIN: Self = Self(libc::EWOULDBLOCK);
    pub const BADF: Self = Self(libc::EBADF);
    pub const CANCELED: Self = Self(libc::ECANCELED);
    pub const CONNABORTED: Self = Self(libc::ECONNABORTED);
    pub const FAULT: Self = Self(libc::EFAULT);
    pub const INTR: Self = Self(libc::EINTR);
    pub const INVAL: Self = Self(libc::EINVAL);
    pub const IO: Self = Self(libc::EIO);
    pub const NOMEM: Self = Self(libc::ENOMEM);
    pub const NOSYS: Self = Self(libc::ENOSYS);
    pub const NOTSOCK: Self = Self(libc::ENOTSOCK);
    pub const OPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    pub const PIPE: Self = Self(libc::EPIPE);

    pub(crate) const fn new(number: i32) -> Self {
        Self(number)
    }

    pub const fn number(self) -> i32 {
        self.0
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self::from(&error)
    }
}
