//! The C interface that `include/reactor.h` describes. It only translates between C and Rust.
//!
//! # Safety
//!
//! A caller must pass the pointers that the header describes: to a reactor or handle that `reactor_open` or `reactor_handle`
//! has returned and that was not closed, to an array of at least `capacity` events, to a string with a terminating zero.

#![cfg(unix)]
#![allow(clippy::missing_safety_doc, reason = "it is the same for all, above")]

use std::{
    ffi::{CStr, c_char, c_int},
    io,
    time::Duration,
};

use reactor::{
    Attempt, Backend, Deadline, Event, Events, Handle, Interest, OwnerId, Reactor, TimerId, Token,
    Wait, WaitId,
};

/// `struct reactor`.
pub struct Opened {
    reactor: Reactor,
    events: Events,
    /// How many of the events were returned.
    returned: usize,
}

/// `struct reactor_event`.
#[repr(C)]
pub struct Reported {
    token: usize,
    ready: u32,
}

impl From<&Event> for Reported {
    fn from(event: &Event) -> Self {
        Self {
            token: event.token.into(),
            ready: event.ready.bits().into(),
        }
    }
}

fn failure(error: &io::Error) -> c_int {
    -error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EINVAL,
    })
}

fn result(result: io::Result<()>) -> c_int {
    result.map_or_else(|error| failure(&error), |()| 0)
}

fn interest_of(bits: u32) -> Option<Interest> {
    u8::try_from(bits).ok().and_then(Interest::from_bits)
}

fn open(name: Option<&CStr>) -> io::Result<Reactor> {
    let Some(name) = name else {
        return Reactor::open(None);
    };
    let name = name.to_str().unwrap_or_default();
    let backend = name.parse::<Backend>();
    Reactor::open(Some(backend.map_err(io::Error::other)?))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn reactor_open(backend: *const c_char) -> Option<Box<Opened>> {
    // SAFETY: the pointer is NULL or a string, by the rules above.
    let name = (!backend.is_null()).then(|| unsafe { CStr::from_ptr(backend) });
    match open(name) {
        Ok(reactor) => Some(Box::new(Opened {
            reactor,
            events: Events::new(),
            returned: 0,
        })),
        Err(error) => {
            // SAFETY: the pointer is to the errno of this thread.
            unsafe { *errno() = -failure(&error) };
            None
        }
    }
}

#[cfg(any(target_os = "android", target_os = "netbsd", target_os = "openbsd"))]
use libc::__errno as errno;
#[cfg(target_os = "linux")]
use libc::__errno_location as errno;
#[cfg(any(target_os = "macos", target_os = "ios", target_os = "freebsd"))]
use libc::__error as errno;

#[unsafe(no_mangle)]
pub extern "C" fn reactor_close(reactor: Option<Box<Opened>>) {
    drop(reactor);
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_backend(reactor: &Opened) -> *const c_char {
    let name = match reactor.reactor.backend() {
        Some(Backend::Epoll) => c"epoll",
        Some(Backend::Kqueue) => c"kqueue",
        Some(Backend::Iocp) => c"iocp",
        Some(Backend::Poll) => c"poll",
        Some(Backend::Uring) => c"uring",
        None => c"",
    };
    name.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_descriptor(reactor: &Opened) -> c_int {
    reactor.reactor.descriptor().unwrap_or(-1)
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_wait(
    reactor: &mut Opened,
    descriptor: c_int,
    owner: u64,
    interest: u32,
    token: usize,
    wait: &mut u64,
) -> c_int {
    let Some(interest) = interest_of(interest) else {
        return -libc::EINVAL;
    };
    let (owner, token) = (OwnerId(owner), Token::from(token));
    match reactor.reactor.wait(descriptor, owner, interest, token) {
        Ok(Wait::Pending(number)) => {
            *wait = number.into();
            0
        }
        Ok(Wait::Ready(_)) => 1,
        Err(error) => failure(&error),
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_end(reactor: &mut Opened, wait: u64) -> u32 {
    reactor.reactor.end(WaitId::from(wait)).bits().into()
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_drained(
    reactor: &mut Opened,
    descriptor: c_int,
    owner: u64,
    interest: u32,
) {
    if let Some(interest) = interest_of(interest) {
        let owner = OwnerId(owner);
        let seen = Attempt::WouldBlock;
        reactor.reactor.attempted(descriptor, owner, interest, seen);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_deregister(reactor: &mut Opened, descriptor: c_int) {
    reactor.reactor.deregister(descriptor);
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_timer(reactor: &mut Opened, nanoseconds: u64, token: usize) -> u64 {
    let deadline = Deadline::after(Duration::from_nanos(nanoseconds));
    reactor.reactor.timer(deadline, Token::from(token)).into()
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_cancel(reactor: &mut Opened, timer: u64) -> c_int {
    reactor.reactor.cancel(TimerId::from(timer)).into()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn reactor_turn(
    reactor: &mut Opened,
    events: *mut Reported,
    capacity: usize,
    nanoseconds: i64,
) -> c_int {
    if reactor.returned == reactor.events.len() {
        reactor.events.clear();
        reactor.returned = 0;
        let limit = u64::try_from(nanoseconds).ok().map(Duration::from_nanos);
        if let Err(error) = reactor.reactor.turn(&mut reactor.events, limit) {
            return failure(&error);
        }
    }
    let left = reactor.events.iter().skip(reactor.returned);
    let capacity = capacity.min(c_int::MAX as usize);
    let mut count = 0;
    for event in left.take(capacity) {
        // SAFETY: the array has room for `capacity` events, by the rules above.
        unsafe { events.add(count).write(event.into()) };
        count += 1;
    }
    reactor.returned += count;
    count as c_int
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_handle(reactor: &Opened) -> Box<Handle> {
    Box::new(reactor.reactor.handle())
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_handle_free(handle: Option<Box<Handle>>) {
    drop(handle);
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_notify(handle: &Handle, token: usize) -> c_int {
    result(handle.notify(Token::from(token)))
}

#[unsafe(no_mangle)]
pub extern "C" fn reactor_wake(handle: &Handle) -> c_int {
    result(handle.wake())
}
