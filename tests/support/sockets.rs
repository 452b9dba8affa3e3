//! Connected sockets, and the backends of this machine.
#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Duration,
};

#[cfg(unix)]
use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::atomic::{AtomicI32, Ordering},
};

use reactor::Backend;
#[cfg(unix)]
use rustix::io::fcntl_dupfd_cloexec;

pub const NOW: Option<Duration> = Some(Duration::ZERO);
/// A watchdog: longer than any step of these tests takes on a busy machine.
pub const TEST_TIMEOUT: Option<Duration> = Some(Duration::from_secs(60));

/// The available backends.
pub fn backends() -> impl Iterator<Item = Backend> {
    let all = Backend::ALL.iter().copied();
    all.filter(|backend| backend.availability().is_ok())
}

/// A connected pair of which the first end is non-blocking.
pub fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

/// A connected pair of which the first end is non-blocking.
#[cfg(unix)]
pub fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

/// The same file under a number that no other test gets when it is closed.
#[cfg(unix)]
pub fn far_away(source: UnixStream) -> OwnedFd {
    static NEXT: AtomicI32 = AtomicI32::new(600);
    fcntl_dupfd_cloexec(&source, NEXT.fetch_add(2, Ordering::Relaxed)).unwrap()
}
