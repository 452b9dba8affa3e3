//! `io_read` and `io_write`: the system call first, the wait only when the kernel says it would block.
//!
//! IO#sysread and IO#syswrite are told from IO#read_nonblock, which must not wait, by name.
//!
//! On sockets of Ruby's own classes `read_nonblock` and friends never come here (they call recv and send with
//! MSG_DONTWAIT themselves), so a hook on such an object may park; and where the selector already knows that nothing is
//! there it parks without even asking. Everything else answers -EAGAIN, and the VM calls `io_wait`.

use std::sync::OnceLock;

use magnus::{Error, Ruby, TryConvert, Value, prelude::*, typed_data::Obj, value::Opaque};
use reactor::{Attempt, Identity, Interest, Knowledge, Reactor};
use rustix::io::Errno;

use crate::{
    attempt::{self, Kind, SLICE},
    convert,
    files::{self, Made},
    hooks,
    raw::{self, RealIo, buffers, methods},
    ring,
    selector::{Entry, Selector, Visit, error_named},
};

/// An IO object as the selector sees it.
pub struct Watched {
    pub io: RealIo,
    pub descriptor: i32,
    pub identity: Identity,
    pub kind: Kind,
    /// An object of one of Ruby's socket classes: its hooks may park.
    pub parkable: bool,
}

impl Watched {
    /// IOError if it is closed, TypeError if it is no IO.
    pub fn new(io: Value) -> Result<Self, Error> {
        let io = raw::real_io(io)?;
        let descriptor = io.descriptor()?;
        // The hidden number: a serial, one bit for Ruby's socket classes, three for the kind.
        let facts = |serial: u64| {
            serial << 4 | u64::from(is_socket(io.value())) << 3 | Kind::of(descriptor).bits()
        };
        let number = raw::hidden_number(io.value(), facts);
        let bits = number.unwrap_or_else(|| facts(0));
        Ok(Self {
            io,
            descriptor,
            identity: Identity(number.map_or(0, Self::identity_of)),
            kind: Kind::from_bits(bits),
            parkable: bits & 8 != 0,
        })
    }

    /// Whether it is never waited for: see `files`.
    pub fn is_file(&self) -> bool {
        matches!(self.kind, Kind::File | Kind::Direct)
    }

    /// The serial in a hidden number.
    pub fn identity_of(number: u64) -> u64 {
        number >> 4
    }

