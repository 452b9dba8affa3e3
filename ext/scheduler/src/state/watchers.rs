//! Watchers (`on_ready`): waits for a descriptor without a fiber. Each starts a new fiber when it ends.
//!
//! | state   | what happens                                | state after | besides |
//! |---------|---------------------------------------------|-------------|---------|
//! | -       | it begins                                   | waiting     | a number of its own |
//! | waiting | its descriptor is ready, or its time elapses | due        | queued in order with the fibers |
//! | waiting | it is cancelled, or its IO object is closed | -           | its number becomes stale |
//! | waiting | the IO object of a server's is closed       | due         | as above |
//! | due     | its turn comes                              | -           | its fiber starts; its number becomes stale |
//! | due     | it is cancelled                             | -           | its number becomes stale, so its queue entry is dropped |
//! | -       | an event or a turn comes for a stale number | -           | dropped |

use std::time::Duration;

use reactor::{Descriptor, Event, Interest, Ready, TimerId, Token};

use crate::state::{
    State,
    fiber::Slot,
    object_ref::ObjectRef,
    slab::Slab,
    token_mark::WATCHER,
    trace::{Subject, TraceEvent},
    wait::WaitHook,
    wait_registration::{ReadinessWait, Watch, ready_if_unpolled},
};

/// One watcher.
#[derive(Clone, Copy, Debug)]
pub struct WatcherRecord {
    pub object: ObjectRef,
    /// The watched IO, or object with `to_io`. The watcher object does not refer to it, because each minor collection would
    /// mark an old object that refers to an IO.
    pub io: ObjectRef,
    pub io_number: u64,
    pub interest: Interest,
    /// Draining does not wait for it.
    pub is_transient: bool,
    pub progress: WatcherProgress,
    pub timer: Option<TimerId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatcherProgress {
    Waiting(Option<ReadinessWait>),
    /// Holds the events for which its descriptor is ready; `None` if its time elapsed.
    Due(Option<Interest>),
}

/// The watchers that have not ended.
#[derive(Debug, Default)]
pub struct Watchers {
    records: Slab<WatcherRecord, WATCHER>,
    /// How many are not transient.
    lasting: usize,
}

impl Watchers {
    pub fn insert(&mut self, record: WatcherRecord) -> Token {
        self.lasting += usize::from(!record.is_transient);
        self.records.insert(record)
    }

    pub fn records(&self) -> &Slab<WatcherRecord, WATCHER> {
        &self.records
    }

    pub fn get_mut(&mut self, token: Token) -> Option<&mut WatcherRecord> {
        self.records.get_mut(token)
    }

    /// Ends a watcher; its token becomes stale.
    pub fn remove(&mut self, token: Token) -> Option<WatcherRecord> {
        let record = self.records.remove(token)?;
        self.lasting -= usize::from(!record.is_transient);
        Some(record)
    }

    /// Whether its fiber is to start.
    pub fn is_due(&self, token: Token) -> bool {
        let record = self.records.get(token);
        record.is_some_and(|record| matches!(record.progress, WatcherProgress::Due(_)))
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many are not transient.
    pub fn lasting(&self) -> usize {
        self.lasting
    }
}

/// A watcher to begin.
#[derive(Clone, Copy, Debug)]
pub struct NewWatcher {
    pub object: ObjectRef,
    pub io: ObjectRef,
    pub watch: Watch,
    pub limit: Option<Duration>,
    /// Draining does not wait for it.
    pub is_transient: bool,
    /// The IO object's buffer holds bytes, so it is ready without asking the kernel.
    pub is_buffered: bool,
}

/// A watcher whose fiber is to start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueWatcher {
    pub object: ObjectRef,
    pub io: ObjectRef,
    /// The events for which the descriptor is ready; `None` if its time elapsed.
    pub ready: Option<Interest>,
}

/// A watcher that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BegunWatcher {
    pub token: Token,
    /// Whether the kernel polls the descriptor or a worker waits for it. Otherwise it is always ready, except for urgent
    /// data.
    pub is_polled: bool,
}

