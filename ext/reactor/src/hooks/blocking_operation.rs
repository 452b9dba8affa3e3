//! `blocking_operation_wait`.

use magnus::{Error, Ruby, Value, prelude::*};

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        call::{call_method, undefined},
        caller::{CLOSING, COPYING, Caller, OPENING},
        receiver::Receiver,
    },
};

/// `blocking_operation_wait(work)`, Ruby 3.4 and later: an operation that releases the GVL and that another thread may
/// run. Whether another thread runs it depends on the past cost of its caller's operations: see `Offload#run_by_cost`. An
/// operation that may wait forever runs on a thread of its own, however quick others were.
///
/// Two operations are left to the VM. IO.copy_stream waits for sockets while it runs: on a worker
/// it would occupy the worker meanwhile, but in the VM it waits through `io_wait`. If IO#close were interrupted before
/// a worker began, the descriptor would stay open, because by then the VM has forgotten the descriptor.
///
/// The value by which this hook leaves an operation to the VM must not reach Ruby code, because the process would
/// crash. So `Offload#run_inline` runs operations that come through an override, and those whose caller is written in
/// Ruby.
pub fn blocking_operation_wait(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    work: Value,
) -> Result<Value, Error> {
    let caller = Caller::of_hook();
    let is_left = caller
        .as_ref()
        .is_some_and(|it| CLOSING.include(it) || COPYING.include(it));
    match caller {
        Some(it) if is_left && it.is_native() && !it.is_override => Ok(undefined()),
        Some(it) if OPENING.include(&it) => call_method(this.as_value(), "run_waiting", &[work]),
        Some(it) if !is_left && !this.is_closed() => {
            let code = ruby.integer_from_u64(it.code() as u64).as_value();
            call_method(this.as_value(), "run_by_cost", &[code, work])
        }
        _ => call_method(this.as_value(), "run_inline", &[work]),
    }
}
