//! A turn's half that never blocks: which fiber runs next, and which ones a poll wakes.

use std::time::Duration;

use reactor::{Handle, Ready, Sleep, Token};

use crate::state::{
    State, fiber::Slot, object_ref::ObjectRef, ready_queue::Next, time_slice::TimeSlice,
    token_mark::is_of_watcher, trace::TraceEvent, wait::WakeCause,
};

impl State {
    /// Takes the next fiber of the ready queue, unless a poll is due.
    pub fn next_ready(&mut self) -> Next {
        if self.queue.is_empty() {
            return Next::Nothing;
        }
        if (self.queue.is_poll_due() || self.is_last_poll_too_old()) && !self.chooses_next() {
            return Next::Poll;
        }
        let Some(token) = self.queue.pop() else {
            return Next::Nothing;
        };
        match self.fibers.take_queued(token) {
            Some(fiber) => {
                self.queue.on_resume();
                Next::Fiber(token.index(), fiber)
            }
            None => self.next_after(token),
        }
    }

    /// As [`State::next_ready`], if the entry that was taken is no fiber that can run: it is a watcher, or stale. One loop for both takes
    /// 27 instructions more at each yield.
    fn next_after(&mut self, mut token: Token) -> Next {
        loop {
            if self.watchers.is_due(token) {
                self.queue.on_resume();
                return Next::Watcher(token);
            }
            let Some(next) = self.queue.pop() else {
                return Next::Nothing;
            };
            token = next;
            if let Some(fiber) = self.fibers.take_queued(token) {
                self.queue.on_resume();
                return Next::Fiber(token.index(), fiber);
            }
        }
    }

    /// Whether the next fiber was chosen by chance: if the order is shuffled, and a poll has just told which ones are ready.
    #[cold]
    fn chooses_next(&mut self) -> bool {
        let (fibers, watchers) = (&self.fibers, &self.watchers);
        self.queue
            .choose(|token| fibers.is_queued(token) || watchers.is_due(token))
    }

    /// The number of resumes bounds the time between polls if fibers are quickly done, and the clock does if they are not. Not in
    /// virtual time, where the order must not depend on the machine.
    fn is_last_poll_too_old(&self) -> bool {
        self.queue.is_clock_check_due()
            && self.event_loop.clock().is_some_and(TimeSlice::is_spent)
            && !self.event_loop.is_virtual()
    }

    /// Polls without blocking: wakes each fiber that has got an event.
    pub fn poll_once(&mut self) -> std::io::Result<()> {
        self.queue.begin_poll();
        self.batching.on_poll();
        self.counters.turns += 1;
        self.trace_turn(TraceEvent::Turn);
        let Some(events) = self.event_loop.collect()? else {
            return Ok(());
        };
        for event in events.iter() {
            if is_of_watcher(event.token) {
                self.on_watcher_event(*event);
            } else {
                self.wake(
                    event.token,
                    match event.ready.contains(Ready::ELAPSED) {
                        true => WakeCause::Elapsed,
                        false => WakeCause::Ready,
                    },
                );
            }
        }
        self.event_loop.events = events;
        self.trace_turn(TraceEvent::Turned);
        self.queue.end_poll();
        Ok(())
    }

    /// Ends the wait, or the time of the timeout, that the token names. Returns true if this call ended it.
    ///
    /// If it is a fiber's innermost wait, or ends that, the fiber is queued.
    #[inline(always)] // called for each event, and by each `unblock`
    pub fn wake(&mut self, token: Token, cause: WakeCause) -> bool {
        let is_woken = self.fibers.wake(token, cause);
        if is_woken {
            self.push_woken(token, cause);
        }
        is_woken || self.wake_in_strand(token, cause)
    }

    fn push_woken(&mut self, token: Token, cause: WakeCause) {
        match cause {
            WakeCause::Elapsed => self.queue.push_elapsed(token),
            _ => self.queue.push(token),
        }
        self.trace_event(TraceEvent::Ready, token.index());
    }

    #[cold]
    fn wake_in_strand(&mut self, token: Token, cause: WakeCause) -> bool {
        if let Some(wait) = self.fibers.wait_mut(token) {
            return wait.wake(cause);
        }
        match cause {
            WakeCause::Elapsed => self.expire_timeout(token),
            _ => self.end_collected_timeout(token),
        }
    }

    /// The timeout with this token is over, if its block goes on: its exception is raised where the block waits. Whether a
    /// fiber was queued for that.
    pub fn expire_timeout(&mut self, token: Token) -> bool {
        let queued = self.fibers.expire(token);
        if let Some(wait) = queued {
            self.push_woken(wait, WakeCause::Elapsed);
        }
        queued.is_some()
    }

    /// The fiber in which the timeout's block runs has been collected.
    fn end_collected_timeout(&mut self, token: Token) -> bool {
        let is_ended = self.end_timeout(token);
        if is_ended {
            self.leave(token.index());
        }
        is_ended
    }

    // --- the ready queue -----------------------------------------------------------------------------------------

    /// Queues a fiber that has not parked, behind the ready fibers. Nothing happens if it is queued.
    pub(super) fn enqueue(&mut self, slot: Slot) {
        if let Some(token) = self.fibers.queue(slot) {
            self.queue.push(token);
        }
    }

