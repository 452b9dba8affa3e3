//! Unix: sources are file descriptors, and mio borrows them by number.

mod oneshot;

use std::{collections::HashMap, io, os::fd::RawFd, sync::Arc};

use mio::{Registry, event::Source, unix::SourceFd};

use crate::{
    descriptor::poll_now,
    driver::{Registration, Reregistration, Wake},
    event::Ready,
    interest::Interest,
    token::Token,
};

use oneshot::{ONE_SHOT, Oneshots};

pub(super) use oneshot::descriptor as pollable;

/// Does the queue itself refuse what it cannot poll? epoll does (`EPERM`); kqueue takes a regular file and then reports
/// it only before its end; poll(2) takes every number, open or not.
const REFUSES_FILES: bool = cfg!(any(target_os = "linux", target_os = "android")) && !ONE_SHOT;

/// What mio does not remember for us.
#[derive(Debug, Default)]
pub(super) struct Sources {
    /// The newest token of each descriptor that is registered for urgent data. Nearly always empty.
    urgent: HashMap<RawFd, Token>,
    oneshots: Oneshots,
}

impl Sources {
    pub(super) fn register(
        &mut self,
        registry: &Registry,
        descriptor: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registration> {
        let asked = translate(interest)?;
        let number = mio::Token(token.into());
        if is_always_ready(descriptor)? {
            return Ok(Registration::Unpollable);
        }
        let mut source = SourceFd(&descriptor);
        let result = match source.register(registry, number, asked) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                source.reregister(registry, number, asked)
            }
            result => result,
        };
        match result {
            Ok(()) => {
                self.note(descriptor, token, interest);
                Ok(Registration::Armed)
            }
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(Registration::Unpollable),
            Err(error) => Err(error),
        }
    }

    pub(super) fn reregister(
        &mut self,
        registry: &Registry,
        descriptor: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<Reregistration> {
        let asked = translate(interest)?;
        if is_always_ready(descriptor)? {
            return Ok(Reregistration::Unpollable);
        }
        match SourceFd(&descriptor).reregister(registry, mio::Token(token.into()), asked) {
            Ok(()) => {
                self.note(descriptor, token, interest);
                Ok(Reregistration::Kept)
            }
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                Ok(Reregistration::Unpollable)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let registration = self.register(registry, descriptor, token, interest)?;
                Ok(match registration {
                    Registration::Armed => Reregistration::Renewed,
                    Registration::Unpollable => Reregistration::Unpollable,
                })
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn deregister(&mut self, registry: &Registry, descriptor: RawFd) -> io::Result<()> {
        if !self.urgent.is_empty() {
            self.urgent.remove(&descriptor);
        }
        if ONE_SHOT {
            self.oneshots.remove(descriptor);
        }
        match SourceFd(&descriptor).deregister(registry) {
            // Closed, closed and reopened, or replaced by a regular file: nothing of ours is there.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    || matches!(error.raw_os_error(), Some(libc::EBADF | libc::EPERM)) =>
            {
                Ok(())
            }
            result => result,
        }
    }

    /// A waker of our own; None where mio's is good.
    pub(super) fn open_waker(&mut self, registry: &Registry) -> io::Result<Option<Arc<dyn Wake>>> {
        if !ONE_SHOT {
            return Ok(None);
        }
        self.oneshots.open_waker(registry).map(Some)
    }

    /// The waker was heard.
    pub(super) fn woken(&mut self, registry: &Registry) -> io::Result<()> {
        if !ONE_SHOT {
            return Ok(());
        }
        self.oneshots.woken(registry)
    }

    /// epoll and kqueue keep a registration armed after an event, poll(2) does not.
    pub(super) fn renew_fired(&mut self, registry: &Registry) {
        if !ONE_SHOT {
            return;
        }
        while let Some((descriptor, token, interest)) = self.oneshots.next_fired() {
            let renewed = self.reregister(registry, descriptor, token, interest);
            if !matches!(renewed, Ok(Reregistration::Kept | Reregistration::Renewed)) {
                // Closed without a word, or replaced by a file: its waiters are told when they re-arm.
                _ = self.deregister(registry, descriptor);
            }
        }
    }

    /// mio calls urgent data readable as well; only the kernel knows whether ordinary data is there.
    pub(super) fn refine(&mut self, token: Token, ready: Ready) -> Ready {
        if ONE_SHOT {
            self.oneshots.fired(token);
        }
        if !ready.contains(Ready::PRIORITY | Ready::READABLE) {
            return ready;
        }
        let urgent = self.urgent.iter().find(|(_, newest)| **newest == token);
        let Some((descriptor, _)) = urgent else {
            return ready;
        };
        match poll_now(*descriptor, Interest::READABLE) {
            Ok(None) => ready.without(Ready::READABLE),
            _ => ready,
        }
    }

    fn note(&mut self, descriptor: RawFd, token: Token, interest: Interest) {
        if interest.is_priority() {
            self.urgent.insert(descriptor, token);
        } else if !self.urgent.is_empty() {
            self.urgent.remove(&descriptor);
        }
        if ONE_SHOT {
            self.oneshots.note(descriptor, token, interest);
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

/// Regular files and directories, where the queue would accept them and then stay silent.
fn is_always_ready(descriptor: RawFd) -> io::Result<bool> {
    if REFUSES_FILES {
        return Ok(false);
    }
    // SAFETY: stat is plain old data, for which all zeroes are a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: fstat(2) writes into the stat we own and keeps no pointer to it.
    if unsafe { libc::fstat(descriptor, &mut status) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let kind = status.st_mode & libc::S_IFMT;
    Ok(kind == libc::S_IFREG || kind == libc::S_IFDIR)
}
