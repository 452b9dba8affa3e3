//! The half of the driver that reports readiness: epoll(7), edge-triggered.
//!
//! It does not use `IORING_OP_POLL_ADD`. A poll request keeps its file open until it is removed. A request that outlives its
//! wait would make close(2) ineffective: a socket's peer would not see the end, and a listener would keep its port. A
//! registration of epoll keeps no file open and ends when the file is closed.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use crate::{
    driver::{Registration, Reregistration},
    event::{Event, Events, Ready},
    interest::Interest,
    token::Token,
};

/// An epoll instance.
#[derive(Debug)]
pub(super) struct Readiness {
    epoll: OwnedFd,
    /// The kernel writes events to it; kept for its memory.
    reported: Box<[libc::epoll_event]>,
}

impl Readiness {
    /// Opens an epoll instance, with room for this number of events per call.
    pub(super) fn open(room: usize) -> io::Result<Self> {
        // SAFETY: the call takes no pointer.
        let descriptor = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self {
            // SAFETY: the descriptor is new, and this is its only owner.
            epoll: unsafe { OwnedFd::from_raw_fd(descriptor) },
            reported: vec![libc::epoll_event { events: 0, u64: 0 }; room].into(),
        })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// [`Driver::register`](crate::Driver::register).
    pub(super) fn register(
        &self,
        descriptor: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registration> {
        let mut result = self.control(libc::EPOLL_CTL_ADD, descriptor, token, interest);
        // The registration that is found may end before it is changed, because another process or thread closes its file.
        for _ in 0..3 {
            let operation = match number_of(&result) {
                Some(libc::EEXIST) => libc::EPOLL_CTL_MOD,
                Some(libc::ENOENT) => libc::EPOLL_CTL_ADD,
                _ => break,
            };
            result = self.control(operation, descriptor, token, interest);
        }
        if failed_with(&result, libc::EPERM) {
            return Ok(Registration::Unpollable);
        }
        result.map(|()| Registration::Armed)
    }

    /// [`Driver::reregister`](crate::Driver::reregister).
    pub(super) fn reregister(
        &self,
        descriptor: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<Reregistration> {
        let result = self.control(libc::EPOLL_CTL_MOD, descriptor, token, interest);
        if failed_with(&result, libc::EPERM) {
            return Ok(Reregistration::Unpollable);
        }
        if failed_with(&result, libc::ENOENT) {
            let registration = self.register(descriptor, token, interest)?;
            return Ok(match registration {
                Registration::Armed => Reregistration::Renewed,
                Registration::Unpollable => Reregistration::Unpollable,
            });
        }
        result.map(|()| Reregistration::Kept)
    }

    /// [`Driver::deregister`](crate::Driver::deregister).
    pub(super) fn deregister(&self, descriptor: RawFd) -> io::Result<()> {
        let result = self.control(
            libc::EPOLL_CTL_DEL,
            descriptor,
            Token::WAKE,
            Interest::READABLE,
        );
        let nothing = [libc::ENOENT, libc::EBADF, libc::EPERM];
        if nothing.iter().any(|error| failed_with(&result, *error)) {
            return Ok(());
        }
        result
    }

    /// Appends at most `limit` events. It waits for the first one for at most `timeout` (None: without limit). After a wake or
    /// a signal it returns early, without an event.
    pub(super) fn collect(
        &mut self,
        events: &mut Events,
        limit: usize,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let room = limit.min(self.reported.len());
        let list = self.reported.as_mut_ptr();
        let milliseconds = milliseconds(timeout);
        // SAFETY: the kernel writes at most `room` events to `reported`, and keeps no pointer to it.
        let count =
            unsafe { libc::epoll_wait(self.descriptor(), list, room as libc::c_int, milliseconds) };
        let count = match check(count) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
            count => count? as usize,
        };
        for reported in &self.reported[..count] {
            let token = Token::from(reported.u64 as usize);
            if token != Token::WAKE {
                let ready = ready_of(reported.events);
                events.push(Event { token, ready });
            }
        }
        Ok(())
    }

    fn control(
        &self,
        operation: libc::c_int,
        descriptor: RawFd,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: asked(interest),
            u64: usize::from(token) as u64,
        };
        // SAFETY: the event outlives the call, which copies it.
        let result =
            unsafe { libc::epoll_ctl(self.descriptor(), operation, descriptor, &mut event) };
        check(result).map(drop)
    }
}

/// The result of a system call; -1 as the error in errno.
pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}

fn failed_with<T>(result: &io::Result<T>, number: i32) -> bool {
    number_of(result) == Some(number)
}

/// The number of the error.
fn number_of<T>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err()?.raw_os_error()
}

/// The timeout for epoll_wait(2), which counts milliseconds: rounded up.
fn milliseconds(timeout: Option<Duration>) -> libc::c_int {
    timeout.map_or(-1, |timeout| {
        let rounded_up = timeout.saturating_add(Duration::from_nanos(999_999));
        let whole = rounded_up.as_millis().try_into();
        whole.unwrap_or(libc::c_int::MAX)
    })
}

fn asked(interest: Interest) -> u32 {
    let mut events = libc::EPOLLET;
    if interest.is_readable() {
        events |= libc::EPOLLIN | libc::EPOLLRDHUP;
    }
    if interest.is_priority() {
        events |= libc::EPOLLPRI;
    }
    if interest.is_writable() {
        events |= libc::EPOLLOUT;
    }
    events as u32
}

fn ready_of(reported: u32) -> Ready {
    let reported = reported as libc::c_int;
    let names = [
        (libc::EPOLLIN, Ready::READABLE),
        (libc::EPOLLPRI, Ready::PRIORITY),
        (libc::EPOLLOUT, Ready::WRITABLE),
        (libc::EPOLLRDHUP, Ready::READ_CLOSED),
        (libc::EPOLLHUP, Ready::READ_CLOSED | Ready::HANGUP),
        (libc::EPOLLERR, Ready::ERROR),
    ];
    let mut ready = Ready::EMPTY;
    for (bit, name) in names {
        if reported & bit != 0 {
            ready |= name;
        }
    }
    ready
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::milliseconds;

    #[test]
    fn timeouts_are_rounded_up() {
        assert_eq!(milliseconds(None), -1);
        assert_eq!(milliseconds(Some(Duration::ZERO)), 0);
        assert_eq!(milliseconds(Some(Duration::from_nanos(1))), 1);
        assert_eq!(milliseconds(Some(Duration::from_millis(3))), 3);
        assert_eq!(milliseconds(Some(Duration::MAX)), i32::MAX);
    }
}
