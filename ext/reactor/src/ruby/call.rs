//! Calls into Ruby code.

use std::ffi::c_int;

use magnus::{
    Error, Ruby, Value,
    rb_sys::{AsRawId, AsRawValue, FromRawValue, protect},
};
use rb_sys::VALUE;

/// Yields to the block of the method that is running.
pub fn yield_block(argument: Value) -> Result<Value, Error> {
    // SAFETY: callers have checked that a block was given.
    let result = protect(|| unsafe { rb_sys::rb_yield(argument.as_raw()) })?;
    // SAFETY: a return value of Ruby.
    Ok(unsafe { Value::from_raw(result) })
}

/// Calls a method, private ones included.
pub fn call_method(receiver: Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let id = Ruby::get_with(receiver).intern(name).as_raw();
    let (count, first) = raw_arguments(arguments);
    // SAFETY: live values; the arguments outlive the call.
    let result = protect(|| unsafe { rb_sys::rb_funcallv(receiver.as_raw(), id, count, first) })?;
    // SAFETY: a return value of Ruby.
    Ok(unsafe { Value::from_raw(result) })
}

/// The answer, from C only, that makes the VM go on as if the scheduler did not have the hook.
pub fn undefined() -> Value {
    // SAFETY: handed straight back to the VM, which compares it with Qundef before anything else.
    unsafe { Value::from_raw(rb_sys::Qundef as VALUE) }
}

pub(super) fn raw_arguments(arguments: &[Value]) -> (c_int, *const VALUE) {
    (arguments.len() as c_int, arguments.as_ptr().cast())
}
