//! Lingering: a wait for the next request of a connection, which ends by itself after a while if none comes.
//!
//! Nearly every such wait ends by its descriptor, and there is one for each request of a busy connection. So it has no timer of its
//! own, which would be set and taken back each time. One timer for all of them looks which are over, at intervals of an eighth
//! of the time.

use std::time::Duration;

use reactor::{Deadline, TimerId, Token};

use crate::state::{
    State,
    fiber::Slot,
    trace::TraceEvent,
    wait::WakeCause,
    wait_registration::{Registered, Watch},
};

/// The token of the timer. No watcher and no timeout has it.
pub(super) const LOOK: Token = Token::new(u32::MAX, u32::MAX);

#[derive(Debug, Default)]
pub(super) struct Lingering {
    /// By the fiber's slot: its last such wait, which may have ended since.
    waits: Vec<Option<(Token, Deadline)>>,
    timer: Option<TimerId>,
    interval: Duration,
}

impl Lingering {
    fn insert(&mut self, slot: Slot, token: Token, deadline: Deadline) {
        let index = slot as usize;
        if index >= self.waits.len() {
            self.waits.resize(index + 1, None);
        }
        self.waits[index] = Some((token, deadline));
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
        if let (Some(_), Some((token, _))) = (registered, self.fibers.parked(slot)) {
            let deadline = self.event_loop.rough_deadline(limit);
            if let Some(deadline) = deadline {
                self.lingering.insert(slot, token, deadline);
                self.lingering.interval = limit / 8;
            }
            if self.lingering.timer.is_none() {
                self.lingering.timer = self.event_loop.timer(deadline, LOOK);
            }
        }
        Ok(registered)
    }

    /// The time of the timer has come: ends the waits that are over.
    #[cold]
    #[inline(never)]
    pub(super) fn end_lingering(&mut self) {
        self.lingering.timer = None;
        let Some(now) = self.event_loop.rough_deadline(Duration::ZERO) else {
            return;
        };
        let mut next: Option<Deadline> = None;
        for index in 0..self.lingering.waits.len() {
            let Some((token, deadline)) = self.lingering.waits[index] else {
                continue;
            };
            let goes_on = self.fibers.parked(token.index()).map(|(token, _)| token) == Some(token);
            if goes_on && deadline > now {
                next = Some(next.map_or(deadline, |next| next.min(deadline)));
                continue;
            }
            self.lingering.waits[index] = None;
            if self.fibers.wake(token, WakeCause::Elapsed) {
                self.queue.push_expired(token);
                self.trace_event(TraceEvent::Ready, token.index());
            }
        }
        let earliest = self.event_loop.rough_deadline(self.lingering.interval);
        let next = next.map(|next| earliest.map_or(next, |earliest| next.max(earliest)));
        self.lingering.timer = self.event_loop.timer(next, LOOK);
    }
}
