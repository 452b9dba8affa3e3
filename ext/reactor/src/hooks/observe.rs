//! Methods for observers of a scheduler: what each fiber waits for, which fiber is running, whether the loop makes
//! progress, traces. Any thread that holds the GVL may call them, and none changes what fibers do. The methods for
//! virtual time, for tests, are here too.

use std::time::Duration;

use magnus::{Error, RArray, RHash, Ruby, Value, scan_args::scan_args, typed_data::Obj};
use reactor_scheduler::state::{trace::Trace, wait::SEVERAL};

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        convert,
        error::runtime_error,
        object::{Object, object_ref},
    },
};

/// The number of an IO object, as returned by `Reactor::Internal.io_number`; 0 for none or several.
fn single_io_number(io_number: u64) -> u64 {
    if io_number == SEVERAL { 0 } else { io_number }
}

/// `fiber_rows(limit = nil)`: every fiber the scheduler knows, or the `limit` longest waits, as `[fiber, address, state,
/// hook, io number, events, forever, seconds in this state]`.
pub fn fiber_rows(ruby: &Ruby, this: Obj<Scheduler>, arguments: &[Value]) -> Result<RArray, Error> {
    let limit = scan_args::<(), (Option<usize>,), (), (), (), ()>(arguments)?;
    let rows = match limit.optional.0 {
        Some(limit) => this.state().longest_waits(limit),
        None => this.state().fiber_rows(),
    };
    let array = ruby.ary_new_capa(rows.len());
    for row in rows {
        let waited = row.waiting_since.map(|since| since.elapsed().as_secs_f64());
        array.push((
            row.fiber.value(),
            row.fiber.address(),
            ruby.sym_new(row.state),
            ruby.sym_new(row.hook.name()),
            single_io_number(row.io_number),
            row.events,
            row.waits_for_unblock_only,
            waited,
        ))?;
    }
    Ok(array)
}

/// `histogram_rows`: the histograms by name, as `[counts, sum in nanoseconds, longest in nanoseconds]`. Empty once closed.
pub fn histogram_rows(ruby: &Ruby, this: Obj<Scheduler>) -> Result<RHash, Error> {
    let histograms = this.state().histograms();
    let hash = ruby.hash_new();
    for (name, histogram) in histograms {
        let counts = ruby.ary_from_iter(histogram.counts().iter().copied());
        let [sum, max] = [histogram.sum(), histogram.max()].map(|time| time.as_nanos() as u64);
        hash.aset(ruby.sym_new(name), (counts, sum, max))?;
    }
    Ok(hash)
}

/// `wait_hooks`: the hooks in which fibers wait, without duplicates.
pub fn wait_hooks(ruby: &Ruby, this: Obj<Scheduler>) -> RArray {
    let hooks: Vec<_> = this.state().wait_hooks().collect();
    ruby.ary_from_iter(hooks.into_iter().map(|hook| ruby.sym_new(hook.name())))
}

/// `progress_count`: a number that changes whenever another fiber gets control; nil while the thread sleeps in the kernel,
/// and while no fiber could be held up.
pub fn progress_count(this: Obj<Scheduler>) -> Option<u64> {
    this.state().progress_count()
}

/// `running_fiber`: the fiber to which the scheduler last switched; nil if the scheduler does not know the running
/// fiber.
pub fn running_fiber(this: Obj<Scheduler>) -> Option<Value> {
    let running = this.state().running_fiber();
    running.map(Object::value)
}

/// `watch_holds(seconds)`: from now on records the longest time that a fiber holds the loop for at least so long.
pub fn watch_holds(this: Obj<Scheduler>, seconds: f64) {
    this.state_mut()
        .watch_holds(Duration::from_secs_f64(seconds));
}

/// `take_hold`: the fiber that has held the loop for longest since the last call, or nil for one that the scheduler does not know,
/// and for how many seconds; nil if that was less than the limit.
pub fn take_hold(this: Obj<Scheduler>) -> Option<(Option<Value>, f64)> {
    let (fiber, held) = this.state_mut().take_hold()?;
    Some((fiber.map(Object::value), held.as_secs_f64()))
}

/// `block_of(fiber)`: the Proc or Watcher run by a fiber that `fiber` or a watcher created; nil for any other fiber.
pub fn block_of(this: Obj<Scheduler>, fiber: Value) -> Option<Value> {
    if this.is_closed() {
        return None; // a fiber may have ended without telling the scheduler
    }
    let block = this.state().fibers.block(object_ref(fiber));
    block.map(Object::value)
}

/// `trace_start(limit)`: starts recording a trace of at most `limit` moments. RuntimeError if one is already being
/// recorded.
pub fn start_trace(this: Obj<Scheduler>, limit: usize) -> Result<(), Error> {
    let trace = &mut this.state_mut().trace;
    if trace.is_some() {
        return Err(runtime_error("this scheduler is already being traced"));
    }
    *trace = Some(Box::new(Trace::new(limit)));
    Ok(())
}

/// Fiber addresses, and where each fiber was created.
type Births = Vec<(usize, String)>;

/// `trace_stop`: the number of moments not kept, the fibers created as `[fiber, place]`, and the moments as `[what,
/// nanoseconds, fiber, hook, io number, events]`, where a fiber is its address.
pub fn stop_trace(ruby: &Ruby, this: Obj<Scheduler>) -> Result<(u64, Births, RArray), Error> {
    let recording = this.state_mut().trace.take();
    let Some(recording) = recording else {
        return Err(runtime_error("nothing is being traced"));
    };
    let rows = ruby.ary_new_capa(recording.moments.len());
    for (event, nanoseconds, of) in &recording.moments {
        rows.push((
            ruby.to_symbol(event.name()),
            *nanoseconds,
            of.fiber,
            ruby.to_symbol(of.hook),
            single_io_number(of.io_number),
            of.events,
        ))?;
    }
    Ok((recording.lost, recording.births, rows))
}

// --- virtual time: lib/reactor/testing.rb has the rules ------------------------------------------------------------

/// `virtual_time(settle)`: freezes the clock of sleeps and timeouts. RuntimeError if it is already frozen.
pub fn freeze_clock(this: Obj<Scheduler>, settle: Value) -> Result<(), Error> {
    let settle = convert::interval(settle)?;
    if !this.state_mut().event_loop.freeze_clock(settle) {
        let message = "this scheduler is closed or already uses virtual time";
        return Err(runtime_error(message));
    }
    Ok(())
}

/// `virtual_elapsed`: the virtual time elapsed since it began, in nanoseconds; nil in real time.
pub fn virtual_elapsed(this: Obj<Scheduler>) -> Option<u64> {
    let elapsed = this.state().event_loop.virtual_elapsed()?;
    Some(elapsed.as_nanos() as u64)
}

/// `virtual_hold(begins)`: true holds the clock, false releases it.
pub fn hold_clock(this: Obj<Scheduler>, begins: bool) {
    this.state_mut().event_loop.hold_clock(begins);
}

/// `shuffle(seed)`: from now on, the next ready fiber is picked at random.
pub fn shuffle(this: Obj<Scheduler>, seed: u64) {
    this.state_mut().shuffle(seed);
}

/// `shuffled`: a fingerprint of all choices so far; nil if the order is not shuffled.
pub fn shuffled(this: Obj<Scheduler>) -> Option<u64> {
    this.state().shuffled()
}
