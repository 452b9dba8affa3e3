//! Starts the fibers of due watchers, and ends watchers without starting a fiber.
//!
//! The Ruby object (`lib/reactor/scheduler/watcher.rb`) holds the block and the storage.

use magnus::{Error, RObject, Ruby, TryConvert, Value, prelude::*};
use reactor::{Interest, Token};
use reactor_scheduler::state::{fiber::Slot, object_ref::ObjectRef, watchers::DueWatcher};

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        call::call_method,
        error::{into_exception, is_fiber_error},
        fiber::{new_fiber, start_fiber, starter},
        object::{Object, object_ref, write_barrier},
    },
};

impl Scheduler {
    /// Called when a watcher's turn has come: switches to a new fiber, which runs its block.
    #[cold]
    pub fn start_watcher(&self, from: Slot, token: Token) -> Result<(), Error> {
        let taken = self.state_mut().take_due_watcher(token);
        let Some(DueWatcher { object, io, ready }) = taken else {
            return Ok(());
        };
        let watcher = object.value();
        let given = [events(watcher, ready), io.value()];
        let arguments = Ruby::get_with(watcher).ary_new_from_values(&given);
        let made = fiber_of(watcher);
        let (scheduler, fiber, starter) =
            match made.and_then(|(it, fiber)| Ok((it, fiber, starter(it)?))) {
                Ok(made) => made,
                Err(error) => return self.fail_watcher(watcher, given[1], error),
            };
        self.trace_birth(fiber, watcher)?;
        let started = self.state_mut().add_fiber_of_watcher(from, fiber, object);
        write_barrier(scheduler, fiber);
        let arguments = [scheduler, watcher, arguments.as_value()];
        let result = start_fiber(starter, fiber, &arguments);
        let is_unborn = self.forget_unborn(fiber, &result);
        self.on_resumed(from);
        debug_assert_ne!(from, started);
        match result {
            Err(error) if is_unborn && is_fiber_error(&error) => {
                self.fail_watcher(watcher, given[1], error)
            }
            result => self.filter_repeated_kill(from, result),
        }
    }

    /// Called when there is no memory for the watcher's fiber. The error is handled as if it had ended the fiber.
    fn fail_watcher(&self, watcher: Value, io: Value, error: Error) -> Result<(), Error> {
        let exception = into_exception(error)?.as_value();
        let scheduler: Value = ivar(watcher, "@scheduler")?;
        let pinned = object_ref(exception);
        write_barrier(scheduler, pinned);
        let reported = call_method(scheduler, "report_unborn", &[exception, watcher]);
        if !reported.as_ref().is_ok_and(|taken| taken.to_bool()) {
            self.state_mut().keep_error(pinned, true);
        }
        let reason = Ruby::get_with(watcher).to_symbol("failed").as_value();
        let finished = call_method(watcher, "finish", &[reason, io]);
        reported.and(finished).map(drop)
    }

    /// Ends those of these watchers that have not ended, without starting fibers. Returns whether there were any. They are
    /// taken out of the state one by one, because only the stack keeps a watcher alive once it has been taken out.
    pub fn end_watchers(&self, reason: &str, tokens: Vec<Token>) -> Result<bool, Error> {
        let (mut found, mut result) = (false, Ok(()));
        for token in tokens {
            let ended = self.state_mut().end_watcher(token);
            if let Some(watcher) = ended {
                found = true;
                result = result.and(end_object(watcher.value(), reason));
            }
        }
        result.map(|()| found)
    }

    /// Ends watchers whose IO object is being closed. Those of a server are made due instead: their fibers tell it.
    pub fn close_watchers(&self, tokens: Vec<Token>) -> Result<(), Error> {
        let mut result = Ok(());
        for token in tokens {
            let object = self.state().watcher(token);
            let Some(object) = object.map(Object::value) else {
                continue;
            };
            let closed = match call_method(object, "of_server?", &[]) {
                Ok(is_of_server) if is_of_server.to_bool() => {
                    self.state_mut().close_watcher(token);
                    Ok(())
                }
                asked => {
                    self.state_mut().end_watcher(token);
                    asked.and_then(|_| end_object(object, "closed"))
                }
            };
            result = result.and(closed);
        }
        result
    }

    /// Ends every watcher.
    pub fn cancel_watchers(&self) -> Result<(), Error> {
        let all = self.state().watchers_that(|_| true);
        self.end_watchers("cancelled", all).map(drop)
    }

    /// Records where the new fiber that is about to run this block was created, if a trace is on.
    pub fn trace_birth(&self, fiber: ObjectRef, block: Value) -> Result<(), Error> {
        let is_traced = self.state().trace.is_some();
        if !is_traced {
            return Ok(());
        }
        let location: Value = block.funcall("source_location", ())?;
        let place = Option::<(String, u32)>::try_convert(location)?;
        let place = place.map_or_else(String::new, |(path, line)| format!("{path}:{line}"));
        if let Some(trace) = &mut self.state_mut().trace {
            trace.birth(fiber, place);
        }
        Ok(())
    }
}

/// The watcher's scheduler, and a new fiber with its storage.
fn fiber_of(watcher: Value) -> Result<(Value, ObjectRef), Error> {
    let storage = ivar(watcher, "@storage")?;
    let fiber = new_fiber(&Ruby::get_with(watcher), Some(storage))?;
    Ok((ivar(watcher, "@scheduler")?, fiber))
}

fn ivar(object: Value, name: &str) -> Result<Value, Error> {
    RObject::try_convert(object)?.ivar_get(name)
}

/// Ruby's mask of the events; nil if the time elapsed.
fn events(watcher: Value, ready: Option<Interest>) -> Value {
    let ruby = Ruby::get_with(watcher);
    match ready {
        Some(ready) => ruby.integer_from_u64(ready.bits().into()).as_value(),
        None => ruby.qnil().as_value(),
    }
}

/// Tells the Ruby object why its watcher ended.
fn end_object(watcher: Value, reason: &str) -> Result<(), Error> {
    let reason = Ruby::get_with(watcher).to_symbol(reason).as_value();
    call_method(watcher, "finish", &[reason]).map(drop)
}
