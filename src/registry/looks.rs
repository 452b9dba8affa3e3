//! Idle waits are looked at again; see the last table of the parent module.

use std::time::{Duration, Instant};

use crate::{
    driver::Driver,
    event::Events,
    registry::{
        Registry,
        waiters::{QUEUES, Waiters},
    },
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

impl Registry {
    /// When [`Registry::rearm`] next arms a wait.
    pub(crate) fn next_rearm(&self) -> Option<Instant> {
        let queues = self.waiters.look_queues();
        queues
            .filter_map(|queue| self.waiters.oldest(queue)?.0.checked_add(LOOKS[queue]))
            .min()
    }

    /// Whether [`Registry::rearm`] has something to do: the common answer, no, costs one comparison for each queue in use.
    #[inline]
    pub(crate) fn is_look_due(&self, now: Instant) -> bool {
        let mut queues = self.waiters.look_queues();
        queues.any(|queue| {
            let oldest = self.waiters.oldest(queue);
            oldest.is_some_and(|(armed, _)| now.saturating_duration_since(armed) >= LOOKS[queue])
        })
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
        for (queue, interval) in LOOKS.into_iter().enumerate() {
            let waited = |waiters: &Waiters| {
                let (armed, slot) = waiters.oldest(queue)?;
                Some((now.saturating_duration_since(armed), slot))
            };
            if waited(&self.waiters).is_none_or(|(time, _)| time < interval) {
                continue;
            }
            // When the thread is awake for a later look, it makes those as well that are nearly due.
            let enough = match queue {
                0 => interval,
                _ => interval * 3 / 4,
            };
            while let Some((_, slot)) = waited(&self.waiters).filter(|(time, _)| *time >= enough) {
                if left == 0 {
                    break;
                }
                left -= 1;
                self.waiters.move_on(queue, now);
                self.look_at(driver, slot);
            }
        }
        self.deliver(events);
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
