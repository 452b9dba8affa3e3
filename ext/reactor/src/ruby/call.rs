//! Calls into Ruby code.

use std::{ffi::c_int, ptr};

use magnus::{
    Error, Ruby, Value,
    rb_sys::{AsRawId, AsRawValue, FromRawValue, protect},
};
use rb_sys::{ID, VALUE};

/// Yields to the block of the method that is running.
pub fn yield_block(argument: Value) -> Result<Value, Error> {
    // SAFETY: callers have checked that a block was given.
    let result = protect(|| unsafe { rb_sys::rb_yield(argument.as_raw()) })?;
    // SAFETY: a return value of Ruby.
    Ok(unsafe { Value::from_raw(result) })
}

/// Calls a method, private ones included.
///
/// A hook may hold an [`Error`] meanwhile. What the VM has stored beside its tag (`rb_errinfo`) is the same after the call as
/// before, although Ruby code that rescues clears it.
pub fn call_method(receiver: Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    unsafe extern "C" fn nothing(_: VALUE) -> VALUE {
        rb_sys::Qnil as VALUE
    }
    unsafe extern "C" fn run(call: VALUE) -> VALUE {
        // SAFETY: the address of the call below, whose frame lasts longer than this one.
        let call = unsafe { &mut *(call as usize as *mut Call) };
        // SAFETY: live values; the arguments outlive the call.
        call.result =
            unsafe { rb_sys::rb_funcallv(call.receiver, call.id, call.count, call.first) };
        call.result
    }
    let (count, first) = raw_arguments(arguments);
    let mut call = Call {
        receiver: receiver.as_raw(),
        id: Ruby::get_with(receiver).intern(name).as_raw(),
        count,
        first,
        result: rb_sys::Qnil as VALUE,
    };
    let address = ptr::from_mut(&mut call) as usize as VALUE;
    // SAFETY: the VM restores `rb_errinfo` after the second function, and what is raised is caught.
    protect(|| unsafe {
        rb_sys::rb_ensure(Some(nothing), rb_sys::Qnil as VALUE, Some(run), address)
    })?;
    // SAFETY: a return value of Ruby.
    Ok(unsafe { Value::from_raw(call.result) })
}

/// A call that is being made.
struct Call {
    receiver: VALUE,
    id: ID,
    count: c_int,
    first: *const VALUE,
    result: VALUE,
}

/// The answer, from C only, that makes the VM go on as if the scheduler did not have the hook.
pub fn undefined() -> Value {
    // SAFETY: handed straight back to the VM, which compares it with Qundef before anything else.
    unsafe { Value::from_raw(rb_sys::Qundef as VALUE) }
}

pub(super) fn raw_arguments(arguments: &[Value]) -> (c_int, *const VALUE) {
    (arguments.len() as c_int, arguments.as_ptr().cast())
}
