//! A log of what happened and when, kept while a trace is on and read by `lib/reactor/observe/trace_writer.rb`.

use std::time::Instant;

use crate::state::object_ref::ObjectRef;

/// An event of a fiber or of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// The fiber got control.
    Control,
    /// The fiber begins to wait; the next ready fiber runs.
    Park,
    /// Its wait has ended and it is queued.
    Ready,
    /// It begins to wait for all other fibers to end, and runs them.
    Drain,
    /// Its wait has ended and it continues.
    Unpark,
    /// The fiber has ended.
    End,
    /// A poll begins.
    Turn,
    /// A poll has ended.
    Turned,
    /// The thread goes to sleep in the kernel.
    Sleep,
    /// The thread is awake again.
    Wake,
    /// A watcher begins to wait.
    Watch,
    /// Its wait ended. Holds the events for which its descriptor is ready, or none if its time elapsed.
    Due,
    /// It was cancelled, or its IO was closed or reopened.
    Unwatch,
}

impl TraceEvent {
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// What an event is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Subject {
    /// The address of the fiber or watcher; 0 for the loop.
    pub fiber: usize,
    pub hook: &'static str,
    pub io_number: u64,
    pub events: u8,
}

/// A bounded list: moments beyond the limit are counted but not kept.
#[derive(Debug)]
pub struct Trace {
    start: Instant,
    limit: usize,
    /// Each with its time in nanoseconds since the start.
    pub moments: Vec<(TraceEvent, u64, Subject)>,
    /// Fibers created during the trace: their addresses, and where.
    pub births: Vec<(usize, String)>,
    /// The number of moments not kept.
    pub lost: u64,
}

impl Trace {
    pub fn new(limit: usize) -> Self {
        Self {
            start: Instant::now(),
            limit,
            moments: Vec::new(),
            births: Vec::new(),
            lost: 0,
        }
    }

    /// Records the creation of a fiber.
    pub fn birth(&mut self, fiber: ObjectRef, place: String) {
        if self.births.len() < self.limit {
            self.births.push((fiber.address(), place));
        }
    }

    /// Records an event of a fiber, a watcher or the loop.
    pub fn push(&mut self, event: TraceEvent, of: Subject) {
        if self.moments.len() == self.limit {
            self.lost += 1;
            return;
        }
        let nanoseconds = self.start.elapsed().as_nanos() as u64;
        self.moments.push((event, nanoseconds, of));
    }
}

#[cfg(test)]
mod tests {
    use super::{Subject, Trace, TraceEvent};
    use crate::state::object_ref::ObjectRef;

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut trace = Trace::new(2);
        for event in [TraceEvent::Turn, TraceEvent::Turned, TraceEvent::Sleep] {
            trace.push(event, Subject::default());
        }
        trace.birth(ObjectRef::new(8), "a:1".to_owned());
        let names: Vec<_> = trace.moments.iter().map(|moment| moment.0.name()).collect();
        assert_eq!(
            (vec!["turn".into(), "turned".into()], 1),
            (names, trace.lost)
        );
        assert_eq!(vec![(8, "a:1".to_owned())], trace.births);
    }
}
