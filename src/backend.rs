//! The backends, and which of them are available. This is the only file that names a concrete driver.

use std::{fmt, io, str::FromStr, sync::OnceLock, time::Duration};

use crate::{
    driver::{BATCH, Driver, Unavailable, mio::MioDriver, uring},
    event::{Event, Events},
};

#[cfg(unix)]
use crate::driver::poll::PollDriver;

/// A kernel interface that the reactor can use.
///
/// ```
/// use reactor::{Backend, Reactor};
///
/// for backend in Backend::ALL {
///     match backend.availability() {
///         Ok(()) => println!("{backend} is available"),
///         Err(reason) => println!("{backend}: {reason}"),
///     }
/// }
/// // If the chosen backend is not available, `open` fails with the reason. It opens no other one.
/// let chosen: Backend = Backend::native().name().parse()?;
/// assert_eq!(Reactor::open(Some(chosen))?.backend(), Some(chosen));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// epoll(7): Linux, Android, illumos.
    Epoll,
    /// kqueue(2): macOS, the BSDs.
    Kqueue,
    /// AFD polls over an I/O completion port: Windows.
    Iocp,
    /// io_uring(7): Linux, with the feature `uring`.
    Uring,
    /// poll(2): every Unix. Each poll costs as much as there are registered descriptors.
    Poll,
}

/// The best interface of this platform that is always available.
const NATIVE: Backend = if cfg!(any(
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

impl Backend {
    /// All backends, available or not.
    pub const ALL: &[Self] = &[
        Self::Epoll,
        Self::Kqueue,
        Self::Iocp,
        Self::Uring,
        Self::Poll,
    ];

    /// The name in lower case, as [`FromStr`] reads it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Epoll => "epoll",
            Self::Kqueue => "kqueue",
            Self::Iocp => "iocp",
            Self::Uring => "uring",
            Self::Poll => "poll",
        }
    }

    /// The backend that [`Reactor::open`](crate::Reactor::open) uses when none is chosen.
    pub const fn native() -> Self {
        NATIVE
    }

    /// Whether this backend is available.
    ///
    /// For io_uring the first call opens a ring, probes its operations and caches the result, unless it failed for a
    /// lack of descriptors or memory, because that may pass. seccomp(2), the sysctl `kernel.io_uring_disabled` (Linux
    /// 6.6), `RLIMIT_MEMLOCK` or an old kernel may refuse the ring.
    ///
    /// # Errors
    ///
    /// Why it is not available.
    pub fn availability(self) -> Result<(), Unavailable> {
        static URING: OnceLock<Result<(), Unavailable>> = OnceLock::new();
        if self == NATIVE || (cfg!(unix) && self == Self::Poll) {
            return Ok(());
        }
        Err(Unavailable::because(match self {
            Self::Epoll => "needs Linux, Android or illumos",
            Self::Kqueue => "needs macOS or a BSD",
            Self::Iocp => "needs Windows",
            Self::Poll => "needs a Unix system",
            Self::Uring => {
                return match URING.get() {
                    Some(known) => *known,
                    None => match uring::open().map(drop) {
                        Err(reason) if reason.is_shortage() => Err(reason),
                        lasting => *URING.get_or_init(|| lasting),
                    },
                };
            }
        }))
    }

    /// Opens the driver of the chosen backend, or of the native one.
    pub(crate) fn open_known(choice: Option<Self>) -> io::Result<(Self, KnownDriver)> {
        let backend = choice.unwrap_or(NATIVE);
        Ok((backend, backend.open_driver()?))
    }

    fn open_driver(self) -> io::Result<KnownDriver> {
        self.availability()
            .map_err(|reason| match reason.is_shortage() {
                true => reason.into(),
                false => io::Error::new(io::ErrorKind::Unsupported, format!("{self}: {reason}")),
            })?;
        Ok(match self {
            // The ring was available before, so only a lack of descriptors or memory can make this fail.
            Self::Uring => KnownDriver::Other(uring::open()?),
            #[cfg(unix)]
            Self::Poll => KnownDriver::Other(Box::new(PollDriver::open()?)),
            _ => KnownDriver::Mio(Box::new(MioDriver::open(BATCH)?)),
        })
    }
}

/// An open driver. The reactor polls mio's driver by its concrete type, so that the compiler inlines event handling
/// into the poll.
pub(crate) enum KnownDriver {
    Mio(Box<MioDriver>),
    Other(Box<dyn Driver>),
}

impl KnownDriver {
    #[cfg(feature = "unstable")]
    pub(crate) fn into_boxed(self) -> Box<dyn Driver> {
        match self {
            Self::Mio(driver) => driver,
            Self::Other(driver) => driver,
        }
    }

    pub(crate) fn get(&self) -> &dyn Driver {
        match self {
            Self::Mio(driver) => driver.as_ref(),
            Self::Other(driver) => driver.as_ref(),
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut dyn Driver {
        match self {
            Self::Mio(driver) => driver.as_mut(),
            Self::Other(driver) => driver.as_mut(),
        }
    }

    /// Like [`Driver::poll`], but first passes events to `take`, in order, until it returns false. Events that `take`
    /// accepted are not in `events`.
    #[inline(always)] // runs every turn
    pub(crate) fn poll(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
        take: impl FnMut(Event) -> bool,
    ) -> io::Result<()> {
        match self {
            Self::Mio(driver) => driver.poll_and(events, timeout, take),
            Self::Other(driver) => driver.poll(events, timeout),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = io::Error;

    /// The backend with this name, available or not.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for any other name.
    ///
    /// ```
    /// let error = "select".parse::<reactor::Backend>().unwrap_err();
    /// assert!(error.to_string().starts_with("unknown backend \"select\""));
    /// ```
    fn from_str(name: &str) -> io::Result<Self> {
        let found = Self::ALL.iter().find(|backend| backend.name() == name);
        found.copied().ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|backend| backend.name()).collect();
            let names = names.join(", ");
            let text = format!("unknown backend {name:?}: expected one of {names}");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::Backend;

    #[test]
    fn names_are_parsed_as_they_are_written() {
        for &backend in Backend::ALL {
            assert_eq!(backend.to_string().parse::<Backend>().unwrap(), backend);
        }
        let error = "select".parse::<Backend>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown backend \"select\": expected one of epoll, kqueue, iocp, uring, poll"
        );
    }

    #[test]
    fn an_explicit_choice_never_falls_back() {
        for &backend in Backend::ALL {
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
    fn without_a_choice_the_native_backend_is_opened() {
        let (backend, _) = Backend::open(None).unwrap();
        assert_eq!(backend, Backend::native());
        assert_eq!(backend.availability(), Ok(()));
    }
}
