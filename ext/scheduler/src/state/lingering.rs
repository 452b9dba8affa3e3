//! Lingering: a wait for the next request of a connection, which ends by itself after a while if none comes.
//!
//! Nearly every such wait ends by its descriptor, and there is one for each request of a busy connection. So it has no timer of its
//! own, which would be set and taken back each time. One timer for all of them looks which are over. Each may last up to an eighth
//! of its time longer, and the look comes when the first of them has lasted so long.

use std::time::Duration;

use reactor::{Deadline, TimerId, Token};

use crate::state::{
    State,
    fiber::Slot,
    token_mark::LINGERING,
    trace::TraceEvent,
    wait::WakeCause,
    wait_registration::{Registered, Watch},
};

#[derive(Clone, Copy, Debug)]
struct LingeringWait {
    token: Token,
    began: Deadline,
    limit: Duration,
}

impl LingeringWait {
    fn is_over(&self, now: Deadline) -> bool {
        Deadline::after_from(self.began.instant(), self.limit) <= now
    }

    fn latest(&self) -> Deadline {
        let longest = self.limit.saturating_add(self.limit / 8);
        Deadline::after_from(self.began.instant(), longest)
    }
}

#[derive(Debug, Default)]
pub(super) struct Lingering {
    /// By the fiber's slot: its last such wait, which may have ended since.
    waits: Vec<Option<LingeringWait>>,
    /// The timer, and the wait whose latest end it is for.
    timer: Option<(TimerId, LingeringWait)>,
}

impl Lingering {
    fn insert(&mut self, slot: Slot, wait: LingeringWait) {
        let index = slot as usize;
        if index >= self.waits.len() {
            self.waits.resize(index + 1, None);
        }
        self.waits[index] = Some(wait);
    }

    pub(super) fn size(&self) -> usize {
        self.waits.capacity() * size_of::<Option<LingeringWait>>()
    }
}

impl State {
    /// Begins a wait until the descriptor is ready, or until about this time is over: an eighth later at most. `None` if the kernel
    /// does not poll the descriptor. It ends by [`State::end_readiness`].
    ///
    /// # Errors
    ///
    /// As [`reactor::Reactor::wait`].
    pub fn begin_lingering(
        &mut self,
        slot: Slot,
        watch: Watch,
        limit: Duration,
    ) -> std::io::Result<Option<Registered>> {
        let registered = self.begin_readiness(slot, watch, None)?;
        let began = match limit {
            Duration::MAX => None,
            _ => self.event_loop.rough_deadline(Duration::ZERO),
        };
        let parked = self.fibers.parked(slot).filter(|_| registered.is_some());
        if let (Some((token, _)), Some(began)) = (parked, began) {
            let wait = LingeringWait {
                token,
                began,
                limit,
            };
            self.lingering.insert(slot, wait);
            self.look_at_lingering(wait);
        }
        Ok(registered)
    }

    /// The timer ends when this wait may last no longer, or before.
    fn look_at_lingering(&mut self, wait: LingeringWait) {
        // Waits begin one after the other, so one with no shorter limit ends no earlier.
        let sooner = |set: &LingeringWait| wait.limit < set.limit && wait.latest() < set.latest();
        match self.lingering.timer {
            Some((_, set)) if !sooner(&set) => return,
            Some((timer, _)) => self.event_loop.cancel_timer(Some(timer)),
            None => {}
        }
        let timer = self.event_loop.timer(Some(wait.latest()), LINGERING);
        self.lingering.timer = timer.map(|timer| (timer, wait));
    }

    /// The time of the timer has come: ends the waits that are over.
    #[cold]
    #[inline(never)]
    pub(super) fn end_lingering(&mut self) {
        self.lingering.timer = None;
        let Some(now) = self.event_loop.rough_deadline(Duration::ZERO) else {
            return;
        };
        let mut next: Option<LingeringWait> = None;
        for index in 0..self.lingering.waits.len() {
            let Some(wait) = self.lingering.waits[index] else {
                continue;
            };
            let parked = self.fibers.parked(wait.token.index());
            let goes_on = parked.is_some_and(|(token, _)| token == wait.token);
            if goes_on && !wait.is_over(now) {
                next = next
                    .filter(|next| next.latest() <= wait.latest())
                    .or(Some(wait));
                continue;
            }
            self.lingering.waits[index] = None;
            if self.fibers.wake(wait.token, WakeCause::Elapsed) {
                self.queue.push_expired(wait.token);
                self.trace_event(TraceEvent::Ready, wait.token.index());
            }
        }
        if let Some(next) = next {
            self.look_at_lingering(next);
        }
    }
}
