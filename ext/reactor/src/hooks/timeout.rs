//! `timeout_after`.

use magnus::{Error, Ruby, Value, prelude::*, scan_args::scan_args, typed_data::Obj};

use crate::{
    control::{
        hook_scope::{Entered, HookScope},
        scheduler::Scheduler,
    },
    ruby::{
        call::{call_method, yield_block},
        convert,
        object::{object_ref, write_barrier},
    },
};

/// `timeout_after(duration, exception, message = nil) { |duration| … }`. A negative duration is over at once.
pub fn timeout_after(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    arguments: &[Value],
) -> Result<Value, Error> {
    let parsed = scan_args::<(Value, Value), (Option<Value>,), (), (), (), ()>(arguments)?;
    let (duration, exception) = parsed.required;
    let message = parsed.optional.0.unwrap_or(ruby.qnil().as_value());
    if !ruby.block_given() {
        return Err(Error::new(
            ruby.exception_local_jump_error(),
            "no block given (yield)",
        ));
    }
    let Some(limit) = convert::added_timeout(duration)? else {
        return yield_block(duration);
    };
    let Entered::Usable(scope) = HookScope::enter(ruby, &this)? else {
        // A forked child has no loop that could fire a timer.
        let block = ruby.block_proc()?.as_value();
        let arguments = [duration, exception, message, block];
        return call_method(this.as_value(), "timeout_in_forked_child", &arguments);
    };
    let (exception, message) = (object_ref(exception), object_ref(message));
    write_barrier(this, exception);
    write_barrier(this, message);
    let timeout = this
        .state_mut()
        .begin_timeout(scope.slot, exception, message, limit);
    let block = this.begin_timeout_block(ruby, scope.slot, timeout);
    let result = yield_block(duration);
    this.state_mut().end_timeout(timeout);
    if let Some(block) = block {
        block.end();
    }
    result
}
