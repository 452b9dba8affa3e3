//! `Reactor::Poller`: the reactor alone, without fibers, for event loops that switch by themselves (`lib/reactor/async.rb`).
//!
//! A wait has a number from [`wait`] to [`finish`]; [`poll`] returns the numbers of the waits that are over. One thread uses
//! a poller; [`wake`] may be called by any thread.

use std::{cell::RefCell, time::Duration};

use magnus::{
    DataTypeFunctions, Error, Integer, RArray, RHash, Ruby, Symbol, TryConvert, TypedData, Value,
    typed_data::Obj,
};
use reactor::{Backend, Events, Reactor, Ready, Token, Wait, WaitId};
use reactor_scheduler::system::descriptor::close_unless_blocking;

use crate::{
    ruby::{
        convert::{self, hook_result},
        error::{runtime_error, system_error, unavailable},
        io_facts::IoFacts,
        method::wrong_number,
        panics,
        thread::{check_interrupts, fork_generation, has_pending_interrupt, without_gvl},
    },
    transfer::{
        attempt::{attempt_without_scheduler, seen},
        request::{Direction, Transfer},
    },
};

#[derive(TypedData, Default)]
#[magnus(class = "Reactor::Poller", free_immediately)]
pub struct Poller {
    event_loop: RefCell<Loop>,
}

impl DataTypeFunctions for Poller {
    fn free(self: Box<Self>) {
        _ = panics::catch("end of a poller", || drop(self));
    }
}

#[derive(Default)]
struct Loop {
    reactor: Option<Reactor>,
    backend: Option<Backend>,
    forks: u32,
    events: Events,
    waits: Vec<Option<WaitId>>,
    /// They outlive the waits: a late event of an old wait carries an old number.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl Loop {
    /// RuntimeError once closed, and in a forked child: the descriptors are its parent's.
    fn reactor(&mut self) -> Result<&mut Reactor, Error> {
        let is_ours = self.forks == fork_generation();
        self.reactor
            .as_mut()
            .filter(|_| is_ours)
            .ok_or_else(|| runtime_error("this poller is closed"))
    }

