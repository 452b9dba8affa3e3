//! `io_read` and `io_write`: the system call first, the wait only when the kernel says it would block.
//!
//! IO#sysread and IO#syswrite are told from IO#read_nonblock, which must not wait, by name.
//!
//! On sockets of Ruby's own classes `read_nonblock` and friends never come here (they call recv and send with
//! MSG_DONTWAIT themselves), so a hook on such an object may park; and where the selector already knows that nothing is
//! there it parks without even asking. Everything else answers -EAGAIN, and the VM calls `io_wait`.

use std::{sync::OnceLock, time::Duration};

use magnus::{Error, Ruby, TryConvert, Value, prelude::*, typed_data::Obj, value::Opaque};
use reactor::{
    Attempt, CachedReadiness, Deadline, Interest, OwnerId, Reactor, Ready, TimerId, WaitId,
};
use rustix::io::Errno;

use crate::{
    attempt::{self, Kind, SLICE},
    convert,
    fibers::Cause,
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
    pub identity: OwnerId,
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
            identity: OwnerId(number.map_or(0, Self::identity_of)),
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

#[inline(always)] // with what calls it one frame, on the stack of every fiber that is parked here
fn transfer(
    ruby: &Ruby,
    this: Obj<Selector>,
    io: Value,
    direction: Direction,
    request: &Request,
    from: Option<u64>,
) -> Result<Value, Error> {
    let asked = Asked {
        io,
        direction,
        request,
        from,
    };
    let mut state = State::default();
    if let Some(answer) = at_once(ruby, this, &asked, &mut state)? {
        return Ok(answer);
    }
    in_turns(ruby, this, &asked, &mut state)
}

/// A transfer.
struct Asked<'a> {
    io: Value,
    direction: Direction,
    request: &'a Request,
    /// At a position in the file.
    from: Option<u64>,
}

/// How far it has come.
#[derive(Default)]
struct State {
    /// What is behind the IO, once that has been looked at.
    watched: Option<Watched>,
    /// What the last attempt has come to: bytes, but fewer than are wanted; or an error, which may be that it would block.
    attempted: Option<Result<usize, Errno>>,
    done: usize,
    /// Of the wait that is to come.
    deadline: Option<Deadline>,
}

/// The usual case, which needs no wait and hence no account of the fiber: one system call. The hook's answer, if that
/// was all.
#[inline(never)]
fn at_once(
    ruby: &Ruby,
    this: Obj<Selector>,
    asked: &Asked,
    state: &mut State,
) -> Result<Option<Value>, Error> {
    let selector: &Selector = &this;
    if asked.from.is_some() || !selector.may_go_ahead(ruby, this.as_value())? {
        return Ok(None);
    }
    let (direction, request) = (asked.direction, asked.request);
    let watched = Watched::new(asked.io)?;
    let (kind, descriptor) = (watched.kind, watched.descriptor);
    if kind == Kind::File {
        return Ok(None);
    }
    if watched.parkable && is_drained(selector, &watched, direction) {
        state.watched = Some(watched);
        state.attempted = Some(Err(Errno::AGAIN));
        return Ok(None);
    }
    let sliced = |size: usize| kind == Kind::Direct && size > SLICE;
    let (answer, room) = match direction {
        Direction::Write if ring::is_crowded(selector) => return Ok(None),
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
        return Ok(None); // another kind than was thought, or to be done in slices
    }
    remember(selector, &watched, direction, answer, room);
    let over = match answer {
        Ok(count) => count == 0 || count >= request.minimum || kind == Kind::Direct,
        Err(_) => kind == Kind::Direct,
    };
    if over {
        selector.spent(answer.unwrap_or(0));
        return Ok(Some(number(answer)));
    }
    state.watched = Some(watched);
    state.attempted = Some(answer);
    Ok(None)
}

