//! One turn of the reactor, made by the fiber that has control and finds no other one to run.

use std::time::{Duration, Instant};

use magnus::{Error, TryConvert, prelude::*};
use reactor_scheduler::state::fiber::Slot;

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        call::call_method,
        error::{into_exception, ruby, system_error},
        fiber::raise_in,
        object::{Object, gc_milliseconds, object_ref},
        thread::{
            check_interrupts, current_scheduler, is_interrupted, is_main, is_only_thread,
            without_gvl, yield_gvl,
        },
    },
};

impl Scheduler {
    /// Polls; if `idle` and no fiber can run, sleeps without the GVL until the kernel, a timer or another thread has
    /// something, and polls again.
    pub fn turn(&self, slot: Slot, idle: bool) -> Result<(), Error> {
        self.poll_once(slot)?;
        self.raise_from_outside(slot)?;
        let may_sleep = idle && self.state().is_idle();
        if may_sleep && self.leaves_sleep_to_root(slot)? {
            return Ok(());
        }
        if may_sleep && self.sleep(slot)? {
            self.check_deadlock()
                .or_else(|error| self.raise_in_root(slot, error))?;
        } else if is_interrupted(self.owner.thread_in_hook()) {
            // The VM marks the fiber that has control when a signal comes. After a switch the mark would be on another fiber.
            self.run_interrupts(slot)?;
        } else if !is_only_thread() {
            self.yield_gvl_if_due(slot)?;
        }
        self.raise_from_outside(slot)
    }

    /// Sleeps, and polls again; false if a fiber can run.
    ///
    /// First it raises what a mask has deferred until the thread blocks (`:on_blocking`): the VM marks the thread only once, when that
    /// is queued, so the mark may be gone, and nothing would end the sleep. Another thread cannot queue anything between this and the
    /// sleep, because it needs the GVL. See [`without_gvl`] for what a signal does there.
    fn sleep(&self, slot: Slot) -> Result<bool, Error> {
        self.run_interrupts(slot)?;
        let settle = self.settle_until()?;
        let limit = settle.map(|until| until.saturating_duration_since(Instant::now()));
        let sleep = self.state_mut().begin_sleep(slot, limit);
        let Some((sleep, handle)) = sleep else {
            return Ok(false);
        };
        let before = gc_milliseconds();
        without_gvl(&sleep, &handle);
        drop(sleep);
        let collected = gc_milliseconds() - before;
        self.state_mut().end_sleep(collected);
        self.poll_once(slot)?;
        let clock = self.state().event_loop.clock();
        if let Some(now) = clock {
            self.quota.after_sleep(now);
        }
        if settle.is_some_and(|until| until <= Instant::now()) {
            self.state_mut().advance_if_idle();
        }
        self.run_interrupts(slot)?;
        Ok(true)
    }

    /// Raises what Ruby raises when every thread waits for another one: if all fibers wait for an `unblock` without a time
    /// limit, and `deadlock_message` (in Ruby) finds no thread that could bring it.
    fn check_deadlock(&self) -> Result<(), Error> {
        if !self.state().may_be_deadlocked() {
            return Ok(());
        }
        let scheduler = current_scheduler().value();
        if !self.is_object(scheduler) || !scheduler.respond_to("deadlock_message", true)? {
            return Ok(());
        }
        let message = call_method(scheduler, "deadlock_message", &[])?;
        match Option::<String>::try_convert(message)? {
            Some(message) => Err(Error::new(ruby().exception_fatal(), message)),
            None => Ok(()),
        }
    }

    /// Before a sleep in virtual time: until when the outside has time to wake a fiber, before the clock advances to the next
    /// timer. `None` if it will not.
    fn settle_until(&self) -> Result<Option<Instant>, Error> {
        let settle = self.state().settle_before_advance();
        let Some(settle) = settle else {
            return Ok(None);
        };
        let scheduler = current_scheduler().value();
        let is_awaited = self.is_object(scheduler)
            && call_method(scheduler, "wakeable_from_outside?", &[])?.to_bool();
        let settle = if is_awaited { settle } else { Duration::ZERO };
        Ok(Some(Instant::now() + settle))
    }

