//! Unix: sources are file descriptors, which mio borrows by number.

use std::{collections::HashMap, io, os::fd::RawFd};

use mio::{Registry, event::Source, unix::SourceFd};

use crate::{
    descriptor::{is_file, poll_now},
    driver::Registration,
    event::Ready,
    interest::Interest,
    token::Token,
};

/// Whether the queue rejects files it cannot poll. epoll does (`EPERM`); kqueue accepts a regular file, but reports it
/// only while its position is before the end.
const REFUSES_FILES: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Registration state that mio does not keep.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The newest token of each descriptor registered for urgent data. Nearly always empty.
    urgent: HashMap<RawFd, Token>,
}

impl Sources {
    pub(super) fn register(
        &mut self,
        registry: &Registry,
        descriptor: RawFd,
        token: Token,
        interest: Interest,
        is_known: bool,
    ) -> io::Result<Registration> {
        let asked = translate(interest)?;
        if !REFUSES_FILES && is_file(descriptor)? {
            return Ok(Registration::Unpollable);
        }
        let (mut source, number) = (SourceFd(&descriptor), mio::Token(token.into()));
        let (mut finds, mut left) = (is_known, 4);
        loop {
            let (result, contradiction) = match finds {
                true => (
                    source.reregister(registry, number, asked),
                    io::ErrorKind::NotFound,
                ),
                false => (
                    source.register(registry, number, asked),
                    io::ErrorKind::AlreadyExists,
                ),
            };
            match result {
                Ok(()) => break,
                // Another process or thread may close the file, and so end the registration, between finding and
                // changing it.
                Err(error) if error.kind() == contradiction && left > 0 => {
                    (finds, left) = (!finds, left - 1);
                }
                Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                    return Ok(Registration::Unpollable);
                }
                Err(error) => return Err(error),
            }
        }
        self.note(descriptor, token, interest);
        Ok(match is_known && left == 4 {
            true => Registration::Kept,
            false => Registration::New,
        })
    }

    pub(super) fn deregister(&mut self, registry: &Registry, descriptor: RawFd) -> io::Result<()> {
        if !self.urgent.is_empty() {
            self.urgent.remove(&descriptor);
        }
        match SourceFd(&descriptor).deregister(registry) {
            // The descriptor was closed, reopened or replaced by a regular file, so it has no registration.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    || matches!(error.raw_os_error(), Some(libc::EBADF | libc::EPERM)) =>
            {
                Ok(())
            }
            result => result,
        }
    }

    /// Does nothing: close(2) ends the registration.
    pub(super) fn note_close(&mut self, _descriptor: RawFd) {}

    /// Removes READABLE from an urgent-data event if poll(2) finds no other data. mio reports both.
    pub(super) fn refine(&self, token: Token, ready: Ready) -> Ready {
        if !ready.contains(Ready::PRIORITY | Ready::READABLE) {
            return ready;
        }
        let urgent = self.urgent.iter().find(|(_, newest)| **newest == token);
        match urgent.map(|(descriptor, _)| poll_now(*descriptor, Interest::READABLE)) {
            Some(Ok(None)) => ready.without(Ready::READABLE),
            _ => ready,
        }
    }

    fn note(&mut self, descriptor: RawFd, token: Token, interest: Interest) {
        if interest.is_priority() {
            self.urgent.insert(descriptor, token);
        } else if !self.urgent.is_empty() {
            self.urgent.remove(&descriptor);
        }
    }
}

fn translate(interest: Interest) -> io::Result<mio::Interest> {
    let readable = interest.is_readable().then_some(mio::Interest::READABLE);
    let writable = interest.is_writable().then_some(mio::Interest::WRITABLE);
    let priority = if interest.is_priority() {
        Some(urgent_interest()?)
    } else {
        None
    };
    [readable, writable, priority]
        .into_iter()
        .flatten()
        .reduce(mio::Interest::add)
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn urgent_interest() -> io::Result<mio::Interest> {
    Ok(mio::Interest::PRIORITY)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn urgent_interest() -> io::Result<mio::Interest> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this platform's queue does not report urgent data",
    ))
}
