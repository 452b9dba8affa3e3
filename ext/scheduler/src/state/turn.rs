//! The half of a turn that never blocks: which fiber runs next, and which fibers a poll wakes.

use std::time::Duration;

use reactor::{Handle, Ready, Sleep, Token};

use crate::state::{
    State, fiber::Slot, object_ref::ObjectRef, ready_queue::Next, time_slice::TimeSlice,
    token_mark::is_of_watcher, trace::TraceEvent, wait::WakeCause,
};

/// In virtual time, at most this many fibers are resumed between two polls.
const RESUMES_IN_VIRTUAL_TIME: u32 = 64;

impl State {
    /// Takes the next fiber from the ready queue, unless a poll is due.
    pub fn next_ready(&mut self) -> Next {
        if self.queue.is_empty() {
            return Next::Nothing;
        }
        if (self.queue.is_shuffled() || self.is_last_poll_too_old()) && !self.chooses_next() {
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

    /// Continues [`State::next_ready`] if the entry taken is not a runnable fiber but a watcher, or is stale. A single loop
    /// for both would take 27 more instructions per yield.
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

    /// Picks the next fiber at random, if the order is shuffled and a poll has just found which fibers are ready. Returns
    /// whether it did.
    #[cold]
    fn chooses_next(&mut self) -> bool {
        let (fibers, watchers) = (&self.fibers, &self.watchers);
        self.queue
            .choose(|token| fibers.is_queued(token) || watchers.is_due(token))
    }

    /// Whether the time slice is spent. In virtual time resumes are counted instead, because the order must not depend on the
    /// machine.
    fn is_last_poll_too_old(&self) -> bool {
        if !self.queue.is_clock_check_due() {
            return false;
        }
        match self.event_loop.is_virtual() {
            true => self.queue.resumed() >= RESUMES_IN_VIRTUAL_TIME,
            false => self
                .event_loop
                .slice_began()
                .is_some_and(TimeSlice::is_spent),
        }
    }

    /// Polls without blocking, and wakes each fiber that got an event.
    pub fn poll_once(&mut self) -> std::io::Result<()> {
        if self.holds.is_some() {
            self.end_hold(self.running_fiber());
        }
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
                        false => WakeCause::Ready(event.ready),
                    },
                );
            }
        }
        self.event_loop.events = events;
        self.trace_turn(TraceEvent::Turned);
        self.queue.end_poll();
        self.begin_hold();
        Ok(())
    }

    /// Ends the wait, or expires the timeout, with this token. Returns whether it did.
    ///
    /// The fiber is queued if this ends its innermost wait: because the token is that wait's, or because the timeout
    /// ends it.
    #[inline(always)] // runs for every event and every `unblock`
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
            WakeCause::Elapsed => self.expire_timeout(token, false),
            _ => self.end_collected_timeout(token),
        }
    }

    /// Expires the timeout with this token, if its block is still running: the timeout's exception is raised where the
    /// block waits. Returns whether a fiber was queued for that. `is_asked`: see [`FiberTable::expire`].
    ///
    /// Unlike a sleeper, the fiber overtakes none: what has been answered may end the block first.
    ///
    /// [`FiberTable::expire`]: crate::state::fiber_table::FiberTable::expire
    pub fn expire_timeout(&mut self, token: Token, is_asked: bool) -> bool {
        let queued = self.fibers.expire(token, is_asked);
        if let Some(wait) = queued {
            self.push_woken(wait, WakeCause::Interrupted);
        }
        queued.is_some()
    }

    /// Called when the fiber running the timeout's block was collected.
    fn end_collected_timeout(&mut self, token: Token) -> bool {
        let is_ended = self.end_timeout(token);
        if is_ended {
            self.leave(token.index());
        }
        is_ended
    }

    // --- the ready queue -----------------------------------------------------------------------------------------

    /// Queues a fiber that has not parked behind the ready fibers. Does nothing if it is already queued.
    pub(super) fn enqueue(&mut self, slot: Slot) {
        if let Some(token) = self.fibers.queue(slot) {
            self.queue.push(token);
        }
    }

    /// Queues a fiber that has not parked ahead of all queued fibers. Does nothing if it is already queued.
    pub fn enqueue_first(&mut self, slot: Slot) -> Option<Token> {
        let token = self.fibers.queue(slot)?;
        self.queue.push_first(token);
        Some(token)
    }

    /// Queues a fiber that is about to give up control, if its wait has ended: a finalizer or trap handler may have waited
    /// since the fiber last checked, so no further event would queue it. Its turn had come, so it goes ahead of all queued
    /// fibers.
    pub(super) fn queue_if_over(&mut self, slot: Slot) {
        if self.fibers.may_run(slot) {
            self.enqueue_first(slot);
        }
    }

    /// Yields: queues the fiber behind the ready fibers.
    #[inline(always)]
    pub fn yield_now(&mut self, slot: Slot) -> Token {
        let wait = self.fibers.begin_yield(slot);
        self.queue.push(wait);
        wait
    }

    /// Whether a fiber that is about to yield polls first: all fibers that were ready after the last poll have had their
    /// turn, or something is to be raised. Otherwise [`State::next_ready`] decides when a poll is due. In virtual time each
    /// yield polls, because the order must not depend on the machine.
    pub fn yields_with_poll(&self) -> bool {
        self.queue.is_round_over() || self.has_raises_from_outside() || self.event_loop.is_virtual()
    }

    /// Yields with low priority: queues the fiber behind the ready fibers and behind those that the next polls wake.
    pub fn yield_low_priority(&mut self, slot: Slot) -> Token {
        let wait = self.fibers.begin_yield(slot);
        self.queue.push_low_priority(wait);
        wait
    }

    /// Yields because the time slice is spent. A fiber that had the slice to itself yields to all others. One that only
    /// came last among several in the slice is queued normally; with low priority, it would hardly ever run beside many
    /// ready fibers.
    pub fn yield_slice(&mut self, slot: Slot) -> Token {
        match self.queue.has_slice_for_itself() {
            true => self.yield_low_priority(slot),
            false => self.yield_now(slot),
        }
    }

    /// From now on, the next ready fiber is picked at random.
    pub fn shuffle(&mut self, seed: u64) {
        self.queue.shuffle(seed);
    }

    /// A fingerprint of all choices so far; `None` if the order is not shuffled.
    pub fn shuffled(&self) -> Option<u64> {
        self.queue.shuffled()
    }

    pub fn is_queued(&self, slot: Slot) -> bool {
        self.fibers[slot].queued
    }

    /// Whether the main program may continue when the running fiber waits: its root fiber is in `Fiber.schedule`, or has resumed a
    /// fiber. Otherwise it waits for all fibers to end.
    pub fn may_main_continue(&self) -> bool {
        self.current.root.is_none_or(|root| self.is_queued(root))
    }

    /// Whether a fiber that is not low-priority is ready.
    pub fn has_ready_fiber(&mut self) -> bool {
        let (fibers, watchers) = (&self.fibers, &self.watchers);
        self.queue
            .has(|token| fibers.is_queued(token) || watchers.is_due(token))
    }

    /// Whether no fiber can run except low-priority ones.
    pub fn is_idle(&self) -> bool {
        self.queue.has_only_low_priority() && self.current.proxy_raises.is_empty()
    }

    // --- sleeping ------------------------------------------------------------------------------------------------

    /// Begins a sleep in the kernel, unless a fiber can run or this one's wait has ended.
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

    /// The root fiber, unless it is the fiber about to sleep.
    pub fn root_during_sleep(&self, slot: Slot) -> Option<(Slot, ObjectRef)> {
        let root = self.current.root.filter(|root| *root != slot)?;
        let sleeps = self.is_idle() && !self.fibers.may_run(slot);
        sleeps.then_some((root, self.fibers.get(root)?.fiber))
    }

    /// Whether only an `unblock` can wake a fiber. If there is a watcher, this is false: the kernel may make the
    /// watcher due, and its fiber may wake any other fiber.
    fn only_unblock_helps(&self) -> bool {
        self.fibers.all_wait_for_unblock_only() && self.watchers.is_empty()
    }

    pub fn end_sleep(&mut self) {
        self.event_loop.is_sleeping = false;
        self.begin_hold();
        self.trace_turn(TraceEvent::Wake);
    }

    /// Ends the sleep of the scheduler's thread, if it is asleep.
    pub fn wake_thread(&mut self) {
        if self.event_loop.wake_thread() {
            self.counters.wakeups += 1;
        }
    }

    /// Whether the last sleep ended only because it timed out, while only an `unblock` can wake a fiber.
    pub fn may_be_deadlocked(&self) -> bool {
        self.event_loop.slept_idle() && self.is_idle() && self.only_unblock_helps()
    }
}
