//! Counters, a row per fiber, and a trace, for observers. Nothing here changes what fibers do.

use std::time::{Duration, Instant};

use reactor::Histogram;

use crate::state::{
    State,
    fiber::{FiberRecord, Slot},
    object_ref::ObjectRef,
    trace::{Subject, TraceEvent},
    wait::{WaitHook, WaitState},
};

/// The scheduler's counters; the core has its own.
#[derive(Debug, Default)]
pub struct Counters {
    pub fibers: u64,
    pub parks: u64,
    pub switches: u64,
    pub turns: u64,
    pub sleeps: u64,
    pub wakeups: u64,
    /// Sends that were queued for the driver.
    pub queued: u64,
    /// File reads and syncs passed to the driver.
    pub carried: u64,
}

/// What one fiber is doing.
#[derive(Clone, Copy, Debug)]
pub struct FiberRow {
    pub fiber: ObjectRef,
    pub state: &'static str,
    pub hook: WaitHook,
    pub io_number: u64,
    pub events: u8,
    pub waits_for_unblock_only: bool,
    /// The time of the poll before it, or the fiber that it has resumed, parked; `None` if either is running.
    pub waiting_since: Option<Instant>,
}

impl FiberRow {
    fn of(record: &FiberRecord) -> Self {
        let state = match record.wait.state {
            WaitState::Parked => "waiting",
            WaitState::Woken(_) => "ready",
            WaitState::Running if record.queued => "ready",
            WaitState::Running => "running",
        };
        Self {
            fiber: record.fiber,
            state,
            hook: record.wait.hook(),
            io_number: record.wait.io_number(),
            events: record.wait.events(),
            waits_for_unblock_only: record.wait.is_unblock_only(),
            waiting_since: record.wait.parked_at,
        }
    }
}

/// Measures how long fibers hold the loop, while a thread watches it.
#[derive(Debug)]
pub(super) struct HoldWatch {
    limit: Duration,
    /// When the fiber got control, at the latest.
    began: Instant,
    /// The longest hold since it was last taken.
    longest: Option<(Option<ObjectRef>, Duration)>,
}

impl HoldWatch {
    pub(super) fn holder(&self) -> Option<ObjectRef> {
        self.longest?.0
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

impl State {
    /// The counters with their names.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let counters = &self.counters;
        let mut rows = vec![
            ("fibers", counters.fibers),
            ("parks", counters.parks),
            ("switches", counters.switches),
            ("turns", counters.turns),
            ("sleeps", counters.sleeps),
            ("wakeups", counters.wakeups),
            ("queued", counters.queued),
            ("carried", counters.carried),
            ("live", self.fibers.live() as u64),
            ("parked", self.fibers.all_parked().count() as u64),
            ("ready", self.queue.len() as u64),
        ];
        rows.extend(WaitHook::ALL.map(|hook| (hook.waiting_name(), self.parked_in(hook))));
        rows.push(("watchers", self.watchers.records().len() as u64));
        if let Some(reactor) = self.event_loop.reactor.as_ref() {
            rows.push(("timers", reactor.timers() as u64));
            let now = Instant::now();
            let asleep = reactor.times().asleep(now);
            let awake = reactor.times().age(now).saturating_sub(asleep);
            rows.push(("awake_ns", nanoseconds(awake)));
            rows.push(("asleep_ns", nanoseconds(asleep)));
            rows.extend(reactor.statistics().rows());
            rows.extend(reactor.pool().statistics().rows());
        }
        rows
    }

    /// How many fibers are parked in this hook.
    pub(super) fn parked_in(&self, hook: WaitHook) -> u64 {
        let parked = self.fibers.all_parked();
        parked.filter(|record| record.wait.hook() == hook).count() as u64
    }

    /// Turn lengths, timer lateness, and how long pool jobs were queued. Empty once closed.
    pub fn histograms(&self) -> Vec<(&'static str, Histogram)> {
        let Some(reactor) = self.event_loop.reactor.as_ref() else {
            return Vec::new();
        };
        vec![
            ("turn", reactor.times().turns().clone()),
            ("lateness", reactor.times().lateness().clone()),
            ("queue", reactor.pool().queue_times()),
        ]
    }

    /// A row for each fiber that must not be collected.
    pub fn fiber_rows(&self) -> Vec<FiberRow> {
        let kept = self.fibers.kept_records(self.current.running);
        let row = |record| FiberRow {
            waiting_since: self.fibers.waiting_since(record),
            ..FiberRow::of(record)
        };
        kept.map(row).collect()
    }

    /// A row for each of at most `limit` fibers, longest waits first.
    pub fn longest_waits(&self, limit: usize) -> Vec<FiberRow> {
        let kept = self.fibers.kept_records(self.current.running);
        let waiting = kept.filter(|record| record.wait.parked_at.is_some());
        let mut records: Vec<_> = waiting.collect();
        if records.len() > limit {
            records.select_nth_unstable_by_key(limit, |record| record.wait.parked_at);
            records.truncate(limit);
        }
        records.sort_unstable_by_key(|record| record.wait.parked_at);
        let rows = records.into_iter().map(FiberRow::of);
        rows.filter(|row| row.waiting_since.is_some()).collect()
    }

    /// The hooks in which fibers are parked, without duplicates. A watcher counts as a fiber waiting for readiness.
    pub fn wait_hooks(&self) -> impl Iterator<Item = WaitHook> + '_ {
        WaitHook::ALL.into_iter().filter(move |hook| {
            let is_watched = *hook == WaitHook::Io && !self.watchers.is_empty();
            is_watched || self.parked_in(*hook) > 0
        })
    }

