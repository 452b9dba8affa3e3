//! `io_read` and `io_write`: the system call first, the wait only when the kernel says it would block.
//!
//! IO#sysread and IO#syswrite are told from IO#read_nonblock, which must not wait, by name.
//!
//! On sockets of Ruby's own classes `read_nonblock` and friends never come here (they call recv and send with
//! MSG_DONTWAIT themselves), so a hook on such an object may park; and where the selector already knows that nothing is
//! there it parks without even asking. Everything else answers -EAGAIN, and the VM calls `io_wait`.

use std::sync::OnceLock;

use magnus::{Error, Integer, Ruby, Value, prelude::*, typed_data::Obj, value::Opaque};
use reactor::{Attempt, Identity, Interest, Knowledge};
use rustix::io::Errno;

use crate::{
    attempt::{self, Kind},
    convert, hooks, raw,
    selector::{Entry, Selector, Visit, error_named},
};

/// An IO object as the selector sees it.
pub struct Watched {
    pub io: Value,
    pub descriptor: i32,
    pub identity: Identity,
    kind: Kind,
    parkable: bool,
}

impl Watched {
    /// IOError if it is closed, TypeError if it is no IO.
    pub fn new(io: Value) -> Result<Self, Error> {
        let descriptor = raw::descriptor(io)?;
        // The hidden number: a serial, one bit for Ruby's socket classes, three for the kind.
        let facts =
            |serial: u64| serial << 4 | u64::from(is_socket(io)) << 3 | Kind::of(descriptor).bits();
        let number = raw::hidden_number(io, facts);
        let bits = number.unwrap_or_else(|| facts(0));
        Ok(Self {
            io,
            descriptor,
            identity: Identity(number.map_or(0, Self::identity_of)),
            kind: Kind::from_bits(bits),
            parkable: bits & 8 != 0,
        })
    }

    /// The serial in a hidden number.
    pub fn identity_of(number: u64) -> u64 {
        number >> 4
    }

    /// The descriptor turned out to be of another kind than remembered (IO#reopen, dup2).
    pub fn reconsider(&self) {
        if Kind::of(self.descriptor) != self.kind {
            raw::forget_number(self.io);
        }
    }
}

fn is_socket(io: Value) -> bool {
    static SOCKET: OnceLock<Option<Opaque<Value>>> = OnceLock::new();
    let ruby = Ruby::get_with(io);
    let class = match SOCKET.get() {
        Some(class) => *class,
        None => {
            // Looked up until the socket library is there.
            let class = ruby
                .class_object()
                .const_get::<_, Value>("BasicSocket")
                .ok();
            match class {
                Some(class) => *SOCKET.get_or_init(|| Some(class.into())),
                None => None,
            }
        }
    };
    class.is_some_and(|class| raw::is_kind_of(io, class))
}

/// These wait by themselves without a scheduler, and with one raise EAGAIN instead of calling `io_wait`.
const WAITING: [&str; 2] = ["sysread", "syswrite"];

/// One direction of transfer.
#[derive(Clone, Copy)]
enum Direction {
    Read,
    Write,
}

impl Direction {
    fn interest(self) -> Interest {
        match self {
            Direction::Read => Interest::READABLE,
            Direction::Write => Interest::WRITABLE,
        }
    }
}

/// What the VM asks of one call.
struct Request {
    buffer: Value,
    offset: usize,
    /// Return only when so many bytes are transferred; 0 is one attempt (interface version 3).
    minimum: usize,
    /// Never transfer more than that (interface version 4).
    maximum: usize,
}

impl Request {
    /// Interface versions 2 and 3 (Ruby 3.3 to 4.0).
    fn at_least(ruby: &Ruby, buffer: Value, length: i64, offset: i64) -> Result<Self, Error> {
        let (minimum, offset) = sizes(ruby, length, offset)?;
        let maximum = usize::MAX;
        Ok(Self {
            buffer,
            offset,
            minimum,
            maximum,
        })
    }

    /// Interface version 4 (Ruby 4.1).
    fn at_most(ruby: &Ruby, buffer: Value, length: i64, offset: i64) -> Result<Self, Error> {
        let (maximum, offset) = sizes(ruby, length, offset)?;
        Ok(Self {
            buffer,
            offset,
            minimum: 0,
            maximum,
        })
    }
}

fn sizes(ruby: &Ruby, length: i64, offset: i64) -> Result<(usize, usize), Error> {
    match (usize::try_from(length), usize::try_from(offset)) {
        (Ok(length), Ok(offset)) => Ok((length, offset)),
        _ => {
            let message = "offset and length can't be negative";
            Err(Error::new(ruby.exception_arg_error(), message))
        }
    }
}

type Transfer = Result<Value, Error>;

/// `io_read(io, buffer, length, offset)`, interface versions 2 and 3.
pub fn read_v3(r: &Ruby, this: Obj<Selector>, io: Value, b: Value, l: i64, o: i64) -> Transfer {
    transfer(
        r,
        this,
        io,
        Direction::Read,
        &Request::at_least(r, b, l, o)?,
    )
}

/// `io_write(io, buffer, length, offset)`, likewise.
pub fn write_v3(r: &Ruby, this: Obj<Selector>, io: Value, b: Value, l: i64, o: i64) -> Transfer {
    transfer(
        r,
        this,
        io,
        Direction::Write,
        &Request::at_least(r, b, l, o)?,
    )
}

