//! `Reactor::Poller`: the reactor without fibers, for event loops that do their own switching (`lib/reactor/async.rb`).
//!
//! A wait has a number from [`wait`] to [`finish`]; [`poll`] returns the numbers of waits that have ended. Only one thread
//! may use a poller, except that any thread may call [`wake`].

use std::{cell::RefCell, io, time::Duration};

use magnus::{
    DataTypeFunctions, Error, RHash, Ruby, Symbol, TryConvert, TypedData, Value, typed_data::Obj,
};
use reactor::{Event, Events, Interest, Reactor, Ready, Token, Wait};
use reactor_scheduler::{
    state::{
        slab::Slab,
        token_mark::{marked, unmarked},
        unpolled::Unpolled,
        wait_registration::{ReadinessWait, Watch},
    },
    system::descriptor::Descriptor,
};

use crate::{
    control::unpolled_wait,
    ruby::{
        convert::{self, hook_result},
        error::{runtime_error, system_error, unavailable},
        io::{close_number, named},
        io_info::IoInfo,
        panics,
        receiver::wrong_number,
        thread::{check_interrupts, fork_generation, has_pending_interrupt, without_gvl},
    },
    transfer::{
        attempt::{attempt_without_scheduler, seen},
        request::{Direction, Transfer},
    },
    wait::readiness::watch,
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
    forks: u32,
    waits: Slab<PollerWait, NO_MARKS>,
    unpolled: Unpolled,
}

const NO_MARKS: u32 = 0;

#[derive(Default)]
struct PollerWait {
    wait: Option<ReadinessWait>,
    answer: Option<Ready>,
}

impl Loop {
    /// `None` once closed, and in a forked child, where the descriptors are the parent's.
    fn open(&mut self) -> Option<&mut Reactor> {
        let is_ours = self.forks == fork_generation();
        self.reactor.as_mut().filter(|_| is_ours)
    }

    /// See [`State::begin_readiness`](reactor_scheduler::state::State::begin_readiness).
    fn begin(&mut self, watch: Watch, token: Token) -> io::Result<Option<ReadinessWait>> {
        let Some(reactor) = self.open() else {
            return Ok(None);
        };
        match reactor.wait(watch.descriptor, watch.owner_id, watch.interest, token) {
            Ok(Wait::Pending(wait)) => Ok(Some(ReadinessWait::Polled(wait))),
            Ok(Wait::Ready(_)) => Ok(None),
            Err(refused) => self.unpolled.begin(watch, token, refused),
        }
    }

    fn reactor(&mut self) -> Result<&mut Reactor, Error> {
        self.open()
            .ok_or_else(|| runtime_error("this poller is closed"))
    }
}

/// `initialize(backend = nil)`
pub fn initialize(this: Obj<Poller>, arguments: &[Value]) -> Result<(), Error> {
    let backend = convert::optional_backend(arguments)?;
    let reactor = Reactor::open(backend).map_err(|error| unavailable(backend, &error))?;
    let mut event_loop = this.event_loop.borrow_mut();
    let handle = reactor.handle();
    event_loop
        .unpolled
        .wait_by_workers(handle, unpolled_wait::begin);
    event_loop.reactor = Some(reactor);
    event_loop.forks = fork_generation();
    Ok(())
}

/// `backend`: nil once closed.
pub fn backend(ruby: &Ruby, this: Obj<Poller>) -> Option<Symbol> {
    let backend = this.event_loop.borrow().reactor.as_ref()?.backend()?;
    Some(ruby.to_symbol(backend.name()))
}

/// `close`: releases the descriptors, unless they are the parent's.
pub fn close(this: Obj<Poller>) {
    let mut event_loop = this.event_loop.borrow_mut();
    if event_loop.open().is_some() {
        event_loop.reactor = None;
        event_loop.unpolled = Unpolled::default();
    }
}

/// `closed?`
pub fn is_closed(this: Obj<Poller>) -> bool {
    this.event_loop.borrow_mut().open().is_none()
}

/// `wait(io, events)`: begins a wait and returns its number, or nil if the kernel cannot poll the IO: it is then always
/// ready.
pub fn wait(
    ruby: &Ruby,
    this: Obj<Poller>,
    io: Value,
    events: Value,
) -> Result<Option<u64>, Error> {
    let interest = convert::interest(ruby, events)?;
    let watched = IoInfo::new(io)?;
    let begun = {
        let mut event_loop = this.event_loop.borrow_mut();
        event_loop.reactor()?; // first: nothing would release the place taken below
        let token = event_loop.waits.insert(PollerWait::default());
        let begun = event_loop.begin(watch(&watched, interest), token);
        if let (Ok(Some(wait)), Some(place)) = (&begun, event_loop.waits.get_mut(token)) {
            place.wait = Some(*wait);
            return Ok(Some(unmarked(token)));
        }
        event_loop.waits.remove(token);
        begun
    };
    if let Err(error) = begun {
        return Err(system_error(&error));
    }
    watched.recheck_kind();
    Ok(None)
}

