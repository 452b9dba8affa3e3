//! `Reactor::Poller`: the reactor alone, without fibers, for event loops that switch by themselves (`lib/reactor/async.rb`).
//!
//! A wait has a number from [`wait`] to [`finish`]; [`poll`] tells the numbers of those that are over. Used by one thread;
//! [`wake`] may be called by any.

use std::{cell::RefCell, time::Duration};

use magnus::{
    DataTypeFunctions, Error, Integer, RArray, RHash, Ruby, Symbol, TryConvert, TypedData, Value,
    prelude::*, typed_data::Obj,
};
use reactor::{Backend, Events, Reactor, Ready, Token, Wait, WaitId};

use crate::{
    attempt, convert,
    io::{self, Direction, Request, Watched},
    raw,
    selector::named_backend,
};

#[derive(TypedData, DataTypeFunctions, Default)]
#[magnus(class = "Reactor::Poller", free_immediately)]
pub struct Poller {
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    reactor: Option<Reactor>,
    backend: Option<Backend>,
    forks: u32,
    events: Events,
    waits: Vec<Option<WaitId>>,
    /// Outlive the waits: what comes late for an old one carries an old number.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl Inner {
    /// RuntimeError once closed, and in a forked child, whose descriptors are its parent's.
    fn reactor(&mut self, ruby: &Ruby) -> Result<&mut Reactor, Error> {
        let ours = self.forks == raw::fork_generation();
        self.reactor
            .as_mut()
            .filter(|_| ours)
            .ok_or_else(|| Error::new(ruby.exception_runtime_error(), "this poller is closed"))
    }

    fn claim(&mut self) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.waits.push(None);
            self.generations.push(0);
            (self.waits.len() - 1) as u32
        });
        Token::new(index, self.generations[index as usize])
    }

    fn release(&mut self, index: u32) -> Option<WaitId> {
        let wait = self.waits.get_mut(index as usize)?.take()?;
        self.generations[index as usize] = self.generations[index as usize].wrapping_add(1);
        self.free.push(index);
        Some(wait)
    }

    /// Whether an event with this token is for a wait that goes on.
    fn is_current(&self, token: Token) -> bool {
        let index = token.index() as usize;
        self.generations.get(index) == Some(&token.generation())
    }
}

/// `initialize(backend = nil)`
pub fn initialize(ruby: &Ruby, this: Obj<Poller>, arguments: &[Value]) -> Result<(), Error> {
    let backend = match arguments {
        [] => None,
        [name] if name.is_nil() => None,
        [name] => Some(named_backend(ruby, *name)?),
        _ => return Err(Error::new(ruby.exception_arg_error(), "too many arguments")),
    };
    let reactor = Reactor::open(backend).map_err(|error| match error.raw_os_error() {
        Some(_) => convert::system_error(ruby, &error),
        None => Error::new(ruby.exception_arg_error(), error.to_string()),
    })?;
    let mut inner = this.inner.borrow_mut();
    inner.backend = reactor.backend();
    inner.reactor = Some(reactor);
    inner.forks = raw::fork_generation();
    Ok(())
}

pub fn backend(ruby: &Ruby, this: Obj<Poller>) -> Option<Symbol> {
    let backend = this.inner.borrow().backend?;
    Some(ruby.to_symbol(backend.name()))
}

/// `close`: releases the descriptors, unless they are the parent's.
pub fn close(this: Obj<Poller>) {
    let mut inner = this.inner.borrow_mut();
    if inner.forks == raw::fork_generation() {
        inner.reactor = None;
    }
}

pub fn is_closed(this: Obj<Poller>) -> bool {
    let inner = this.inner.borrow();
    inner.reactor.is_none() || inner.forks != raw::fork_generation()
}

/// `wait(io, events)`: begins a wait; its number, or nil for what the kernel does not poll and is always ready.
pub fn wait(
    ruby: &Ruby,
    this: Obj<Poller>,
    io: Value,
    events: Value,
) -> Result<Option<u32>, Error> {
    let interest = convert::interest(ruby, events)?;
    let watched = Watched::new(io)?;
    let mut inner = this.inner.borrow_mut();
    let token = inner.claim();
    let begun = inner
        .reactor(ruby)?
        .wait(watched.descriptor, watched.identity, interest, token);
    match begun {
        Ok(Wait::Pending(wait)) => {
            inner.waits[token.index() as usize] = Some(wait);
            Ok(Some(token.index()))
        }
        Ok(Wait::Ready(_)) => {
            inner.free.push(token.index());
            drop(inner);
            watched.reconsider();
            Ok(None)
        }
        Err(error) => {
            inner.free.push(token.index());
            drop(inner);
            Err(convert::system_error(ruby, &error))
        }
    }
}

