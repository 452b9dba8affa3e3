//! Starting and ending fibers, and waiting for all of them to end.

use std::time::{Duration, Instant};

use magnus::{Error, Ruby, Value, prelude::*, typed_data::Obj};
use reactor_scheduler::state::{fiber::Slot, object_ref::ObjectRef, wait::Pending};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        call::call_method,
        error::{self, fiber_error, into_exception},
        fiber::{current_fiber, is_blocking, is_unborn, raise_in, start_fiber, starter},
        object::{Object, object_ref, write_barrier},
    },
};

/// A fiber yields after it has kept spawning for longer than this without waiting.
const SPAWN_SLICE: Duration = Duration::from_millis(2);

impl HookScope<'_> {
    /// Starts a fiber that runs the block. The new fiber runs at once, until it parks or ends; then the current fiber
    /// continues.
    pub fn start(&self, fiber: ObjectRef, block: Value, arguments: &[Value]) -> Result<(), Error> {
        let (scheduler, slot) = (self.scheduler, self.slot);
        let starter = starter(self.object.as_value())?;
        scheduler.trace_birth(fiber, block)?;
        let started = scheduler.state_mut().add_fiber(fiber, object_ref(block));
        write_barrier(self.object, fiber);
        let start = scheduler.state_mut().begin_start(slot, started);
        let streak = start.is_nested.then(|| {
            let since = scheduler.state_mut().take_spawn_streak(slot);
            (since.is_some(), since.unwrap_or_else(Instant::now))
        });
        let result = start_fiber(starter, fiber, arguments);
        scheduler.forget_unborn(fiber, &result);
        scheduler.on_resumed(slot);
        scheduler.state_mut().end_hold(Some(fiber)); // it may have parked without a poll
        let result = scheduler.filter_repeated_kill(slot, result);
        if !start.is_nested {
            // The hooks never see the writes of a starter that the scheduler did not create, so queued sends go first.
            scheduler.state_mut().flush_sends();
        }
        let result = result
            .and_then(|()| scheduler.run_queued_before(slot))
            .and_then(|()| scheduler.raise_pending_in_queued(slot));
        scheduler.state_mut().end_start(start);
        result?;
        streak.map_or(Ok(()), |(is_streak, since)| {
            self.yield_if_spawning(is_streak, since)
        })
    }

    /// `Fiber.schedule` returns when the new fiber first parks, and no other fiber has run meanwhile. A fiber yields
    /// after it has kept spawning for longer than [`SPAWN_SLICE`], except in virtual time, where the order must not
    /// depend on the machine.
    fn yield_if_spawning(&self, is_streak: bool, since: Instant) -> Result<(), Error> {
        if is_streak
            && since.elapsed() >= SPAWN_SLICE
            && !self.scheduler.state().event_loop.is_virtual()
        {
            return self.scheduler.yield_low_priority(self.slot);
        }
        self.scheduler
            .state_mut()
            .set_spawn_streak(self.slot, since);
        Ok(())
    }

    /// Raises FiberError in a scheduler's fiber, or in a fiber that runs for one: it would wait for its own end.
    pub fn forbid_own_fibers(&self) -> Result<(), Error> {
        let fibers = &self.scheduler.state().fibers;
        // The root fiber is blocking and runs for no other fiber, although its record may name the fiber that was
        // running before.
        let has_scheduled_resumer = !is_blocking() && fibers.has_scheduled_resumer(self.slot);
        if has_scheduled_resumer || fibers.is_scheduled(self.slot) {
            return Err(fiber_error(
                "a fiber cannot wait for its own scheduler to end",
            ));
        }
        Ok(())
    }

    /// Runs until all of the scheduler's fibers, and all watchers that are not transient, have ended. Raises the first
    /// error that ended one.
    pub fn drain(&self) -> Result<(), Error> {
        let (scheduler, slot) = (self.scheduler, self.slot);
        self.forbid_own_fibers()?;
        let drain = scheduler.state_mut().begin_drain(slot);
        let result = self.drain_fibers();
        let first_error = scheduler.state_mut().end_drain(drain, result.is_ok());
        result?;
        first_error.map_or(Ok(()), |exception| Err(error::exception(exception)))
    }

    fn drain_fibers(&self) -> Result<(), Error> {
        let (scheduler, slot) = (self.scheduler, self.slot);
        loop {
            scheduler.raise_pending_in_queued(slot)?;
            let is_drained = scheduler.state().is_drained();
            if is_drained {
                return Ok(());
            }
            // Fibers started by `ensure` clauses are cancelled as well, just as the VM kills threads started by them.
            let again = scheduler.state().cancels_again();
            if let Some(reason) = again.map(ObjectRef::value) {
                call_method(self.object.as_value(), "cancel", &[reason])?;
                continue;
            }
            scheduler.run_next(slot)?;
        }
    }

    /// Ends every watcher and cancels every fiber of the scheduler, for this reason: parked ones raise
    /// `Reactor::Cancelled` when they next run. In a fiber that waits for a parked Enumerator, the VM raises it in the
    /// Enumerator.
    pub fn cancel(&self, reason: Value) -> Result<(), Error> {
        let scheduler = self.scheduler;
        self.forbid_own_fibers()?;
        scheduler.cancel_watchers()?;
        write_barrier(self.object, object_ref(reason));
        let scheduled = scheduler.state_mut().begin_cancel(object_ref(reason));
        for target in scheduled {
            let cancelled = call_method(self.object.as_value(), "cancellation", &[reason])?;
            self.end(target, cancelled)?;
        }
        Ok(())
    }

    /// Raises an exception in one of the scheduler's fibers, whatever it waits for; kills it if `exception` is nil. False
    /// if the fiber is not one of them, has ended, is being killed, or has been cancelled like this before.
    pub fn cancel_fiber(&self, fiber: ObjectRef, exception: Value) -> Result<bool, Error> {
        let found = self.scheduler.state_mut().fibers.find(fiber);
        let target = found.filter(|slot| {
            let record = &self.scheduler.state().fibers[*slot];
            record.may_be_killed() && (exception.is_nil() || !record.is_cancelled())
        });
        let Some(target) = target else {
            return Ok(false);
        };
        self.end(target, exception)?;
        Ok(true)
    }

    fn end(&self, target: Slot, exception: Value) -> Result<(), Error> {
        let (scheduler, slot) = (self.scheduler, self.slot);
        let is_unborn = !exception.is_nil() && {
            let fiber = scheduler.state().fibers[target].fiber();
            is_unborn(fiber.value()) // it cannot raise
        };
        let pending = match exception.is_nil() || is_unborn {
            true => Pending::Kill,
            false => Pending::Late(object_ref(exception)),
        };
        write_barrier(self.object, object_ref(exception));
        let through_vm = scheduler.state_mut().cancel(target, pending);
        if target == slot {
            scheduler.state_mut().fibers[slot].put_back(pending); // its next wait raises it
        } else if let Some(fiber) = through_vm {
            let turn = scheduler.state_mut().fibers.begin_turn(slot);
            scheduler.state_mut().enqueue_first(slot);
            let ended = match pending {
                Pending::Kill => fiber.value().funcall::<_, _, Value>("kill", ()).map(drop),
                _ => raise_in(fiber, exception),
            };
            scheduler.on_resumed(slot);
            let ended = scheduler.filter_repeated_kill(slot, ended);
            scheduler.state_mut().fibers.end_wait(turn);
            ended?;
        }
        Ok(())
    }
}