/// `finish(number, events)`: ends a wait. Returns which of the events occurred, 0 if none.
pub fn finish(ruby: &Ruby, this: Obj<Poller>, number: u64, events: Value) -> Result<u8, Error> {
    let interest = convert::interest(ruby, events)?;
    let mut event_loop = this.event_loop.borrow_mut();
    let token = marked(number, NO_MARKS);
    let PollerWait { wait, answer } = event_loop.waits.remove(token).unwrap_or_default();
    let ready = match (wait, event_loop.reactor.as_mut()) {
        (Some(ReadinessWait::Polled(wait)), Some(reactor)) => {
            reactor.end(wait);
            answer.unwrap_or_default()
        }
        _ => event_loop.unpolled.end(token),
    };
    let answered = ready.answers(interest);
    Ok(answered.map_or(0, Interest::bits))
}

/// `poll(duration)`: returns the numbers of waits that have ended, after at most this many seconds (nil: no limit, 0:
/// at once) without the GVL. May return none after a wake-up or a signal. Runs the thread's pending interrupts. Does
/// not sleep while a masked interrupt is pending: nothing would end the sleep, and the loop checks for the interrupt
/// after each poll.
pub fn poll(this: Obj<Poller>, duration: Value) -> Result<Vec<u64>, Error> {
    let limit = convert::timeout(duration)?;
    let over = collect(this)?;
    if !over.is_empty() || limit == Some(Duration::ZERO) || has_pending_interrupt()? {
        return Ok(over);
    }
    let (sleep, handle) = {
        let mut event_loop = this.event_loop.borrow_mut();
        let reactor = event_loop.reactor()?;
        (reactor.sleep(limit), reactor.handle())
    };
    without_gvl(&sleep, &handle);
    drop(sleep);
    check_interrupts()?; // first: events taken before would be lost if this raises
    collect(this)
}

fn collect(this: Obj<Poller>) -> Result<Vec<u64>, Error> {
    let mut events = Events::new();
    let (collected, over) = {
        let mut event_loop = this.event_loop.borrow_mut();
        let collected = event_loop.reactor()?.collect(&mut events);
        let mut over = Vec::with_capacity(events.len());
        for Event { token, ready } in events {
            if let Some(wait) = event_loop.waits.get_mut(token) {
                wait.answer = Some(ready);
                over.push(unmarked(token));
            }
        }
        (collected, over)
    };
    collected.map_err(|error| system_error(&error))?;
    Ok(over)
}

/// `wake`: ends the polling thread's current sleep, or the next one.
pub fn wake(this: Obj<Poller>) -> bool {
    let event_loop = this.event_loop.borrow();
    let reactor = event_loop.reactor.as_ref();
    reactor.is_some_and(|reactor| reactor.handle().wake().is_ok())
}

/// `close_descriptor(number)`: deregisters the descriptor and closes it. False if closing may block; the caller then
/// closes the descriptor.
pub fn close_descriptor(this: Obj<Poller>, descriptor: i32) -> bool {
    let polled = named(descriptor).map(Descriptor::polled);
    if let (Some(reactor), Some(polled)) = (this.event_loop.borrow_mut().open(), polled) {
        reactor.deregister(polled);
    }
    close_number(descriptor)
}

/// `read(io, buffer, offset, most)`: one attempt that does not wait. Returns bytes, or -errno. On a regular file the
/// attempt may take long.
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
    let io = IoInfo::new(*io)?;
    let attempted = attempt_without_scheduler(&io, &transfer)?;
    if let Some(seen) = seen(&io, attempted) {
        if let Some(reactor) = this.event_loop.borrow_mut().open() {
            reactor.attempted(io.polled(), io.owner_id, direction.interest(), seen);
        }
    }
    Ok(hook_result(attempted.0))
}

/// `stats`: the reactor's counters; see `Reactor::Inspection#stats`.
pub fn stats(ruby: &Ruby, this: Obj<Poller>) -> RHash {
    let rows = {
        let event_loop = this.event_loop.borrow();
        event_loop.reactor.as_ref().map(|r| r.statistics().rows())
    };
    convert::counters(ruby, rows.into_iter().flatten())
}
