//! Which drivers there are, and which of them can be had here. The only file that names a concrete driver.

use std::{error::Error, fmt, io, str::FromStr, sync::OnceLock};

use crate::driver::{Driver, Unavailable, mio::MioDriver, uring::UringDriver};

/// A kernel interface the reactor can stand on.
///
/// ```
/// use reactor::{Backend, Reactor};
///
/// for backend in Backend::ALL {
///     match backend.availability() {
///         Ok(()) => println!("{backend} can be had here"),
///         Err(reason) => println!("{backend}: {reason}"),
///     }
/// }
/// // Whoever chooses is told why it cannot be had; nobody falls back silently.
/// let chosen: Backend = Backend::native().name().parse()?;
/// assert_eq!(Reactor::open(Some(chosen))?.backend(), Some(chosen));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// epoll(7): Linux, Android, illumos.
    Epoll,
    /// kqueue(2): macOS, the BSDs.
    Kqueue,
    /// AFD polls over an I/O completion port: Windows.
    Iocp,
    /// poll(2), or the platform's own port, where there is none of the others.
    Poll,
    /// io_uring(7): Linux, in builds that have its driver.
    Uring,
}

/// The interface mio uses on this platform.
const NATIVE: Backend = if cfg!(mio_unsupported_force_poll_poll) {
    Backend::Poll
} else if cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_os = "illumos",
    target_os = "redox"
)) {
    Backend::Epoll
} else if cfg!(any(
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "dragonfly",
    target_os = "netbsd",
    target_os = "openbsd"
)) {
    Backend::Kqueue
} else if cfg!(windows) {
    Backend::Iocp
} else {
    Backend::Poll
};

/// What is opened if nobody chose: the first of these that can be had.
const PREFERENCE: [Backend; 2] = [NATIVE, Backend::Uring];

impl Backend {
    /// All backends, whether they can be had here or not.
    pub const ALL: [Self; 5] = [
        Self::Epoll,
        Self::Kqueue,
        Self::Iocp,
        Self::Poll,
        Self::Uring,
    ];

    /// The name, in lower case: what [`FromStr`] reads.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Kqueue => "kqueue",
            Self::Iocp => "iocp",
            Self::Poll => "poll",
            Self::Uring => "uring",
        }
    }

    /// The best backend that can be had here.
    pub fn native() -> Self {
        let usable = PREFERENCE.into_iter().find(|b| b.availability().is_ok());
        usable.unwrap_or(NATIVE)
    }

    /// Can this backend be opened here?
    ///
    /// io_uring is asked for once, by opening a ring and asking what it can do: seccomp, a sysctl, a limit or an old kernel
    /// may refuse it.
    ///
    /// # Errors
    ///
    /// The reason why not, in words.
    pub fn availability(self) -> Result<(), Unavailable> {
        static URING: OnceLock<Result<(), Unavailable>> = OnceLock::new();
        if self == NATIVE {
            return Ok(());
        }
        Err(Unavailable::because(match self {
            Self::Epoll => "needs Linux, Android or illumos",
            Self::Kqueue => "needs macOS or a BSD",
            Self::Iocp => "needs Windows",
            Self::Poll => "is used only where the platform has nothing better",
            Self::Uring => return *URING.get_or_init(|| UringDriver::open().map(drop)),
        }))
    }

    /// Opens a driver: the chosen one, or the best there is if nobody chose.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] with the reason if the chosen backend cannot be had here: there is no falling back
    /// from an explicit choice. Otherwise what the kernel says: `EMFILE`, `ENFILE`, `ENOMEM`.
    pub fn open(choice: Option<Self>) -> io::Result<(Self, Box<dyn Driver>)> {
        match choice {
            Some(backend) => Ok((backend, backend.open_driver()?)),
            None => Self::open_first(&PREFERENCE),
        }
    }

    /// Opens the first of these that can be had.
    ///
    /// # Errors
    ///
    /// As [`Backend::open`], of the last of them.
    pub fn open_first(backends: &[Self]) -> io::Result<(Self, Box<dyn Driver>)> {
        let mut failure = io::ErrorKind::Unsupported.into();
        for backend in backends {
            match backend.open_driver() {
                Ok(driver) => return Ok((*backend, driver)),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn open_driver(self) -> io::Result<Box<dyn Driver>> {
        self.availability().map_err(|reason| {
            io::Error::new(io::ErrorKind::Unsupported, format!("{self}: {reason}"))
        })?;
        if self != Self::Uring {
            return Ok(Box::new(MioDriver::open()?));
        }
        // It could be had before: what is missing now is a descriptor or memory.
        match UringDriver::open() {
            Ok(driver) => Ok(Box::new(driver)),
            Err(reason) => Err(reason.into()),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let mut all = Self::ALL.into_iter();
        all.find(|backend| backend.name() == name)
            .ok_or_else(|| UnknownBackend(name.to_owned()))
    }
}

/// A name that is no backend's.
///
/// ```
/// let error = "select".parse::<reactor::Backend>().unwrap_err();
/// assert!(error.to_string().starts_with("unknown backend \"select\""));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownBackend(String);

impl fmt::Display for UnknownBackend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "unknown backend {:?}: expected one of", self.0)?;
        let mut separator = " ";
        for backend in Backend::ALL {
            write!(formatter, "{separator}{backend}")?;
            separator = ", ";
        }
        Ok(())
    }
}

impl Error for UnknownBackend {}

#[cfg(test)]
mod tests {
    use std::io;

    use super::Backend;

    #[test]
    fn names_go_there_and_back() {
        for backend in Backend::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        let error = "select".parse::<Backend>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown backend \"select\": expected one of epoll, kqueue, iocp, poll, uring"
        );
    }

    #[test]
    fn an_explicit_choice_never_falls_back() {
        for backend in Backend::ALL {
            match (backend.availability(), Backend::open(Some(backend))) {
                (Ok(()), Ok((opened, _))) => assert_eq!(opened, backend),
                (Err(reason), Err(error)) => {
                    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                    assert_eq!(error.to_string(), format!("{backend}: {reason}"));
                }
                _ => panic!("{backend}: availability and open disagree"),
            }
        }
    }

    #[test]
    fn nobody_chose() {
        let (backend, _) = Backend::open(None).unwrap();
        assert_eq!(backend, Backend::native());
        assert_eq!(backend.availability(), Ok(()));
    }
}
