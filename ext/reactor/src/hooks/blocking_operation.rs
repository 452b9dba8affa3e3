//! `blocking_operation_wait`.

use magnus::{Error, Ruby, Value, prelude::*};

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        call::{call_method, undefined},
        caller::{CLOSE, LEFT_TO_VM, caller_beyond},
        method::Receiver,
    },
};

/// `blocking_operation_wait(work)`, Ruby 3.4 and later: an operation that releases the GVL and may be done by another
/// thread. What its caller's operations have cost decides about it, in `Offload#run_by_cost`.
///
/// Two operations are left to the VM, as in a forked child. IO.copy_stream waits for sockets in the middle: on a worker it would hold
/// the worker, and in the VM it waits by `io_wait`. If IO#close were interrupted before a worker has begun, the descriptor would stay
/// open, because the VM has forgotten it by then.
///
/// The value that leaves them to the VM must not reach Ruby code, because code that gets it crashes. So `Offload#run_inline`
/// does the operations that come through an override, and those of a caller that is written in Ruby.
pub fn blocking_operation_wait(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    work: Value,
) -> Result<Value, Error> {
    if CLOSE.have_called() {
        return Ok(undefined()); // the most frequent case
    }
    match caller_beyond::<8>("blocking_operation_wait", &LEFT_TO_VM) {
        Some(caller) if !caller.is_named && !this.is_closed() => {
            let code = ruby.integer_from_u64(caller.code as u64).as_value();
            call_method(this.as_value(), "run_by_cost", &[code, work])
        }
        Some(caller) if caller.is_named && caller.is_native && !caller.is_override => {
            Ok(undefined())
        }
        _ => call_method(this.as_value(), "run_inline", &[work]),
    }
}
