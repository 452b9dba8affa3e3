//! Methods called by `on_ready` (`lib/reactor/scheduler/watching.rb`) and by servers. Those for `on_ready` never wait.

use magnus::{Error, RArray, Ruby, Value, prelude::*, typed_data::Obj};
use reactor::Interest;
use reactor_scheduler::state::{
    token_mark::{WATCHER, marked, unmarked},
    watchers::NewWatcher,
};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        convert,
        error::{argument_error, io_error, system_error},
        io::{RealIo, real_io},
        io_info::IoInfo,
        object::{Object, object_ref},
        receiver::Receiver,
    },
    wait::readiness::{linger as linger_on, watch},
};

/// `begin_watcher(watcher, io, events, timeout, transient, buffered)`: returns its number.
pub fn begin_watcher(
    Receiver(this): Receiver<Scheduler>,
    watcher: Value,
    io: Value,
    events: Value,
    timeout: Value,
    is_transient: bool,
    is_buffered: bool,
) -> Result<u64, Error> {
    let ruby = &Ruby::get_with(this);
    let given = object_ref(io);
    let io = real_io(io)?;
    let interest = convert::interest(ruby, events)?;
    let limit = convert::timeout(timeout)?;
    let _scope = HookScope::enter(ruby, &this)?;
    let watched = open_in(io, interest)?;
    let facts = IoInfo::new(watched.value())?;
    let has_read_ahead = interest.contains(Interest::READABLE) && io.has_read_ahead();
    Scheduler::keep_watcher(this, ruby, watcher, given);
    let begun = this.state_mut().begin_watcher(NewWatcher {
        object: object_ref(watcher),
        io: given,
        watch: watch(&facts, interest),
        limit,
        is_transient,
        is_buffered: is_buffered || has_read_ahead,
    });
    let begun = begun.map_err(|error| system_error(&error))?;
    if !begun.is_polled {
        facts.recheck_kind();
    }
    Ok(unmarked(begun.token))
}

/// The object whose descriptor the watcher waits for. IOError if it is not open in these directions.
fn open_in(io: RealIo, interest: Interest) -> Result<RealIo, Error> {
    let writer = io.writer();
    let reads = interest.contains(Interest::READABLE) || interest.contains(Interest::PRIORITY);
    let writes = interest.contains(Interest::WRITABLE);
    if reads && !io.mode()?.is_readable {
        return Err(io_error("not opened for reading"));
    }
    if writes && !writer.mode()?.is_writable {
        return Err(io_error("not opened for writing"));
    }
    match (reads, writes) {
        (true, true) if io.descriptor()? != writer.descriptor()? => Err(argument_error(
            "this IO has separate descriptors for reading and writing: watch one direction at a time",
        )),
        (false, _) => Ok(writer),
        (true, _) => Ok(io),
    }
}

/// `cancel_watcher(number)`: cancels the watcher with this number. Returns whether it was still waiting. ThreadError in
/// another thread.
pub fn cancel_watcher(ruby: &Ruby, this: Obj<Scheduler>, number: u64) -> Result<bool, Error> {
    if !this.check_thread(ruby, this.as_value())? {
        return Ok(false);
    }
    let ended = this.state_mut().end_watcher(marked(number, WATCHER));
    Ok(ended.is_some())
}

/// `linger(io, seconds)`: whether the IO becomes readable, now or within this time. Bytes in its read buffer count.
pub fn linger(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    io: Value,
    seconds: Value,
) -> Result<bool, Error> {
    let scope = HookScope::enter(ruby, &this)?;
    let limit = convert::timeout(seconds)?;
    let io = IoInfo::new(io)?;
    if io.io.has_read_ahead() {
        return Ok(true);
    }
    linger_on(&scope, &io, limit)
}

/// `hung_up?(io)`: whether the kernel has reported that the other end sends no more, or a hang-up. There may be bytes to read
/// from the kernel; false if there are some in the read buffer.
pub fn hung_up(this: Obj<Scheduler>, io: Value) -> Result<bool, Error> {
    let io = IoInfo::new(io)?;
    let known = this.state().cached_readiness(io.polled(), io.owner_id);
    Ok(!io.io.has_read_ahead() && known.is_some_and(|known| known.hung_up))
}

/// `watched(number)`: the IO object that the watcher with this number watches; nil if the watcher has ended. Any thread
/// that holds the GVL may call it.
pub fn watched(_: &Ruby, this: Obj<Scheduler>, number: u64) -> Option<Value> {
    this.state()
        .watched(marked(number, WATCHER))
        .map(Object::value)
}

/// `watchers`: every waiting watcher. Any thread that holds the GVL may call it.
pub fn watchers(ruby: &Ruby, this: Obj<Scheduler>) -> RArray {
    if this.is_forked_child() {
        return ruby.ary_new();
    }
    let array = ruby.ary_new_capa(this.state().watcher_count());
    let watchers: Vec<_> = this.state().watchers().collect();
    for watcher in watchers {
        _ = array.push(watcher.value());
    }
    array
}