/// `io_read(io, buffer, offset, length)`, interface version 4.
pub fn read_v4(r: &Ruby, this: Obj<Selector>, io: Value, b: Value, o: i64, l: i64) -> Transfer {
    transfer(r, this, io, Direction::Read, &Request::at_most(r, b, l, o)?)
}

/// `io_write(io, buffer, offset, length)`, likewise.
pub fn write_v4(r: &Ruby, this: Obj<Selector>, io: Value, b: Value, o: i64, l: i64) -> Transfer {
    transfer(
        r,
        this,
        io,
        Direction::Write,
        &Request::at_most(r, b, l, o)?,
    )
}

/// The result as the hooks give it: bytes, or -errno.
fn transfer(
    ruby: &Ruby,
    this: Obj<Selector>,
    io: Value,
    direction: Direction,
    request: &Request,
) -> Result<Value, Error> {
    let answer = match Selector::enter(ruby, &this)? {
        Entry::Usable(visit) => transfer_all(ruby, &visit, io, direction, request)?,
        // The VM's interrupt-safe blocking path is a poll away: io_wait of an inert scheduler really blocks.
        Entry::Inert => {
            let watched = Watched::new(io)?;
            attempt(&watched, direction, request, 0)?.0
        }
    };
    let number: Integer = match answer {
        Ok(count) => ruby.integer_from_u64(count as u64),
        Err(errno) => ruby.integer_from_i64(-i64::from(errno.raw_os_error())),
    };
    Ok(number.as_value())
}

fn transfer_all(
    ruby: &Ruby,
    visit: &Visit,
    io: Value,
    direction: Direction,
    request: &Request,
) -> Result<Result<usize, Errno>, Error> {
    let mut watched = Watched::new(io)?;
    let mut done = 0;
    loop {
        let answer = if watched.parkable && is_drained(visit, &watched, direction) {
            Err(Errno::AGAIN)
        } else {
            let (answer, room) = attempt(&watched, direction, request, done)?;
            if answer == Err(Errno::NOTSOCK) {
                watched.reconsider();
                watched = Watched::new(io)?;
                continue;
            }
            remember(visit, &watched, direction, answer, room);
            answer
        };
        match answer {
            Ok(count) => {
                done += count;
                if count == 0 || done >= request.minimum {
                    return Ok(Ok(done));
                }
            }
            Err(Errno::AGAIN)
                if watched.parkable || request.minimum > 0 || raw::called_from::<4>(&WAITING) =>
            {
                let timeout = convert::timeout(raw::io_timeout(io)?)?;
                match hooks::wait_io(ruby, visit, &watched, direction.interest(), timeout)? {
                    Some(_) => {}
                    // What was transferred before is not lost: it is this call's answer.
                    None if done > 0 => return Ok(Ok(done)),
                    None => {
                        return Err(error_named(ruby, "IO::TimeoutError", hooks::TIMED_OUT));
                    }
                }
            }
            Err(_) if done > 0 => return Ok(Ok(done)),
            Err(errno) => return Ok(Err(errno)),
        }
    }
}

/// The selector saw the kernel's "would block" and no event since: no system call can tell more.
fn is_drained(visit: &Visit, watched: &Watched, direction: Direction) -> bool {
    let inner = visit.selector.inner.borrow();
    let Some(reactor) = &inner.reactor else {
        return false;
    };
    let known = reactor.known(watched.descriptor, watched.identity);
    match direction {
        Direction::Read => known.readable == Knowledge::Drained,
        Direction::Write => known.writable == Knowledge::Drained,
    }
}

/// One system call on what is left of the buffer: its result, and how much room it had.
fn attempt(
    watched: &Watched,
    direction: Direction,
    request: &Request,
    done: usize,
) -> Result<(Result<usize, Errno>, usize), Error> {
    let offset = request.offset + done;
    let (kind, descriptor) = (watched.kind, watched.descriptor);
    let answer = match direction {
        Direction::Read => raw::fill_buffer(request.buffer, offset, |bytes| {
            let room = bytes.len().min(request.maximum);
            let answer = match room {
                0 => Ok(0),
                _ => attempt::read(kind, descriptor, &mut bytes[..room]),
            };
            (answer, room)
        })?,
        Direction::Write => raw::drain_buffer(request.buffer, offset, |bytes| {
            let room = bytes.len().min(request.maximum);
            let answer = match room {
                0 => Ok(0),
                _ => attempt::write(kind, descriptor, &bytes[..room]),
            };
            (answer, room)
        })?,
    };
    // None: the offset lies beyond the buffer.
    Ok(answer.unwrap_or((Err(Errno::INVAL), 0)))
}

/// Tells the selector what the system call saw.
fn remember(
    visit: &Visit,
    watched: &Watched,
    direction: Direction,
    answer: Result<usize, Errno>,
    room: usize,
) {
    let attempt = match answer {
        Err(Errno::AGAIN) => Attempt::WouldBlock,
        Ok(count) if count < room && watched.kind.short_means_drained() => Attempt::Short,
        _ => return,
    };
    let mut inner = visit.selector.inner.borrow_mut();
    if let Some(reactor) = inner.reactor.as_mut() {
        reactor.attempted(
            watched.descriptor,
            watched.identity,
            direction.interest(),
            attempt,
        );
    }
}