    /// Queues a fiber that has not parked, before all queued fibers. Nothing happens if it is queued.
    pub fn enqueue_first(&mut self, slot: Slot) -> Option<Token> {
        let token = self.fibers.queue(slot)?;
        self.queue.push_first(token);
        Some(token)
    }

    /// Queues a fiber that is about to give control away, if its wait is over: a finalizer or a trap handler may have waited since the
    /// fiber looked at its wait, and then no event is left that would queue it. Its turn had come, so it goes before all queued fibers.
    pub(super) fn queue_if_over(&mut self, slot: Slot) {
        if self.fibers.may_run(slot) {
            self.enqueue_first(slot);
        }
    }

    /// A fiber yields: it is queued behind the ready fibers.
    #[inline(always)]
    pub fn yield_now(&mut self, slot: Slot) -> Token {
        let wait = self.fibers.begin_yield(slot);
        self.queue.push(wait);
        wait
    }

    /// Whether a fiber that is about to yield polls first: all that were ready after the last poll have had their turn, or something is
    /// to be raised. Otherwise [`State::next_ready`] says when a poll is due. In virtual time, where the order must not depend on
    /// the machine, each yield polls.
    pub fn yields_with_poll(&self) -> bool {
        self.queue.is_round_over() || self.has_raises_from_outside() || self.event_loop.is_virtual()
    }

    /// A fiber yields: it is queued behind the ready fibers, and behind those that the next polls wake.
    pub fn yield_low_priority(&mut self, slot: Slot) -> Token {
        let wait = self.fibers.begin_yield(slot);
        self.queue.push_low_priority(wait);
        wait
    }

    /// A fiber yields because a time slice is over. Fibers that have had a slice for themselves yield to all others. One that is
    /// only the last of several in a slice takes its place in the line again: beside many ready fibers it would hardly ever run.
    pub fn yield_slice(&mut self, slot: Slot) -> Token {
        match self.queue.has_slice_for_itself() {
            true => self.yield_low_priority(slot),
            false => self.yield_now(slot),
        }
    }

    /// From now on chance decides which of the ready fibers runs next.
    pub fn shuffle(&mut self, seed: u64) {
        self.queue.shuffle(seed);
    }

    /// A number that all choices so far have led to. `None` if the order is not shuffled.
    pub fn shuffled(&self) -> Option<u64> {
        self.queue.shuffled()
    }

    pub fn is_queued(&self, slot: Slot) -> bool {
        self.fibers[slot].queued
    }

    /// Whether a fiber is ready that is not of low priority.
    pub fn has_ready_fiber(&mut self) -> bool {
        let (fibers, watchers) = (&self.fibers, &self.watchers);
        self.queue
            .has(|token| fibers.is_queued(token) || watchers.is_due(token))
    }

    /// Whether no fiber can run but those of low priority.
    pub fn is_idle(&self) -> bool {
        self.queue.has_only_low_priority() && self.control.proxy_raises.is_empty()
    }

    // --- sleeping ------------------------------------------------------------------------------------------------

    /// Begins a sleep in the kernel, unless a fiber can run or the wait of this one is over.
    pub fn begin_sleep(&mut self, slot: Slot, limit: Option<Duration>) -> Option<(Sleep, Handle)> {
        if !self.is_idle() || self.fibers.may_run(slot) {
            return None;
        }
        debug_assert!(
            !self.fibers.has_stranded(),
            "a fiber that can run is asleep"
        );
        let only_unblock_helps = self.only_unblock_helps();
        let sleep = self.event_loop.begin_sleep(limit, only_unblock_helps)?;
        self.counters.sleeps += 1;
        self.trace_turn(TraceEvent::Sleep);
        Some(sleep)
    }

    /// The root fiber, if this is another one, which is about to sleep.
    pub fn root_during_sleep(&self, slot: Slot) -> Option<(Slot, ObjectRef)> {
        let root = self.control.root.filter(|root| *root != slot)?;
        let sleeps = self.is_idle() && !self.fibers.may_run(slot);
        sleeps.then_some((root, self.fibers.get(root)?.fiber))
    }

    /// Whether only an `unblock` can wake a fiber. The kernel may make a watcher due, whose fiber may wake any other.
    fn only_unblock_helps(&self) -> bool {
        self.fibers.all_wait_for_unblock_only() && self.watchers.is_empty()
    }

    /// `collected`: milliseconds of garbage collection during the sleep.
    pub fn end_sleep(&mut self, collected: usize) {
        self.counters.gc_asleep += collected as u64;
        self.event_loop.is_sleeping = false;
        self.trace_turn(TraceEvent::Wake);
    }

    /// Ends the sleep of the scheduler's thread, if it sleeps.
    pub fn wake_thread(&mut self) {
        if self.event_loop.wake_thread() {
            self.counters.wakeups += 1;
        }
    }

    /// Whether the last sleep ended only because its time was up, and only an `unblock` can wake a fiber.
    pub fn may_be_deadlocked(&self) -> bool {
        self.event_loop.slept_idle() && self.is_idle() && self.only_unblock_helps()
    }
}