impl Scheduler {
    /// Called when the current fiber has ended, with this exception unless it is nil. Returns whether the fiber must raise
    /// it itself.
    ///
    /// An exception that stops a program (SystemExit, Interrupt …) goes to the root fiber at once. An ordinary error is
    /// passed to `on_error` if there is one; otherwise it is reported like a thread's, and raised when the other fibers are
    /// done. `on_error` may wait, and anything that unwinds it also unwinds the fiber.
    pub fn on_fiber_end(this: Obj<Self>, exception: Value) -> Result<bool, Error> {
        let mut result = Ok(false);
        if !exception.is_nil() {
            // In a child forked in this fiber, the child's root fiber gets the error, which decides the exit status.
            if this.is_forked_child() {
                return Ok(true);
            }
            result = Self::on_fiber_error(this, exception).map(|()| false);
        }
        this.state_mut().end_fiber(current_fiber());
        result
    }

    fn on_fiber_error(this: Obj<Self>, exception: Value) -> Result<(), Error> {
        let pinned = object_ref(exception);
        write_barrier(this, pinned);
        let is_spawners = this.state_mut().raise_in_spawner(current_fiber(), pinned);
        if is_spawners {
            return Ok(());
        }
        let ruby = Ruby::get_with(exception);
        let is_ordinary = exception.is_kind_of(ruby.exception_standard_error())
            || exception.is_kind_of(ruby.exception_script_error());
        if !is_ordinary {
            this.state_mut().keep_error(pinned, false);
            return Ok(());
        }
        match call_method(this.as_value(), "report_error", &[exception]) {
            Ok(taken) if taken.to_bool() => Ok(()),
            result => {
                this.state_mut().keep_error(pinned, true);
                result.map_or_else(|error| this.keep_raised(this.as_value(), error), |_| Ok(()))
            }
        }
    }

    /// Called when `on_error` raised an exception that stops a program, or is being unwound.
    #[cold]
    fn keep_raised(&self, scheduler: Value, error: Error) -> Result<(), Error> {
        let raised = object_ref(into_exception(error)?.as_value());
        write_barrier(scheduler, raised);
        self.state_mut().keep_error(raised, false);
        Ok(())
    }
}