impl State {
    /// Begins a watcher. The caller issues the write barriers.
    ///
    /// # Errors
    ///
    /// See [`reactor::Reactor::wait`].
    pub fn begin_watcher(&mut self, new: NewWatcher) -> std::io::Result<BegunWatcher> {
        let interest = new.watch.interest;
        let token = self.watchers.insert(WatcherRecord {
            object: new.object,
            io: new.io,
            io_number: new.watch.owner_id.0,
            interest,
            is_transient: new.is_transient,
            progress: WatcherProgress::Waiting(None),
            timer: None,
        });
        let registered = match new.is_buffered {
            true => Ok(None),
            false => self.register(new.watch, token),
        };
        let wait = registered.inspect_err(|_| _ = self.watchers.remove(token))?;
        self.trace_watcher(TraceEvent::Watch, token, interest.bits());
        match wait {
            Some(_) => self.begin_waiting(token, wait, new.limit),
            None if new.is_buffered => self.make_due(token, Some(Interest::READABLE)),
            None => self.make_due(token, Some(ready_if_unpolled(interest))),
        }
        let is_polled = wait.is_some_and(|wait| wait != ReadinessWait::Unpolled);
        Ok(BegunWatcher {
            token,
            is_polled: is_polled || new.is_buffered,
        })
    }

    fn begin_waiting(
        &mut self,
        token: Token,
        wait: Option<ReadinessWait>,
        limit: Option<Duration>,
    ) {
        let deadline = self.event_loop.deadline(limit);
        let timer = self.event_loop.timer(deadline, token);
        if let Some(record) = self.watchers.get_mut(token) {
            record.progress = WatcherProgress::Waiting(wait);
            record.timer = timer;
        }
    }

    /// Makes a watcher due: its fiber starts after the fibers that are ready now.
    fn make_due(&mut self, token: Token, ready: Option<Interest>) {
        let events = ready.map_or(0, Interest::bits);
        self.trace_watcher(TraceEvent::Due, token, events);
        if let Some(record) = self.watchers.get_mut(token) {
            record.progress = WatcherProgress::Due(ready);
            match ready {
                Some(_) => self.queue.push(token),
                None => self.queue.push_elapsed(token),
            }
        }
    }

    /// Handles an event for a watcher, unless the watcher no longer waits.
    #[cold]
    pub(super) fn on_watcher_event(&mut self, event: Event) {
        let token = event.token;
        let Some(record) = self.watchers.records().get(token).copied() else {
            return;
        };
        if matches!(record.progress, WatcherProgress::Due(_)) {
            return;
        }
        let is_elapsed = event.ready.contains(Ready::ELAPSED);
        let answer = (!is_elapsed).then_some(event.ready);
        let ready = self.end_registrations(token, &record, answer);
        let events = ready.answers(record.interest);
        self.make_due(token, events.or((!is_elapsed).then_some(record.interest)));
    }

    /// Undoes the registrations of a watcher; see [`State::unregister`].
    fn end_registrations(
        &mut self,
        token: Token,
        record: &WatcherRecord,
        answer: Option<Ready>,
    ) -> Ready {
        self.event_loop.cancel_timer(record.timer);
        match record.progress {
            WatcherProgress::Waiting(Some(wait)) => self.unregister(token, wait, answer),
            _ => Ready::EMPTY,
        }
    }

    /// Takes a watcher whose fiber is to start now.
    pub fn take_due_watcher(&mut self, token: Token) -> Option<DueWatcher> {
        let record = self.watchers.records().get(token)?;
        let WatcherProgress::Due(ready) = record.progress else {
            return None;
        };
        let record = self.watchers.remove(token)?;
        Some(DueWatcher {
            object: record.object,
            io: record.io,
            ready,
        })
    }

    /// Called when a watcher's fiber is about to get control from `from`. Returns its slot; the caller issues the write
    /// barrier.
    pub fn add_fiber_of_watcher(
        &mut self,
        from: Slot,
        fiber: ObjectRef,
        watcher: ObjectRef,
    ) -> Slot {
        self.queue_if_over(from);
        let slot = self.add_fiber(fiber, watcher);
        self.before_switch(slot);
        self.trace_event(TraceEvent::Control, slot);
        slot
    }

    // --- their end -----------------------------------------------------------------------------------------------

    /// Ends a watcher without starting a fiber; `None` if its fiber has started or it has already ended.
    pub fn end_watcher(&mut self, token: Token) -> Option<ObjectRef> {
        self.trace_watcher(TraceEvent::Unwatch, token, 0);
        let record = self.watchers.remove(token)?;
        self.end_registrations(token, &record, None);
        Some(record.object)
    }