    fn take_index(&mut self) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.waits.push(None);
            self.generations.push(0);
            (self.waits.len() - 1) as u32
        });
        Token::new(index, self.generations[index as usize])
    }

    fn free_index(&mut self, index: u32) -> Option<WaitId> {
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
pub fn initialize(this: Obj<Poller>, arguments: &[Value]) -> Result<(), Error> {
    let backend = convert::optional_backend(arguments)?;
    let reactor = Reactor::open(backend).map_err(|error| unavailable(&error))?;
    let mut event_loop = this.event_loop.borrow_mut();
    event_loop.backend = reactor.backend();
    event_loop.reactor = Some(reactor);
    event_loop.forks = fork_generation();
    Ok(())
}

pub fn backend(ruby: &Ruby, this: Obj<Poller>) -> Option<Symbol> {
    let backend = this.event_loop.borrow().backend?;
    Some(ruby.to_symbol(backend.name()))
}

/// `close`: releases the descriptors, unless they are the parent's.
pub fn close(this: Obj<Poller>) {
    let mut event_loop = this.event_loop.borrow_mut();
    if event_loop.forks == fork_generation() {
        event_loop.reactor = None;
    }
}

pub fn is_closed(this: Obj<Poller>) -> bool {
    let event_loop = this.event_loop.borrow();
    event_loop.reactor.is_none() || event_loop.forks != fork_generation()
}

/// `wait(io, events)`: begins a wait; its number, or nil for what the kernel does not poll and is always ready.
pub fn wait(
    ruby: &Ruby,
    this: Obj<Poller>,
    io: Value,
    events: Value,
) -> Result<Option<u32>, Error> {
    let interest = convert::interest(ruby, events)?;
    let watched = IoFacts::new(io)?;
    let mut event_loop = this.event_loop.borrow_mut();
    event_loop.reactor()?; // before an index is taken, which nothing would give back
    let token = event_loop.take_index();
    let begun = event_loop
        .reactor()?
        .wait(watched.descriptor, watched.owner_id, interest, token);
    match begun {
        Ok(Wait::Pending(wait)) => {
            event_loop.waits[token.index() as usize] = Some(wait);
            Ok(Some(token.index()))
        }
        Ok(Wait::Ready(_)) => {
            event_loop.free.push(token.index());
            drop(event_loop);
            watched.recheck_kind();
            Ok(None)
        }
        Err(error) => {
            event_loop.free.push(token.index());
            drop(event_loop);
            Err(system_error(&error))
        }
    }
}

/// `finish(number, events)`: ends a wait; which of the events have come, 0 if none.
pub fn finish(
    ruby: &Ruby,
    this: Obj<Poller>,
    number: u32,
    events: Value,
) -> Result<Integer, Error> {
    let interest = convert::interest(ruby, events)?;
    let mut event_loop = this.event_loop.borrow_mut();
    let ready = match event_loop.free_index(number) {
        Some(wait) => event_loop
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

/// `poll(duration)`: the numbers of the waits that are over, after at most this many seconds (nil: no limit, 0: at once)
/// without the GVL. May be empty, after a wake-up or a signal. Runs what is pending for the thread. It does not sleep while an
/// interrupt is pending that is masked: nothing would end the sleep, and the loop looks for the interrupt after each poll.
pub fn poll(ruby: &Ruby, this: Obj<Poller>, duration: Value) -> Result<RArray, Error> {
    let limit = convert::timeout(duration)?;
    let mut over = collect(this)?;
    if over.is_empty() && limit != Some(Duration::ZERO) && !has_pending_interrupt()? {
        let (sleep, handle) = {
            let mut event_loop = this.event_loop.borrow_mut();
            let reactor = event_loop.reactor()?;
            (reactor.sleep(limit), reactor.handle())
        };
        without_gvl(&sleep, &handle);
        drop(sleep);
        check_interrupts()?; // before the events are taken, or they would be lost with what this raises
        over = collect(this)?;
    }
    Ok(ruby.ary_from_iter(over))
}

fn collect(this: Obj<Poller>) -> Result<Vec<u32>, Error> {
    let mut event_loop = this.event_loop.borrow_mut();
    let mut events = std::mem::take(&mut event_loop.events);
    events.clear();
    let collected = event_loop.reactor()?.collect(&mut events);
    let current = events
        .iter()
        .filter(|event| event_loop.is_current(event.token));
    let over = current.map(|event| event.token.index()).collect();
    event_loop.events = events;
    drop(event_loop);
    match collected {
        Ok(()) => Ok(over),
        Err(error) => Err(system_error(&error)),
    }
}

/// `wake`: ends the sleep of the thread that polls, or the next one.
pub fn wake(this: Obj<Poller>) -> bool {
    let event_loop = this.event_loop.borrow();
    let reactor = event_loop.reactor.as_ref();
    reactor.is_some_and(|reactor| reactor.handle().wake().is_ok())
}

/// `close_descriptor(number)`: deregisters the descriptor and closes it. False if the close may block: the caller
/// closes it then.
pub fn close_descriptor(this: Obj<Poller>, descriptor: i32) -> bool {
    let mut event_loop = this.event_loop.borrow_mut();
    if event_loop.forks == fork_generation() {
        if let Some(reactor) = event_loop.reactor.as_mut() {
            reactor.deregister(descriptor);
        }
    }
    close_unless_blocking(descriptor)
}

/// `read(io, buffer, offset, most)`: one attempt that does not wait: bytes, or -errno. Regular files may take their time.
pub fn read(ruby: &Ruby, this: Obj<Poller>, arguments: &[Value]) -> Result<Value, Error> {
    transfer(ruby, this, Direction::Read, arguments)
}

/// `write(io, buffer, offset, most)`
pub fn write(ruby: &Ruby, this: Obj<Poller>, arguments: &[Value]) -> Result<Value, Error> {
    transfer(ruby, this, Direction::Write, arguments)
}

fn transfer(
    ruby: &Ruby,
    this: Obj<Poller>,
    direction: Direction,
    arguments: &[Value],
) -> Result<Value, Error> {
    let [io, buffer, offset, most] = arguments else {
        return Err(wrong_number(ruby, arguments.len(), "4"));
    };
    let (offset, most) = (i64::try_convert(*offset)?, i64::try_convert(*most)?);
    let transfer = Transfer::new(direction, 4, [*io, *buffer], [offset, most])?;
    let io = IoFacts::new(*io)?;
    let attempted = attempt_without_scheduler(&io, &transfer)?;
    if let Some(seen) = seen(&io, attempted) {
        let mut event_loop = this.event_loop.borrow_mut();
        if let Ok(reactor) = event_loop.reactor() {
            reactor.attempted(io.descriptor, io.owner_id, direction.interest(), seen);
        }
    }
    Ok(hook_result(attempted.0))
}

/// `stats`: the reactor's counters; see `Reactor::Inspection#stats`.
pub fn stats(ruby: &Ruby, this: Obj<Poller>) -> Result<RHash, Error> {
    let rows = {
        let event_loop = this.event_loop.borrow();
        event_loop.reactor.as_ref().map(|r| r.statistics().rows())
    };
    let hash = ruby.hash_new();
    for (name, value) in rows.into_iter().flatten() {
        hash.aset(ruby.to_symbol(name), value)?;
    }
    Ok(hash)
}
