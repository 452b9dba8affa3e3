//! Idle waits are looked at again; see the last table of the parent module.

use std::time::{Duration, Instant};

use crate::{
    driver::Driver,
    event::Events,
    registry::{Registry, look_queues::QUEUES},
};

/// How long a wait stays unanswered before it is armed again: one interval for each look queue. This repairs waits on a
/// descriptor that was closed, reopened or replaced by dup2(2) without [`Registry::deregister`] or [`Registry::replaced`].
const LOOKS: [Duration; QUEUES] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1_600),
    Duration::from_millis(6_400),
    Duration::from_millis(25_600),
];

/// The most waits that one call arms: a turn with very many idle waits is to delay no event for long.
const MAX_LOOKS: usize = 256;

/// For each look but the first one of a wait, there is no such look for so long. So the cost of very many idle waits is bounded:
/// their looks come later.
const PAUSE: Duration = Duration::from_millis(4);

impl Registry {
    /// When [`Registry::rearm`] next arms a wait.
    pub(crate) fn next_rearm(&self) -> Option<Instant> {
        self.next_of(self.looks.oldest_recent(&self.entries, self.sequence()))
    }

    /// As [`Registry::next_rearm`], for a thread that is about to sleep until then.
    pub(crate) fn next_rearm_of_sleep(&mut self) -> Option<Instant> {
        let sequence = self.sequence();
        let recent = self.looks.before_sleep(&mut self.entries, sequence);
        self.next_of(recent)
    }

    /// As [`Registry::next_rearm`]. `recent` is the oldest recent wait.
    fn next_of(&self, recent: Option<u32>) -> Option<Instant> {
        let queues = self.looks.occupied().filter_map(|queue| {
            let due = self.oldest(queue)?.0.checked_add(LOOKS[queue])?;
            Some(self.pause_of(queue).map_or(due, |end| end.max(due)))
        });
        let recent = recent.and_then(|number| self.entries.node(number).armed());
        let recent = recent.and_then(|armed| armed.checked_add(LOOKS[0]));
        queues.chain(recent).min()
    }

    /// When the oldest wait of a queue was last armed, and its number.
    fn oldest(&self, queue: usize) -> Option<(Instant, u32)> {
        self.looks.oldest(&self.entries, queue)
    }

    /// Until when the waits in this queue are not looked at.
    fn pause_of(&self, queue: usize) -> Option<Instant> {
        self.looks_pause_until.filter(|_| queue > 0)
    }

    fn is_pausing(&self, queue: usize, now: Instant) -> bool {
        self.pause_of(queue).is_some_and(|end| now < end)
    }

    /// Whether [`Registry::rearm`] has something to do: the common answer, no, costs one comparison.
    #[inline]
    pub(crate) fn is_look_due(&mut self, now: Instant) -> bool {
        let is_early = self.no_look_before.is_some_and(|before| now < before);
        !is_early && self.find_look(now)
    }

    /// Looks at the queues, and notes until when there is no need to do so again: no wait that begins from now on is looked at before
    /// the first interval is over.
    #[inline(never)]
    fn find_look(&mut self, now: Instant) -> bool {
        let sequence = self.sequence();
        self.looks.queue_recent(&mut self.entries, sequence);
        let next = self.next_rearm();
        let is_due = next.is_some_and(|next| next <= now);
        let of_later_waits = now.checked_add(LOOKS[0]).filter(|_| !is_due);
        self.no_look_before =
            of_later_waits.map(|later| next.map_or(later, |next| next.min(later)));
        is_due
    }

    /// Arms each wait whose look is due, and appends an event for each wait that this answers. True if it has armed a direction
    /// that is presumed drained: then the next poll is to follow at once, between [`Registry::rearm`] and
    /// [`Registry::end_looks`].
    #[cold]
    pub(crate) fn rearm(
        &mut self,
        driver: &mut dyn Driver,
        now: Instant,
        events: &mut Events,
    ) -> bool {
        let mut left = MAX_LOOKS;
        let mut later_looks = 0;
        for (queue, interval) in LOOKS.into_iter().enumerate() {
            let waited = |own: &Self| {
                let (armed, number) = own.oldest(queue)?;
                Some((now.saturating_duration_since(armed), number))
            };
            let is_none_due = waited(self).is_none_or(|(time, _)| time < interval);
            if is_none_due || self.is_pausing(queue, now) {
                continue;
            }
            // When the thread is awake for a later look, it makes those as well that are nearly due.
            let enough = match queue {
                0 => interval,
                _ => interval * 3 / 4,
            };
            while let Some((_, number)) = waited(self).filter(|(time, _)| *time >= enough) {
                if left == 0 {
                    break;
                }
                left -= 1;
                later_looks += u32::from(queue > 0);
                self.looks.move_on(&mut self.entries, queue, now);
                self.look_at(driver, self.entries.slot_of(number));
            }
        }
        if later_looks > 0 {
            self.looks_pause_until = now.checked_add(PAUSE * later_looks);
        }
        self.deliver(events);
        !self.looked_at.is_empty()
    }

    /// Is this between [`Registry::rearm`], if that has returned true, and [`Registry::end_looks`]?
    pub(crate) fn is_looking(&self) -> bool {
        !self.looked_at.is_empty()
    }

    /// Ends what [`Registry::rearm`] has begun.
    pub(crate) fn end_looks(&mut self) {
        self.looked_at.clear();
    }

    fn look_at(&mut self, driver: &mut dyn Driver, slot: u32) {
        let Some(entry) = self.entries.get(slot) else {
            return;
        };
        let is_presumed = entry.is_presumed();
        if let Some(registered) = entry.registered() {
            // On an error, all waits are answered: their own system calls will meet it.
            let looked = self.renew(driver, slot, registered);
            if is_presumed && looked.is_ok() {
                self.looked_at.push(slot);
            }
        }
    }
}
