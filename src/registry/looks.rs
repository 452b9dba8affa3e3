//! Idle waits are armed again at intervals; see the last table of the parent module.

use std::time::{Duration, Instant};

use crate::{driver::Driver, event::Events, registry::Registry};

/// How long a descriptor's oldest wait stays unanswered before the descriptor is armed again, for the first time and later. This
/// repairs waits on a descriptor that was closed, reopened or replaced by dup2(2) without [`Registry::deregister`] or
/// [`Registry::replaced`].
const INTERVALS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1_600),
    Duration::from_millis(6_400),
    Duration::from_millis(25_600),
];

/// The most descriptors that one call arms: a turn with very many idle waits is to delay no event for long.
const MAX_LOOKS: usize = 256;

/// For each look but a first one, there is no such look for this long. It bounds the cost of very many idle waits: their looks
/// come later.
const PAUSE: Duration = Duration::from_millis(4);

/// When idle waits are looked for.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// No wait is due before; None if there is none. Waits that have ended meanwhile are still counted.
    next: Option<Instant>,
    /// Has a wait begun since the records were last searched?
    has_recent: bool,
    /// There is no look but a first one before.
    pause_until: Option<Instant>,
    /// The slot at which the next search begins: the last one has stopped there.
    start: u32,
    /// Slots with a presumed direction that the last [`Registry::rearm`] has armed.
    pub(super) presumed: Vec<u32>,
}

impl Looks {
    /// A wait begins.
    #[inline(always)] // in each wait
    pub(super) fn begin(&mut self, now: Instant) {
        if !self.has_recent {
            self.begin_first(now);
        }
    }

    #[cold] // once in 100 ms
    #[inline(never)]
    fn begin_first(&mut self, now: Instant) {
        self.has_recent = true;
        self.next = self
            .next
            .into_iter()
            .chain(now.checked_add(INTERVALS[0]))
            .min();
    }
}

/// How long a wait lasts from one look to the next, after this many looks.
fn interval(looks: u8) -> Duration {
    INTERVALS[usize::from(looks).min(INTERVALS.len() - 1)]
}

impl Registry {
    /// When [`Registry::rearm`] next searches for idle waits.
    #[inline]
    pub(crate) fn next_rearm(&self) -> Option<Instant> {
        self.looks.next
    }

    /// Arms each descriptor whose look is due, and appends an event for each wait that this answers. True if it has armed a
    /// direction that is presumed drained: then the next poll is to follow at once, between [`Registry::rearm`] and
    /// [`Registry::end_looks`].
    #[cold]
    pub(crate) fn rearm(
        &mut self,
        driver: &mut dyn Driver,
        now: Instant,
        events: &mut Events,
    ) -> bool {
        let (start, count) = (self.looks.start, self.entries.end());
        let pause = self.looks.pause_until.filter(|end| now < *end);
        let (mut looks, mut later_looks) = (0, 0);
        // Waits that begin one after the other do not each cause a search.
        let soonest = now.checked_add(INTERVALS[0]);
        self.looks.has_recent = false;
        self.looks.next = None;
        for slot in (start..count).chain(0..start.min(count)) {
            let Some((armed, number)) = self.entries.armed(slot) else {
                continue;
            };
            // When the thread is awake for another look, it makes a later one early.
            let enough = match number {
                0 => interval(0),
                _ => interval(number) * 3 / 4,
            };
            let pause = pause.filter(|_| number > 0);
            if pause.is_none() && now.saturating_duration_since(armed) >= enough {
                if looks == MAX_LOOKS {
                    self.looks.start = slot;
                    self.looks.next = Some(now);
                    break;
                }
                looks += 1;
                later_looks += u32::from(number > 0);
                self.look_at(driver, slot, now);
            }
            // None if the look has answered all waits.
            if let Some((armed, number)) = self.entries.armed(slot) {
                let due = armed.checked_add(interval(number)).max(pause).max(soonest);
                self.looks.next = self.looks.next.into_iter().chain(due).min();
            }
        }
        if later_looks > 0 {
            self.looks.pause_until = now.checked_add(PAUSE * later_looks);
        }
        self.deliver(events);
        !self.looks.presumed.is_empty()
    }

    /// Is this between [`Registry::rearm`], if that has returned true, and [`Registry::end_looks`]?
    pub(crate) fn is_looking(&self) -> bool {
        !self.looks.presumed.is_empty()
    }

    /// Ends what [`Registry::rearm`] has begun.
    pub(crate) fn end_looks(&mut self) {
        self.looks.presumed.clear();
    }

    fn look_at(&mut self, driver: &mut dyn Driver, slot: u32, now: Instant) {
        self.entries.arm(slot, now);
        let Some(entry) = self.entries.get(slot) else {
            return;
        };
        let is_presumed = entry.is_presumed();
        if let Some(registered) = entry.registered() {
            // On an error, all waits are answered: their own system calls will meet it.
            let looked = self.renew(driver, slot, registered);
            if is_presumed && looked.is_ok() {
                self.looks.presumed.push(slot);
            }
        }
    }
}