    /// Makes a watcher due whose IO object is being closed, unless it is due already.
    pub fn close_watcher(&mut self, token: Token) {
        let record = self.watchers.records().get(token).copied();
        let waits = |record: &WatcherRecord| matches!(record.progress, WatcherProgress::Waiting(_));
        if let Some(record) = record.filter(waits) {
            self.end_registrations(token, &record, None);
            self.make_due(token, Some(record.interest));
        }
    }

    /// Records a watcher event, if a trace is on.
    fn trace_watcher(&mut self, event: TraceEvent, token: Token, events: u8) {
        if let (Some(trace), Some(record)) = (&mut self.trace, self.watchers.records().get(token)) {
            let subject = Subject {
                fiber: record.object.address(),
                hook: WaitHook::Io.name(),
                io_number: record.io_number,
                events,
            };
            trace.push(event, subject);
        }
    }

    /// The watchers that wait for this IO object.
    pub fn watchers_of(&self, descriptor: Descriptor, io_number: u64) -> Vec<Token> {
        if self.watchers.is_empty() {
            return Vec::new();
        }
        let mut tokens = self.waiters(descriptor);
        tokens.retain(|token| {
            let record = self.watchers.records().get(*token);
            record.is_some_and(|record| record.io_number == io_number)
        });
        tokens
    }

    /// The watchers, waiting or due, that are meant. Takes time proportional to the number of all watchers.
    pub fn watchers_that(&self, are_meant: impl Fn(&WatcherRecord) -> bool) -> Vec<Token> {
        let all = self.watchers.records().iter();
        let meant = all.filter(|(_, record)| are_meant(record));
        meant.map(|(token, _)| token).collect()
    }

    // --- observing -----------------------------------------------------------------------------------------------

    /// Whether every fiber created by `Fiber.schedule`, and every watcher that is not transient, has ended.
    pub fn is_drained(&self) -> bool {
        self.fibers.live() == 0 && self.watchers.lasting() == 0
    }

    /// If all fibers are being cancelled, and those alive when that began have ended: why.
    pub fn cancels_again(&self) -> Option<ObjectRef> {
        self.current.cancels_again()
    }

    /// The IO object that a watcher watches; `None` if it has ended.
    pub fn watched(&self, token: Token) -> Option<ObjectRef> {
        self.watchers.records().get(token).map(|record| record.io)
    }

    /// The watcher with this token, unless it has ended.
    pub fn watcher(&self, token: Token) -> Option<ObjectRef> {
        self.watchers
            .records()
            .get(token)
            .map(|record| record.object)
    }

    /// Every watcher.
    pub fn watchers(&self) -> impl Iterator<Item = ObjectRef> + '_ {
        self.watchers.records().values().map(|record| record.object)
    }

    pub fn watcher_count(&self) -> usize {
        self.watchers.records().len()
    }
}

#[cfg(test)]
mod tests {
    use reactor::Interest;

    use super::{WatcherProgress, WatcherRecord, Watchers};
    use crate::state::object_ref::ObjectRef;

    fn record(number: usize, is_transient: bool) -> WatcherRecord {
        WatcherRecord {
            object: ObjectRef::new(8 * number),
            io: ObjectRef::new(0x9000 + 8 * number),
            io_number: number as u64,
            interest: Interest::READABLE,
            is_transient,
            progress: WatcherProgress::Waiting(None),
            timer: None,
        }
    }

    #[test]
    fn transient_watchers_are_counted_apart() {
        let mut watchers = Watchers::default();
        let lasting = watchers.insert(record(1, false));
        let transient = watchers.insert(record(2, true));
        assert_eq!((2, 1), (watchers.records().len(), watchers.lasting()));
        watchers.remove(lasting);
        assert_eq!((1, 0), (watchers.records().len(), watchers.lasting()));
        watchers.remove(transient);
        assert!(watchers.is_empty());
    }

    /// Part of the 700 bytes that an idle connection may take: `docs/performance.md` has the sum.
    #[test]
    fn a_watcher_takes_few_bytes() {
        assert!(size_of::<Option<WatcherRecord>>() <= 64);
    }
}