    /// The descriptor turned out to be of another kind than remembered (IO#reopen, dup2).
    pub fn reconsider(&self) {
        if Kind::of(self.descriptor) != self.kind {
            raw::forget_number(self.io.value());
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
pub enum Direction {
    Read,
    Write,
}

impl Direction {
    pub fn interest(self) -> Interest {
        match self {
            Direction::Read => Interest::READABLE,
            Direction::Write => Interest::WRITABLE,
        }
    }
}

/// What the VM asks of one call.
pub struct Request {
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
    pub fn at_most(ruby: &Ruby, buffer: Value, length: i64, offset: i64) -> Result<Self, Error> {
        let (maximum, offset) = sizes(ruby, length, offset)?;
        Ok(Self {
            buffer,
            offset,
            minimum: 0,
            maximum,
        })
    }

    /// Writes to what is left of the buffer after so many bytes: the result, and how much room there was. Without room
    /// the answer is 0, and `read` not called; an offset beyond the buffer is EINVAL.
    pub fn fill(
        &self,
        done: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<(Result<usize, Errno>, usize), Error> {
        let answer = buffers::fill_buffer(self.buffer, self.offset + done, |bytes| {
            let room = bytes.len().min(self.maximum.saturating_sub(done));
            match room {
                0 => (Ok(0), 0),
                _ => (read(&mut bytes[..room]), room),
            }
        })?;
        Ok(answer.unwrap_or((Err(Errno::INVAL), 0)))
    }

    /// What is left of the buffer, up to a size, for a worker to write to; see [`buffers::Lent`].
    pub fn lend(&self, done: usize, size: usize) -> Result<Option<buffers::Lent>, Error> {
        let size = size.min(self.maximum.saturating_sub(done));
        buffers::Lent::of(self.buffer, self.offset + done, size)
    }

    /// Reads what is left of the buffer, likewise.
    pub fn drain(
        &self,
        done: usize,
        write: impl FnOnce(&[u8]) -> Result<usize, Errno>,
    ) -> Result<(Result<usize, Errno>, usize), Error> {
        let answer = buffers::drain_buffer(self.buffer, self.offset + done, |bytes| {
            let room = bytes.len().min(self.maximum.saturating_sub(done));
            match room {
                0 => (Ok(0), 0),
                _ => (write(&bytes[..room]), room),
            }
        })?;
        Ok(answer.unwrap_or((Err(Errno::INVAL), 0)))
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

/// What `io_read` and `io_write` are given: IO, buffer, and two numbers whose order is the version's.
type Given = [Value; 4];

/// `io_read(io, buffer, length, offset)`, interface versions 2 and 3.
pub fn read_v3(r: &Ruby, this: Obj<Selector>, [io, b, l, o]: Given) -> Transfer {
    let request = Request::at_least(r, b, integer(l)?, integer(o)?)?;
    transfer(r, this, io, Direction::Read, &request, None)
}

/// `io_write(io, buffer, length, offset)`, likewise.
pub fn write_v3(r: &Ruby, this: Obj<Selector>, [io, b, l, o]: Given) -> Transfer {
    let request = Request::at_least(r, b, integer(l)?, integer(o)?)?;
    transfer(r, this, io, Direction::Write, &request, None)
}

/// `io_read(io, buffer, offset, length)`, interface version 4.
pub fn read_v4(r: &Ruby, this: Obj<Selector>, [io, b, o, l]: Given) -> Transfer {
    let request = Request::at_most(r, b, integer(l)?, integer(o)?)?;
    transfer(r, this, io, Direction::Read, &request, None)
}

/// `io_write(io, buffer, offset, length)`, likewise.
pub fn write_v4(r: &Ruby, this: Obj<Selector>, [io, b, o, l]: Given) -> Transfer {
    let request = Request::at_most(r, b, integer(l)?, integer(o)?)?;
    transfer(r, this, io, Direction::Write, &request, None)
}

fn integer(value: Value) -> Result<i64, Error> {
    methods::small_integer(value).map_or_else(|| i64::try_convert(value), Ok)
}

/// What `io_pread` and `io_pwrite` are given after the IO: buffer, position in the file, and two numbers whose order is
/// the version's.
type At = (Value, i64, i64, i64);

/// `io_pread(io, buffer, from, length, offset)`, interface versions 2 and 3.
pub fn pread_v3(r: &Ruby, this: Obj<Selector>, arguments: &[Value]) -> Transfer {
    let (io, (b, from, l, o)) = at(r, arguments)?;
    let request = Request::at_least(r, b, l, o)?;
    transfer_at(r, this, io, Direction::Read, &request, from)
}

/// `io_pwrite(io, buffer, from, length, offset)`, interface version 3.
pub fn pwrite_v3(r: &Ruby, this: Obj<Selector>, arguments: &[Value]) -> Transfer {
    let (io, (b, from, l, o)) = at(r, arguments)?;
    let request = Request::at_least(r, b, l, o)?;
    transfer_at(r, this, io, Direction::Write, &request, from)
}

/// `io_pread(io, buffer, from, offset, length)`, interface version 4.
pub fn pread_v4(r: &Ruby, this: Obj<Selector>, arguments: &[Value]) -> Transfer {
    let (io, (b, from, o, l)) = at(r, arguments)?;
    let request = Request::at_most(r, b, l, o)?;
    transfer_at(r, this, io, Direction::Read, &request, from)
}

/// `io_pwrite(io, buffer, from, offset, length)`, likewise.
pub fn pwrite_v4(r: &Ruby, this: Obj<Selector>, arguments: &[Value]) -> Transfer {
    let (io, (b, from, o, l)) = at(r, arguments)?;
    let request = Request::at_most(r, b, l, o)?;
    transfer_at(r, this, io, Direction::Write, &request, from)
}

fn at(ruby: &Ruby, arguments: &[Value]) -> Result<(Value, At), Error> {
    let [io, buffer, from, third, fourth] = arguments else {
        let message = format!(
            "wrong number of arguments (given {}, expected 5)",
            arguments.len()
        );
        return Err(Error::new(ruby.exception_arg_error(), message));
    };
    let (from, third, fourth) = (integer(*from)?, integer(*third)?, integer(*fourth)?);
    Ok((*io, (*buffer, from, third, fourth)))
}

/// At a position in the file; EINVAL for what is before its beginning, as pread(2) says.
fn transfer_at(
    ruby: &Ruby,
    this: Obj<Selector>,
    io: Value,
    direction: Direction,
    request: &Request,
    from: i64,
) -> Result<Value, Error> {
    match u64::try_from(from) {
        Ok(from) => transfer(ruby, this, io, direction, request, Some(from)),
        Err(_) => Ok(number(Err(Errno::INVAL))),
    }
}

/// The result as the hooks give it: bytes, or -errno.
fn number(answer: Result<usize, Errno>) -> Value {
    methods::integer(match answer {
        Ok(count) => count as i64,
        Err(errno) => -i64::from(errno.raw_os_error()),
    })
}

fn transfer(
    ruby: &Ruby,
    this: Obj<Selector>,
    io: Value,
    direction: Direction,
    request: &Request,
    from: Option<u64>,
) -> Result<Value, Error> {
    let selector: &Selector = &this;
    let asked = Asked {
        io,
        direction,
        request,
        from,
    };
    let mut begun = None;
    if from.is_none() && selector.may_go_ahead(ruby, this.as_value())? {
        match at_once(selector, &asked)? {
            First::Over(answer) => {
                selector.spent(answer.unwrap_or(0));
                return Ok(number(answer));
            }
            First::Attempted(watched, answer) => begun = Some((watched, answer)),
            First::Nothing => {}
        }
    }
    in_turns(ruby, this, &asked, begun).map(number)
}

/// A transfer.
struct Asked<'a> {
    io: Value,
    direction: Direction,
    request: &'a Request,
    /// At a position in the file.
    from: Option<u64>,
}

/// What the first attempt has come to.
enum First {
    /// The hook's answer.
    Over(Result<usize, Errno>),
    /// Bytes, but fewer than are wanted; or an error, which may be that it would block.
    Attempted(Watched, Result<usize, Errno>),
    /// Nothing was done.
    Nothing,
}

/// The usual case, which needs no wait and hence no account of the fiber: one system call.
#[inline(never)]
fn at_once(selector: &Selector, asked: &Asked) -> Result<First, Error> {
    let (direction, request) = (asked.direction, asked.request);
    let watched = Watched::new(asked.io)?;
    let (kind, descriptor) = (watched.kind, watched.descriptor);
    if kind == Kind::File {
        return Ok(First::Nothing);
    }
    if watched.parkable && is_drained(selector, &watched, direction) {
        return Ok(First::Attempted(watched, Err(Errno::AGAIN)));
    }
    let sliced = |size: usize| kind == Kind::Direct && size > SLICE;
    let (answer, room) = match direction {
        Direction::Write if ring::is_crowded(selector) => return Ok(First::Nothing),
        Direction::Read => request.fill(0, |bytes| match sliced(bytes.len()) {
            true => Err(Errno::NOTSOCK),
            false => attempt::read(kind, descriptor, bytes),
        }),
        Direction::Write => request.drain(0, |bytes| match sliced(bytes.len()) {
            true => Err(Errno::NOTSOCK),
            false => attempt::write(kind, descriptor, bytes),
        }),
    }?;
    if answer == Err(Errno::NOTSOCK) {
        return Ok(First::Nothing); // another kind than was thought, or to be done in slices
    }
    remember(selector, &watched, direction, answer, room);
    let over = match answer {
        Ok(count) => count == 0 || count >= request.minimum || kind == Kind::Direct,
        Err(_) => kind == Kind::Direct,
    };
    Ok(match over {
        true => First::Over(answer),
        false => First::Attempted(watched, answer),
    })
}

/// The transfer as one that may wait, and may have begun. While it does, only small frames are on the fiber's stack.
#[inline(never)]
fn in_turns(
    ruby: &Ruby,
    this: Obj<Selector>,
    asked: &Asked,
    begun: Option<(Watched, Result<usize, Errno>)>,
) -> Result<Result<usize, Errno>, Error> {
    match Selector::enter(ruby, &this)? {
        Entry::Usable(visit) => transfer_all(ruby, &visit, asked, begun),
        Entry::Inert => without_scheduler(asked),
    }
}

/// The VM's interrupt-safe blocking path is a poll away: io_wait of an inert scheduler really blocks.
#[cold]
#[inline(never)]
fn without_scheduler(asked: &Asked) -> Result<Result<usize, Errno>, Error> {
    let watched = Watched::new(asked.io)?;
    attempt_plainly(&watched, asked.direction, asked.request, asked.from)
}

#[inline(always)]
fn transfer_all(
    ruby: &Ruby,
    visit: &Visit,
    asked: &Asked,
    begun: Option<(Watched, Result<usize, Errno>)>,
) -> Result<Result<usize, Errno>, Error> {
    let request = asked.request;
    let (mut watched, mut first) = match begun {
        Some((watched, answer)) => (watched, Some(answer)),
        None => {
            visit.give_way_when_due()?;
            (Watched::new(asked.io)?, None)
        }
    };
    let mut done = 0;
    loop {
        let answer = match first.take() {
            Some(answer) => answer,
            None => match attempt_again(visit, asked, &mut watched, done)? {
                Again::Over(answer) => return Ok(answer),
                Again::Attempted(answer) => answer,
            },
        };
        match answer {
            Ok(count) => {
                visit.selector.spent(count);
                done += count;
                if count == 0 || done >= request.minimum {
                    return Ok(Ok(done));
                }
            }
            Err(Errno::AGAIN)
                if watched.parkable || request.minimum > 0 || raw::called_from::<4>(&WAITING) =>
            {
                let timeout = convert::timeout(watched.io.timeout())?;
                match hooks::wait_io(ruby, visit, &watched, asked.direction.interest(), timeout)? {
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

/// What a further attempt has come to.
enum Again {
    /// The whole transfer is over: it was a file's.
    Over(Result<usize, Errno>),
    Attempted(Result<usize, Errno>),
}

/// An attempt at what is left, by whatever is behind the descriptor now.
#[inline(never)]
fn attempt_again(
    visit: &Visit,
    asked: &Asked,
    watched: &mut Watched,
    done: usize,
) -> Result<Again, Error> {
    let (direction, request) = (asked.direction, asked.request);
    loop {
        if watched.is_file() || asked.from.is_some() {
            let made = match direction {
                Direction::Read => files::read(visit, watched, request, asked.from)?,
                Direction::Write => files::write(visit, watched, request, asked.from)?,
            };
            match made {
                Made::Answer(answer) => return Ok(Again::Over(answer)),
                Made::OtherKind => {
                    watched.reconsider();
                    *watched = Watched::new(asked.io)?;
                }
            }
        }
        if watched.parkable && is_drained(visit.selector, watched, direction) {
            return Ok(Again::Attempted(Err(Errno::AGAIN)));
        }
        let sent = match direction {
            Direction::Write => ring::send(visit, watched, request, done)?,
            Direction::Read => None,
        };
        let (answer, room) = match sent {
            Some(answer) => answer,
            None => attempt(watched, direction, request, done)?,
        };
        if answer == Err(Errno::NOTSOCK) {
            watched.reconsider();
            *watched = Watched::new(asked.io)?;
            continue;
        }
        remember(visit.selector, watched, direction, answer, room);
        return Ok(Again::Attempted(answer));
    }
}

/// The selector saw the kernel's "would block" and no event since: no system call can tell more.
fn is_drained(selector: &Selector, watched: &Watched, direction: Direction) -> bool {
    let inner = selector.inner.borrow();
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
pub fn attempt(
    watched: &Watched,
    direction: Direction,
    request: &Request,
    done: usize,
) -> Result<(Result<usize, Errno>, usize), Error> {
    let (kind, descriptor) = (watched.kind, watched.descriptor);
    match direction {
        Direction::Read => request.fill(done, |bytes| attempt::read(kind, descriptor, bytes)),
        Direction::Write => request.drain(done, |bytes| attempt::write(kind, descriptor, bytes)),
    }
}

/// The same in a child of the scheduler's process, which nobody else shares the thread with.
pub fn attempt_plainly(
    watched: &Watched,
    direction: Direction,
    request: &Request,
    from: Option<u64>,
) -> Result<Result<usize, Errno>, Error> {
    let descriptor = watched.descriptor;
    let (answer, _) = match direction {
        _ if from.is_none() && !watched.is_file() => attempt(watched, direction, request, 0)?,
        Direction::Read => request.fill(0, |bytes| attempt::plain_read(bytes, descriptor, from))?,
        Direction::Write => {
            request.drain(0, |bytes| attempt::plain_write(bytes, descriptor, from))?
        }
    };
    Ok(answer)
}

/// Tells the selector what the system call saw.
fn remember(
    selector: &Selector,
    watched: &Watched,
    direction: Direction,
    answer: Result<usize, Errno>,
    room: usize,
) {
    let mut inner = selector.inner.borrow_mut();
    if let Some(reactor) = inner.reactor.as_mut() {
        tell(reactor, watched, direction, answer, room);
    }
}

/// Tells a reactor what a system call saw.
pub fn tell(
    reactor: &mut Reactor,
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
    let interest = direction.interest();
    reactor.attempted(watched.descriptor, watched.identity, interest, attempt);
}
