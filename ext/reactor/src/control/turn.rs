//! One turn of the reactor, made by the running fiber when it finds no other to run.

use std::time::{Duration, Instant};

use magnus::{Error, TryConvert, prelude::*};
use reactor_scheduler::state::fiber::Slot;

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        call::call_method,
        error::{into_exception, ruby, system_error},
        fiber::raise_in,
        object::{Object, object_ref},
        thread::{
            check_interrupts, current_scheduler, is_interrupted, is_main, is_only_thread,
            without_gvl, yield_gvl,
        },
    },
};

impl Scheduler {
    /// Polls. If `idle` is true and no fiber can run, then sleeps without the GVL until the kernel, a timer or another
    /// thread reports an event, and polls again.
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
        } else if is_interrupted(self.affinity.thread_in_hook()) {
            // When a signal arrives, the VM sets a flag on the running fiber. After a switch, another fiber would be
            // running without the flag.
            self.run_interrupts(slot)?;
        } else if !is_only_thread() {
            self.yield_gvl_if_due(slot)?;
        }
        self.raise_from_outside(slot)
    }

    /// Sleeps and polls again; false if a fiber can run.
    ///
    /// First it raises the exceptions that a mask has deferred until the thread blocks (`:on_blocking`). The VM flags
    /// the thread only once, when an exception is queued, so the flag may be gone and nothing would end the sleep. No
    /// other thread can queue an exception between this check and the sleep, because it would need the GVL. For signals
    /// during the sleep see [`without_gvl`].
    fn sleep(&self, slot: Slot) -> Result<bool, Error> {
        self.run_interrupts(slot)?;
        let settle = self.settle_until()?;
        let limit = settle.map(|until| until.saturating_duration_since(Instant::now()));
        let sleep = self.state_mut().begin_sleep(slot, limit);
        let Some((sleep, handle)) = sleep else {
            return Ok(false);
        };
        without_gvl(&sleep, &handle);
        drop(sleep);
        self.state_mut().end_sleep();
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

    /// Checks for a deadlock: all fibers wait for an `unblock` without a time limit, and `deadlock_message` (in Ruby)
    /// finds no thread that could send one. If so, raises the error that Ruby raises when every thread waits for
    /// another one.
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

    /// Before a sleep in virtual time: how long outside events have to wake a fiber before the clock advances to the
    /// next timer. `None` if the clock will not advance.
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

    /// A fiber created in a trap handler never runs trap handlers, even after that handler has ended. If such a fiber
    /// slept, signals would wait until another fiber runs. So the root fiber gets control and sleeps instead. Returns
    /// whether it did.
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

    /// Polls without blocking. Errors are raised in the root fiber: this fiber only polls on everyone's behalf.
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

    /// Runs the thread's pending interrupts, or leaves them to the root fiber: this fiber only polls on everyone's behalf.
    ///
    /// A kill must reach the root fiber first. The VM takes the kill there only once this fiber has ended, and this
    /// fiber's `ensure` clauses may wait for fibers that the root fiber ends. In the main thread, which no other thread
    /// kills, trap handlers run in this fiber.
    fn run_interrupts(&self, slot: Slot) -> Result<(), Error> {
        let thread = self.affinity.thread_in_hook();
        let is_interrupted = is_interrupted(thread);
        if is_interrupted {
            self.children.look_up();
        }
        if is_interrupted && !is_main(thread) {
            let root = self.state_mut().leave_interrupts_to_root(slot);
            if let Some((root, fiber)) = root {
                return self.switch(slot, root, fiber);
            }
        }
        check_interrupts().or_else(|error| self.raise_in_root(slot, error))
    }

    /// Raises an exception in the root fiber. A signal or another thread raised it in the thread, or the poll failed.
    /// This fiber got the exception only because it polls. If there is no root fiber, the exception is raised here.
    fn raise_in_root(&self, slot: Slot, error: Error) -> Result<(), Error> {
        let exception = into_exception(error)?; // Thread#kill: the VM itself takes it from here to the root fiber
        let root = self.state_mut().raise_in_root(slot, object_ref(exception));
        match root {
            Some((root, fiber)) => self.switch(slot, root, fiber),
            None => Err(exception.into()),
        }
    }

    /// Raises exceptions for fibers that cannot raise them themselves: in an operation that only a VM proxy can end,
    /// and for expired timeouts of a fiber that is not parked itself, because it waits for a parked Enumerator.
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
            if self.spares_suspended(target)? {
                continue;
            }
            if let Ok(exception) = into_exception(self.timeout_error(target)) {
                let result = raise_in(fiber, exception.as_value());
                self.on_resumed(slot);
                self.filter_repeated_kill(slot, result)?;
            }
        }
    }
}
