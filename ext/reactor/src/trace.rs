//! What happened and when: a list of moments, kept while somebody traces, and read by `lib/reactor/trace.rb`.

use std::time::Instant;

use magnus::{Error, RArray, Ruby, Value, prelude::*, typed_data::Obj};

use crate::{
    fibers::{Fibers, Record, Slot},
    inspect,
    raw::Pinned,
    selector::{Selector, error_named},
};

/// What a moment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The fiber has got control.
    Control,
    /// The fiber begins to wait, and looks for somebody else to run.
    Park,
    /// Its wait has ended and its turn will come.
    Ready,
    /// It begins to wait for the end of all others, and serves them.
    Drain,
    /// Its wait is over and it goes on.
    Unpark,
    /// The fiber has ended.
    End,
    /// A look at the kernel, the timers and the inbox begins.
    Turn,
    /// It is over.
    Turned,
    /// The thread goes to sleep in the kernel.
    Sleep,
    /// It is back.
    Wake,
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Control => "control",
            What::Park => "park",
            What::Ready => "ready",
            What::Drain => "drain",
            What::Unpark => "unpark",
            What::End => "end",
            What::Turn => "turn",
            What::Turned => "turned",
            What::Sleep => "sleep",
            What::Wake => "wake",
        }
    }
}

#[derive(Clone, Copy)]
struct Moment {
    what: What,
    nanoseconds: u64,
    /// The fiber's address; 0 for the loop.
    fiber: usize,
    hook: &'static str,
    /// The hidden number of the IO object waited for, as in [`Record::watching`].
    watching: u64,
    events: u8,
}

/// A list with an end: what does not fit is counted and left out.
pub struct Trace {
    start: Instant,
    moments: Vec<Moment>,
    /// Fibers made meanwhile, and where.
    births: Births,
    limit: usize,
    lost: u64,
}

impl Trace {
    fn new(limit: usize) -> Self {
        Self {
            start: Instant::now(),
            moments: Vec::new(),
            births: Vec::new(),
            limit,
            lost: 0,
        }
    }

    /// Something happens to a fiber.
    fn fiber(&mut self, what: What, record: &Record) {
        let nanoseconds = self.now();
        self.push(Moment {
            what,
            nanoseconds,
            fiber: record.fiber.address(),
            hook: inspect::hook_name(record.hook),
            watching: record.watching,
            events: record.events,
        });
    }

    /// Something happens to the loop.
    pub fn turn(&mut self, what: What) {
        let nanoseconds = self.now();
        self.push(Moment {
            what,
            nanoseconds,
            fiber: 0,
            hook: "",
            watching: 0,
            events: 0,
        });
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn push(&mut self, moment: Moment) {
        if self.moments.len() < self.limit {
            self.moments.push(moment);
        } else {
            self.lost += 1;
        }
    }
}

/// Writes down what happens to a fiber, if somebody wants it.
pub fn note(trace: &mut Option<Box<Trace>>, fibers: &Fibers, what: What, slot: Slot) {
    if let Some(trace) = trace {
        if let Some(record) = fibers.get(slot) {
            trace.fiber(what, record);
        }
    }
}

/// A fiber is about to begin its life, and to run the first of these arguments.
pub fn birth(this: Obj<Selector>, fiber: Pinned, arguments: &[Value]) -> Result<(), Error> {
    if this.inner.borrow().trace.is_none() {
        return Ok(());
    }
    let [_, block, ..] = arguments else {
        return Ok(());
    };
    let place: Option<(String, u32)> = block.funcall("source_location", ())?;
    let place = place.map_or_else(String::new, |(path, line)| format!("{path}:{line}"));
    if let Some(trace) = &mut this.inner.borrow_mut().trace {
        if trace.births.len() < trace.limit {
            trace.births.push((fiber.address(), place));
        }
    }
    Ok(())
}

/// `trace_start(limit)`: begins a list of at most so many moments. RuntimeError if one is being kept already.
pub fn start(ruby: &Ruby, this: Obj<Selector>, limit: usize) -> Result<(), Error> {
    let mut inner = this.inner.borrow_mut();
    if inner.trace.is_some() {
        drop(inner);
        let message = "this scheduler is being traced already";
        return Err(Error::new(ruby.exception_runtime_error(), message));
    }
    inner.trace = Some(Box::new(Trace::new(limit)));
    Ok(())
}

/// Fibers, by their addresses, and where each was made.
type Births = Vec<(usize, String)>;

/// `trace_stop`: how many moments were left out, the fibers made as `[fiber, place]`, and the moments as
/// `[what, nanoseconds, fiber, hook, io number, events]`, a fiber being its address.
pub fn stop(ruby: &Ruby, this: Obj<Selector>) -> Result<(u64, Births, RArray), Error> {
    let trace = this.inner.borrow_mut().trace.take();
    let Some(trace) = trace else {
        return Err(error_named(ruby, "RuntimeError", "nothing is being traced"));
    };
    let rows = ruby.ary_new_capa(trace.moments.len());
    for moment in &trace.moments {
        let row: [Value; 6] = [
            ruby.to_symbol(moment.what.name()).as_value(),
            ruby.integer_from_u64(moment.nanoseconds).as_value(),
            ruby.integer_from_u64(moment.fiber as u64).as_value(),
            ruby.to_symbol(moment.hook).as_value(),
            ruby.integer_from_u64(inspect::identity(moment.watching))
                .as_value(),
            ruby.integer_from_u64(moment.events.into()).as_value(),
        ];
        rows.push(ruby.ary_new_from_values(&row))?;
    }
    Ok((trace.lost, trace.births, rows))
}
