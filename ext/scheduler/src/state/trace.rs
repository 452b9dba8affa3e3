//! What happened and when: a list of moments, kept while a trace is on, and read by `lib/reactor/observe/trace_writer.rb`.

use std::time::Instant;

use crate::state::{
    fiber::FiberRecord, object_ref::ObjectRef, wait::WaitHook, watchers::WatcherRecord,
};

/// An event in the life of a fiber or of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// The fiber has got control.
    Control,
    /// The fiber begins to wait, and the next ready fiber runs.
    Park,
    /// Its wait has ended and it is queued.
    Ready,
    /// It begins to wait for the end of all other fibers, and runs them.
    Drain,
    /// Its wait is over and it goes on.
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
    /// Its wait is over: with the events that its descriptor is ready for, or none if its time is up.
    Due,
    /// It was cancelled, or its IO was closed or reopened.
    Unwatch,
}

impl TraceEvent {
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub event: TraceEvent,
    pub nanoseconds: u64,
    /// The fiber's address, or the watcher's; 0 for the loop.
    pub fiber: usize,
    pub hook: &'static str,
    pub io_number: u64,
    pub events: u8,
}

/// A list with a limit: moments beyond it are counted and left out.
#[derive(Debug)]
pub struct Trace {
    start: Instant,
    limit: usize,
    pub moments: Vec<Moment>,
    /// Fibers made meanwhile, by their addresses, and where.
    pub births: Vec<(usize, String)>,
    /// How many moments were left out.
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

    /// Something happens to a fiber.
    pub fn fiber(&mut self, event: TraceEvent, record: &FiberRecord) {
        let of_wait = (record.wait.io_number(), record.wait.events());
        self.push(
            event,
            record.fiber.address(),
            record.wait.hook().name(),
            of_wait,
        );
    }

    /// Something happens to the loop.
    pub fn turn(&mut self, event: TraceEvent) {
        self.push(event, 0, "", (0, 0));
    }

    /// Something happens to a watcher.
    pub fn watcher(&mut self, event: TraceEvent, record: &WatcherRecord, events: u8) {
        let of_wait = (record.io_number, events);
        self.push(event, record.object.address(), WaitHook::Io.name(), of_wait);
    }

    /// A fiber is made.
    pub fn birth(&mut self, fiber: ObjectRef, place: String) {
        if self.births.len() < self.limit {
            self.births.push((fiber.address(), place));
        }
    }

    pub fn size(&self) -> usize {
        let places = self.births.iter().map(|(_, place)| place.capacity());
        self.moments.capacity() * size_of::<Moment>()
            + self.births.capacity() * size_of::<(usize, String)>()
            + places.sum::<usize>()
    }

    fn push(
        &mut self,
        event: TraceEvent,
        fiber: usize,
        hook: &'static str,
        (io_number, events): (u64, u8),
    ) {
        if self.moments.len() == self.limit {
            self.lost += 1;
            return;
        }
        self.moments.push(Moment {
            event,
            nanoseconds: self.start.elapsed().as_nanos() as u64,
            fiber,
            hook,
            io_number,
            events,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Trace, TraceEvent};
    use crate::state::object_ref::ObjectRef;

    #[test]
    fn what_does_not_fit_is_counted() {
        let mut trace = Trace::new(2);
        for event in [TraceEvent::Turn, TraceEvent::Turned, TraceEvent::Sleep] {
            trace.turn(event);
        }
        trace.birth(ObjectRef::new(8), "a:1".to_owned());
        let names: Vec<_> = trace.moments.iter().map(|m| m.event.name()).collect();
        assert_eq!(
            (vec!["turn".into(), "turned".into()], 1),
            (names, trace.lost)
        );
        assert_eq!(vec![(8, "a:1".to_owned())], trace.births);
    }
}