    /// A fiber that is made in a trap handler never runs trap handlers, also when that handler has ended. If it slept, a signal would
    /// wait until another fiber has control. So the root fiber gets control and sleeps. Whether that was done.
    fn leaves_sleep_to_root(&self, slot: Slot) -> Result<bool, Error> {
        let may_sleep = self.state().fibers[slot].runs_trap_handlers;
        if may_sleep {
            return Ok(false);
        }
        self.leaves_sleep_to_root_if_masked(slot)
    }

    #[cold]
    fn leaves_sleep_to_root_if_masked(&self, slot: Slot) -> Result<bool, Error> {
        if !self.runs_in_handler() {
            self.state_mut().fibers[slot].runs_trap_handlers = true;
            return Ok(false);
        }
        let root = self.state().root_during_sleep(slot);
        let Some((root, fiber)) = root else {
            return Ok(false);
        };
        let is_parked_for = self.state().fibers.waits_for_parked(root);
        if is_parked_for {
            return Ok(false);
        }
        self.switch(slot, root, fiber)?;
        Ok(true)
    }

    /// Polls without blocking. An error of the poll is raised in the root fiber: this fiber only polls for all of them.
    fn poll_once(&self, slot: Slot) -> Result<(), Error> {
        let polled = self.state_mut().poll_once();
        polled.or_else(|error| self.raise_in_root(slot, system_error(&error)))
    }

    fn yield_gvl_if_due(&self, slot: Slot) -> Result<(), Error> {
        let clock = self.state().event_loop.clock();
        if clock.is_none_or(|now| !self.quota.is_spent(now)) {
            return Ok(());
        }
        let yielded = yield_gvl();
        self.quota.after_yield(Instant::now());
        yielded.or_else(|error| self.raise_in_root(slot, error))
    }

    /// Runs what is pending for the thread, or lets the root fiber run it: this fiber only polls for all of them.
    ///
    /// A kill must reach the root fiber first. The VM carries it there only when this fiber has ended, and its `ensure` clauses may wait
    /// for fibers that the root fiber ends. In the main thread, which no other one kills, trap handlers run in this fiber.
    fn run_interrupts(&self, slot: Slot) -> Result<(), Error> {
        let thread = self.owner.thread_in_hook();
        if is_interrupted(thread) && !is_main(thread) {
            let root = self.state_mut().leave_interrupts_to_root(slot);
            if let Some((root, fiber)) = root {
                return self.switch(slot, root, fiber);
            }
        }
        check_interrupts().or_else(|error| self.raise_in_root(slot, error))
    }

    /// Raises an exception in the root fiber. A signal or another thread has raised it in the thread, or the poll has failed, and
    /// this fiber got it only because it polls. If there is no root fiber, it is raised here.
    fn raise_in_root(&self, slot: Slot, error: Error) -> Result<(), Error> {
        let exception = into_exception(error)?; // Thread#kill: the VM itself carries it from here to the root fiber
        let root = self.state_mut().raise_in_root(slot, object_ref(exception));
        match root {
            Some((root, fiber)) => self.switch(slot, root, fiber),
            None => Err(exception.into()),
        }
    }

    /// Raises the exceptions that a fiber cannot raise by itself when it gets control: those of an operation that only a proxy
    /// of the VM's can end, and the timeouts of a fiber that is not parked, because it waits for a parked Enumerator.
    fn raise_from_outside(&self, slot: Slot) -> Result<(), Error> {
        if self.state().has_raises_from_outside() {
            return self.raise_all_from_outside(slot);
        }
        Ok(())
    }

    #[cold]
    fn raise_all_from_outside(&self, slot: Slot) -> Result<(), Error> {
        loop {
            let next = self.state_mut().pop_proxy_raise();
            let Some([proxy, exception]) = next else {
                break;
            };
            let result = call_method(proxy.value(), "raise", &[exception.value()]);
            self.on_resumed(slot);
            result?;
        }
        loop {
            let next = self.state_mut().next_indirect_timeout(slot);
            let Some((target, fiber)) = next else {
                return Ok(());
            };
            if let Ok(exception) = into_exception(self.timeout_error(target)) {
                let result = raise_in(fiber, exception.as_value());
                self.on_resumed(slot);
                self.filter_repeated_kill(slot, result)?;
            }
        }
    }
}