/// The transfer as one that may wait, and may have begun. What happens before and after a wait has frames of its own: so
/// little is on the fiber's stack while it is parked.
#[inline(never)]
fn in_turns(
    ruby: &Ruby,
    this: Obj<Selector>,
    asked: &Asked,
    state: &mut State,
) -> Result<Value, Error> {
    let Entry::Usable(visit) = Selector::enter(ruby, &this)? else {
        return without_scheduler(asked);
    };
    let mut woken = None;
    loop {
        if let Some(answer) = advance(ruby, &visit, asked, state, woken)? {
            return Ok(answer);
        }
        woken = match begin_wait(ruby, &visit, asked.direction, state)? {
            None => None,
            Some((wait, timer)) => {
                let parked = visit.selector.park(visit.slot);
                let ready = hooks::end_wait(visit.selector, wait, timer);
                Some((ready, parked?))
            }
        }
    }
}

/// The VM's interrupt-safe blocking path is a poll away: io_wait of an inert scheduler really blocks.
#[cold]
#[inline(never)]
fn without_scheduler(asked: &Asked) -> Result<Value, Error> {
    let watched = Watched::new(asked.io)?;
    attempt_plainly(&watched, asked.direction, asked.request, asked.from).map(number)
}

#[inline(never)]
fn begin_wait(
    ruby: &Ruby,
    visit: &Visit,
    direction: Direction,
    state: &State,
) -> Result<Option<(WaitId, Option<TimerId>)>, Error> {
    let Some(watched) = &state.watched else {
        return Ok(None);
    };
    hooks::begin_wait(ruby, visit, watched, direction.interest(), state.deadline)
}

/// Goes on until it is over, which is the hook's answer, or has to wait. `woken`: how the last wait ended.
#[inline(never)]
fn advance(
    ruby: &Ruby,
    visit: &Visit,
    asked: &Asked,
    state: &mut State,
    woken: Option<(Ready, Cause)>,
) -> Result<Option<Value>, Error> {
    if let (Some((ready, cause)), Some(watched)) = (woken, &state.watched) {
        if watched.io.is_closed() {
            return Err(hooks::closed_elsewhere());
        }
        if ready.answers(asked.direction.interest()).is_none() {
            return match cause {
                Cause::Elapsed => time_is_up(ruby, state.done).map(Some),
                _ => Ok(None),
            };
        }
    }
    if state.watched.is_none() {
        visit.give_way_when_due()?;
        state.watched = Some(Watched::new(asked.io)?);
    }
    let Some(watched) = &mut state.watched else {
        return Ok(None);
    };
    let minimum = asked.request.minimum;
    loop {
        let answer = match state.attempted.take() {
            Some(answer) => answer,
            None => match attempt_again(visit, asked, watched, state.done)? {
                Again::Over(answer) => return Ok(Some(number(answer))),
                Again::Attempted(answer) => answer,
            },
        };
        match answer {
            Ok(count) => {
                visit.selector.spent(count);
                state.done += count;
                if count == 0 || state.done >= minimum {
                    return Ok(Some(number(Ok(state.done))));
                }
            }
            Err(Errno::AGAIN)
                if watched.parkable || minimum > 0 || raw::called_from::<4>(&WAITING) =>
            {
                let timeout = convert::timeout(watched.io.timeout())?;
                if timeout != Some(Duration::ZERO) {
                    state.deadline = visit.selector.inner.borrow().deadline(timeout);
                    return Ok(None);
                }
                let interest = asked.direction.interest();
                let ready = hooks::wait_io(ruby, visit, watched, interest, timeout)?;
                if ready.is_none() {
                    return time_is_up(ruby, state.done).map(Some);
                }
            }
            Err(_) if state.done > 0 => return Ok(Some(number(Ok(state.done)))),
            Err(errno) => return Ok(Some(number(Err(errno)))),
        }
    }
}

/// What was transferred before is not lost: it is this call's answer.
#[cold]
fn time_is_up(ruby: &Ruby, done: usize) -> Result<Value, Error> {
    match done {
        0 => Err(error_named(ruby, "IO::TimeoutError", hooks::TIMED_OUT)),
        _ => Ok(number(Ok(done))),
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
    let known = reactor.cached_readiness(watched.descriptor, watched.identity);
    match direction {
        Direction::Read => known.readable == CachedReadiness::Drained,
        Direction::Write => known.writable == CachedReadiness::Drained,
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
