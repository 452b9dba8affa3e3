//! What an onlooker may see of a scheduler: who waits for what, who has control, whether it goes on at all.
//!
//! From any thread that holds the GVL. Nothing here changes anything.

use std::time::{Duration, Instant};

use magnus::{Error, RArray, Ruby, TryConvert, Value, prelude::*, typed_data::Obj};

use crate::{
    fibers::{Hook, MANY, Record, State},
    io::Watched,
    raw,
    selector::{Selector, ruby},
};

pub fn hook_name(hook: Hook) -> &'static str {
    match hook {
        Hook::Io => "io",
        Hook::Sleep => "sleep",
        Hook::Block => "block",
        Hook::Other => "other",
    }
}

/// The number of an IO object, as `Reactor.io_number` tells it; 0 for none or several.
pub fn identity(watching: u64) -> u64 {
    if watching == MANY { 0 } else { watching }
}

/// `roster`: every fiber the scheduler knows, as
/// `[fiber, address, state, hook, io number, events, forever, seconds in this state]`.
pub fn roster(ruby: &Ruby, this: Obj<Selector>) -> Result<RArray, Error> {
    struct Row {
        fiber: raw::Pinned,
        state: &'static str,
        hook: Hook,
        watching: u64,
        events: u8,
        forever: bool,
        since: Option<Instant>,
    }
    let row = |record: &Record| Row {
        fiber: record.fiber,
        state: state_name(record),
        hook: record.hook,
        watching: record.watching,
        events: record.events,
        forever: record.is_forever(),
        since: record.since,
    };
    let rows: Vec<Row> = this.inner.borrow().fibers.records().map(row).collect();
    let array = ruby.ary_new_capa(rows.len());
    for row in rows {
        let waited = row
            .since
            .filter(|_| row.state != "running")
            .map(|since| since.elapsed().as_secs_f64());
        let values: [Value; 8] = [
            row.fiber.value(),
            ruby.integer_from_u64(row.fiber.address() as u64).as_value(),
            ruby.to_symbol(row.state).as_value(),
            ruby.to_symbol(hook_name(row.hook)).as_value(),
            ruby.integer_from_u64(identity(row.watching)).as_value(),
            ruby.integer_from_u64(row.events.into()).as_value(),
            if row.forever {
                ruby.qtrue().as_value()
            } else {
                ruby.qfalse().as_value()
            },
            match waited {
                Some(seconds) => ruby.float_from_f64(seconds).as_value(),
                None => ruby.qnil().as_value(),
            },
        ];
        array.push(ruby.ary_new_from_values(&values))?;
    }
    Ok(array)
}

/// `waited_for`: the hooks that fibers wait in, each once.
pub fn waited_for(ruby: &Ruby, this: Obj<Selector>) -> RArray {
    let waits = |hook: &Hook| {
        let inner = this.inner.borrow();
        let mut waiting = inner.fibers.records().filter(|r| r.hook == *hook);
        waiting.any(|record| matches!(record.state, State::Parked(_)))
    };
    let hooks = [Hook::Io, Hook::Sleep, Hook::Block, Hook::Other];
    let waited_for = hooks.into_iter().filter(waits).map(hook_name);
    ruby.ary_from_iter(waited_for.map(|name| ruby.to_symbol(name)))
}

fn state_name(record: &Record) -> &'static str {
    match record.state {
        State::Parked(_) => "waiting",
        State::Woken(_) => "ready",
        State::Running if record.queued => "ready",
        State::Running => "running",
    }
}

/// `Reactor.io_number(io)`: the number under which an IO object appears in a roster; nil if no scheduler has seen it.
pub fn io_number(io: Value) -> Option<u64> {
    raw::known_number(io).map(Watched::identity_of)
}

/// `pulse`: a number that changes whenever control changes hands; nil while the thread sleeps in the kernel, and while
/// there is no fiber that could be held up.
pub fn pulse(this: Obj<Selector>) -> Option<u64> {
    let inner = this.inner.borrow();
    let idle = inner.sleeping || inner.fibers.live() == 0;
    (!idle).then(|| inner.counters.pulse())
}

/// `holder`: the fiber that has control as far as the scheduler gave it; nil if it is none of those it knows.
pub fn holder(this: Obj<Selector>) -> Option<Value> {
    let inner = this.inner.borrow();
    let record = inner.fibers.get(inner.running?)?;
    Some(record.fiber.value())
}

/// How long to sleep before the next look whether anybody can still wake us: the first look soon, later ones seldom.
pub fn patience(looks: u32) -> Duration {
    Duration::from_millis(100 << looks.saturating_sub(1).min(4))
}

/// Raises what Ruby raises when every thread waits for another one, if this is what has become of us: all fibers wait for
/// an `unblock` without a time limit, and `deadlock` (in Ruby) finds no thread that could bring it.
pub fn raise_deadlock(selector: &Selector) -> Result<(), Error> {
    if !selector.inner.borrow().slept_in_vain() {
        return Ok(());
    }
    let scheduler = raw::current_scheduler().value();
    if !Selector::is(scheduler, selector) || !scheduler.respond_to("deadlock", true)? {
        return Ok(());
    }
    let message = raw::call_method(scheduler, "deadlock", &[])?;
    match Option::<String>::try_convert(message)? {
        Some(message) => Err(ruby().exception_fatal().new_instance((message,))?.into()),
        None => Ok(()),
    }
}
