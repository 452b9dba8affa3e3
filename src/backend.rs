//! Which drivers there are, which can be had here, and why not the others. The only file that names concrete drivers.

use std::{error::Error, fmt, io, str::FromStr};

use crate::driver::{Driver, poll::Poller};

/// A way to ask the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// io_uring, Linux.
    Uring,
    /// epoll(7), Linux.
    Epoll,
    /// kqueue(2), macOS and the BSDs.
    Kqueue,
    /// I/O completion ports, Windows.
    Iocp,
    /// poll(2), where mio has nothing better.
    Poll,
}

/// What mio stands on here.
const NATIVE: Backend = if cfg!(any(target_os = "linux", target_os = "android")) {
    Backend::Epoll
} else if cfg!(windows) {
    Backend::Iocp
} else if cfg!(any(
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly"
)) {
    Backend::Kqueue
} else {
    Backend::Poll
};

impl Backend {
    /// All of them, best first.
    pub const ALL: [Self; 5] = [
        Self::Uring,
        Self::Epoll,
        Self::Kqueue,
        Self::Iocp,
        Self::Poll,
    ];

    /// The name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
            Self::Kqueue => "kqueue",
            Self::Iocp => "iocp",
            Self::Poll => "poll",
        }
    }

    /// The one that is taken when nobody asks for another.
    pub const fn native() -> Self {
        NATIVE
    }

    /// Whether it can be had here.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn availability(self) -> Result<(), Unavailable> {
        if self == NATIVE {
            return Ok(());
        }
        Err(Unavailable(match self {
            Self::Uring => "this build has no io_uring driver",
            Self::Epoll => "needs Linux",
            Self::Kqueue => "needs macOS or a BSD",
            Self::Iocp => "needs Windows",
            Self::Poll => "this system has something better",
        }))
    }

    /// Opens a driver: this one, or, if none is asked for, the native one. An explicit choice never falls back.
    ///
    /// # Errors
    ///
    /// `Unsupported`, with the reason as text, if the one that is asked for does not exist here; otherwise what the
    /// kernel says (EMFILE, ENOMEM).
    pub fn open(choice: Option<Self>) -> io::Result<(Self, Box<dyn Driver>)> {
        let backend = choice.unwrap_or(NATIVE);
        match backend.availability() {
            Err(reason) => {
                let message = format!("backend {backend} cannot be had: {reason}");
                Err(io::Error::new(io::ErrorKind::Unsupported, message))
            }
            Ok(()) => Ok((backend, Box::new(Poller::open()?))),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let found = Self::ALL.into_iter().find(|backend| backend.name() == name);
        found.ok_or_else(|| UnknownBackend(name.into()))
    }
}

/// Why a backend cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable(&'static str);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Unavailable {}

/// No backend has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBackend(String);

impl fmt::Display for UnknownBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown backend {:?} (there are: ", self.0)?;
        for (number, backend) in Backend::ALL.into_iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{backend}")?;
        }
        f.write_str(")")
    }
}

impl Error for UnknownBackend {}