    /// A number that changes whenever another fiber gets control; `None` while the thread sleeps in the kernel, and while
    /// no fiber could be held up.
    pub fn progress_count(&self) -> Option<u64> {
        let is_idle = self.event_loop.is_sleeping || self.fibers.live() == 0;
        let counters = &self.counters;
        (!is_idle).then(|| counters.fibers + counters.parks + counters.switches + counters.turns)
    }

    /// The fiber to which the scheduler last switched; `None` if the scheduler does not know the running fiber.
    pub fn running_fiber(&self) -> Option<ObjectRef> {
        let running = self.current.running?;
        Some(self.fibers.get(running)?.fiber)
    }

    // --- holds ---------------------------------------------------------------------------------------------------

    /// From now on, records the longest time that a fiber holds the loop for at least `limit`.
    pub fn watch_holds(&mut self, limit: Duration) {
        let (began, longest) = (Instant::now(), None);
        self.holds = Some(HoldWatch {
            limit,
            began,
            longest,
        });
    }

    /// The fiber that has held the loop for longest since the last call, and for how long, if that was too long. The fiber is `None`
    /// if the scheduler does not know it.
    pub fn take_hold(&mut self) -> Option<(Option<ObjectRef>, Duration)> {
        self.holds.as_mut()?.longest.take()
    }

    /// The fiber gives up control by a poll, starts another, has first parked, or ends. Of the few that may have run since the last
    /// poll, it is the one that has held the loop: the clock is read after each of the first ones, and a long turn is followed by a
    /// poll.
    pub fn end_hold(&mut self, fiber: Option<ObjectRef>) {
        if let Some(watch) = &mut self.holds {
            let began = std::mem::replace(&mut watch.began, Instant::now());
            let held = watch.began - began;
            let longest = watch.longest.map_or(watch.limit, |(_, longest)| longest);
            if held >= longest {
                watch.longest = Some((fiber, held));
            }
        }
    }

    /// A fiber gets control, or is no longer alone.
    pub(super) fn begin_hold(&mut self) {
        if let Some(watch) = &mut self.holds {
            watch.began = Instant::now();
        }
    }

    // --- tracing -------------------------------------------------------------------------------------------------

    /// Records a fiber event, if a trace is on.
    pub(super) fn trace_event(&mut self, event: TraceEvent, slot: Slot) {
        if self.trace.is_some() {
            self.record_event(event, Some(slot));
        }
    }

    /// Records a loop event, if a trace is on.
    pub(super) fn trace_turn(&mut self, event: TraceEvent) {
        if self.trace.is_some() {
            self.record_event(event, None);
        }
    }

    #[cold]
    fn record_event(&mut self, event: TraceEvent, slot: Option<Slot>) {
        let Some(trace) = &mut self.trace else { return };
        let record = slot.map(|slot| &self.fibers[slot]);
        let subject = record.map(|FiberRecord { fiber, wait, .. }| Subject {
            fiber: fiber.address(),
            hook: wait.hook().name(),
            io_number: wait.io_number(),
            events: wait.events(),
        });
        trace.push(event, subject.unwrap_or_default());
    }
}