/// `finish(number, events)`: ends a wait; those of the events that have come, 0 if none.
pub fn finish(
    ruby: &Ruby,
    this: Obj<Poller>,
    number: u32,
    events: Value,
) -> Result<Integer, Error> {
    let interest = convert::interest(ruby, events)?;
    let mut inner = this.inner.borrow_mut();
    let ready = match inner.release(number) {
        Some(wait) => inner
            .reactor
            .as_mut()
            .map_or(Ready::EMPTY, |reactor| reactor.end(wait)),
        None => Ready::EMPTY,
    };
    let bits = ready
        .answers(interest)
        .map_or(0, |answered| answered.bits());
    Ok(ruby.integer_from_u64(bits.into()))
}

/// `poll(duration)`: the numbers of the waits that are over, after at most so many seconds (nil: for ever, 0: at once)
/// without the GVL. May be empty, after a wake-up or a signal. Runs what is pending for the thread.
pub fn poll(ruby: &Ruby, this: Obj<Poller>, duration: Value) -> Result<RArray, Error> {
    let limit = convert::timeout(duration)?;
    let mut over = collect(ruby, this)?;
    if over.is_empty() && limit != Some(Duration::ZERO) {
        let (sleep, handle) = {
            let mut inner = this.inner.borrow_mut();
            let reactor = inner.reactor(ruby)?;
            (reactor.sleep(limit), reactor.handle())
        };
        raw::without_gvl(&sleep, &handle);
        drop(sleep);
        raw::check_interrupts()?; // before the events are taken, or they would be lost with what this raises
        over = collect(ruby, this)?;
    }
    Ok(ruby.ary_from_iter(over))
}

fn collect(ruby: &Ruby, this: Obj<Poller>) -> Result<Vec<u32>, Error> {
    let mut inner = this.inner.borrow_mut();
    let mut events = std::mem::take(&mut inner.events);
    events.clear();
    let collected = inner.reactor(ruby)?.collect(&mut events);
    let current = events.iter().filter(|event| inner.is_current(event.token));
    let over = current.map(|event| event.token.index()).collect();
    inner.events = events;
    drop(inner);
    match collected {
        Ok(()) => Ok(over),
        Err(error) => Err(convert::system_error(ruby, &error)),
    }
}

/// `wake`: ends the sleep of the thread that polls, or the next one.
pub fn wake(this: Obj<Poller>) -> bool {
    let inner = this.inner.borrow();
    let reactor = inner.reactor.as_ref();
    reactor.is_some_and(|reactor| reactor.handle().wake().is_ok())
}

/// `close_descriptor(number)`: close(2), the selector being told. Whether the number is closed now, which it is whatever
/// the call said, unless it was none.
pub fn close_descriptor(this: Obj<Poller>, descriptor: i32) -> bool {
    let mut inner = this.inner.borrow_mut();
    if inner.forks == raw::fork_generation() {
        if let Some(reactor) = inner.reactor.as_mut() {
            reactor.deregister(descriptor);
        }
    }
    attempt::close(descriptor)
}

/// `read(io, buffer, offset, most)`: one attempt that does not wait: bytes, or -errno. Regular files may take their time.
pub fn read(ruby: &Ruby, this: Obj<Poller>, arguments: &[Value]) -> Result<Integer, Error> {
    transfer(ruby, this, Direction::Read, arguments)
}

/// `write(io, buffer, offset, most)`
pub fn write(ruby: &Ruby, this: Obj<Poller>, arguments: &[Value]) -> Result<Integer, Error> {
    transfer(ruby, this, Direction::Write, arguments)
}

fn transfer(
    ruby: &Ruby,
    this: Obj<Poller>,
    direction: Direction,
    arguments: &[Value],
) -> Result<Integer, Error> {
    let [io, buffer, offset, most] = arguments else {
        let message = format!(
            "wrong number of arguments (given {}, expected 4)",
            arguments.len()
        );
        return Err(Error::new(ruby.exception_arg_error(), message));
    };
    let (offset, most) = (i64::try_convert(*offset)?, i64::try_convert(*most)?);
    let request = Request::at_most(ruby, *buffer, most, offset)?;
    let watched = Watched::new(*io)?;
    let answer = if watched.is_file() {
        io::attempt_plainly(&watched, direction, &request, None)?
    } else {
        let (answer, room) = io::attempt(&watched, direction, &request, 0)?;
        let mut inner = this.inner.borrow_mut();
        if let Ok(reactor) = inner.reactor(ruby) {
            io::tell(reactor, &watched, direction, answer, room);
        }
        answer
    };
    Ok(match answer {
        Ok(count) => ruby.integer_from_u64(count as u64),
        Err(errno) => ruby.integer_from_i64(-i64::from(errno.raw_os_error())),
    })
}

/// `stats`: the selector's counters; see `Reactor::Inspection#stats`.
pub fn stats(ruby: &Ruby, this: Obj<Poller>) -> Result<RHash, Error> {
    let rows = {
        let inner = this.inner.borrow();
        inner.reactor.as_ref().map(|r| r.statistics().rows())
    };
    let hash = ruby.hash_new();
    for (name, value) in rows.into_iter().flatten() {
        hash.aset(ruby.to_symbol(name), value)?;
    }
    Ok(hash)
}
