//! Re-arms waits that get no event, at intervals; see the last table of [`registration`](super::registration).

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{event::Events, reactor::Reactor};

/// How long a descriptor's oldest wait stays unanswered before the first re-arm, and before each later one.
/// This repairs waits on a descriptor that was closed, reopened or replaced by dup2(2) without [`Reactor::deregister`]
/// or [`Reactor::replaced`].
const INTERVALS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1_600),
    Duration::from_millis(6_400),
    Duration::from_millis(25_600),
];

/// The most descriptors that one call arms, so that a turn with very many idle waits delays no event for long.
const MOST: usize = 256;

/// Decides when to search for idle waits.
#[derive(Debug, Default)]
pub(in crate::reactor) struct IdleRepair {
    /// No wait is due before this; None if there are no waits. May still count waits that have ended.
    pub(in crate::reactor) next: Option<Instant>,
    /// Whether a wait has begun since the last search.
    has_recent: bool,
    /// The slot at which the last search stopped and the next begins.
    start: u32,
    /// Slots with a direction assumed drained that the last search armed, until the following poll.
    pub(super) assumed: Vec<u32>,
}

impl IdleRepair {
    fn is_due_at(&mut self, due: Option<Instant>) {
        self.next = self.next.into_iter().chain(due).min();
    }
}

/// How long a wait that was re-armed `rearms` times waits for its next re-arm.
fn interval(rearms: u8) -> Duration {
    INTERVALS[usize::from(rearms).min(INTERVALS.len() - 1)]
}

impl Reactor {
    /// Called when a wait begins.
    #[inline]
    pub(super) fn begin_idle(&mut self) {
        if !self.idle_repair.has_recent {
            self.begin_first_idle();
        }
    }

    #[inline(never)] // at most once per 100 ms
    fn begin_first_idle(&mut self) {
        self.idle_repair.has_recent = true;
        let due = self.clock.checked_add(INTERVALS[0]);
        self.idle_repair.is_due_at(due);
        self.wake_sleeper();
    }

    #[cold]
    pub(super) fn rearm_idle(&mut self, events: &mut Events) -> io::Result<()> {
        self.rearm_due();
        self.deliver(events);
        if self.idle_repair.assumed.is_empty() {
            return Ok(());
        }
        let driver = self.driver.get_mut();
        let polled = driver.poll(&mut self.reported, Some(Duration::ZERO));
        if polled.is_ok() {
            self.end_poll(events);
        }
        self.idle_repair.assumed.clear();
        polled
    }

    /// Arms each descriptor whose oldest wait is due.
    fn rearm_due(&mut self) {
        let (now, slots) = (self.clock, self.registry.len());
        let start = std::mem::take(&mut self.idle_repair.start).min(slots);
        // Waits that begin in succession must not each cause a search.
        let soonest = now.checked_add(INTERVALS[0]);
        self.idle_repair.has_recent = false;
        self.idle_repair.next = None;
        let mut rearmed = 0;
        for slot in (start..slots).chain(0..start) {
            let Some((armed, rearms)) = self.idle_since(slot) else {
                continue;
            };
            // While the thread is awake for one wait, it also arms the waits due soon.
            let enough = match rearms {
                0 => interval(0),
                _ => interval(rearms) * 3 / 4,
            };
            if now.saturating_duration_since(armed) >= enough {
                if rearmed == MOST {
                    self.idle_repair.start = slot;
                    self.idle_repair.next = Some(now);
                    break;
                }
                rearmed += 1;
                self.rearm_slot(slot);
            }
            // None if this answered all waits.
            if let Some((armed, rearms)) = self.idle_since(slot) {
                let due = armed.checked_add(interval(rearms));
                self.idle_repair.is_due_at(due.max(soonest));
            }
        }
    }

    /// When the descriptor's oldest unanswered wait was last armed, and how often it was re-armed.
    fn idle_since(&self, slot: u32) -> Option<(Instant, u8)> {
        self.registry.get(slot)?.waits.idle_since()
    }

    fn rearm_slot(&mut self, slot: u32) {
        let entry = self.registry.claim(slot);
        entry.waits.rearm(self.clock);
        let is_assumed = entry.cache.is_assumed();
        if let Some(registered) = entry.cache.registered() {
            // On error all waits are answered: their own system calls will return the error.
            let renewed = self.renew(slot, registered, false);
            if is_assumed && renewed.is_ok() {
                self.idle_repair.assumed.push(slot);
            }
        }
    }
}
