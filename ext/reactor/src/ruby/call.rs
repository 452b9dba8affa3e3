//! Calls into Ruby.

use std::{ffi::c_int, ptr};

use magnus::{
    Error, Ruby, Value,
    rb_sys::{AsRawId, AsRawValue, FromRawValue, protect},
};
use rb_sys::VALUE;

/// Calls a method, private ones included.
///
/// A hook may hold an [`Error`] meanwhile: the object that the VM stores beside the error's tag (`rb_errinfo`) is
/// restored after the call, because the VM clears it when the Ruby code rescues an exception.
pub fn call_method(receiver: Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    unsafe extern "C" fn nothing(_: VALUE) -> VALUE {
        rb_sys::Qnil as VALUE
    }
    unsafe extern "C" fn run(call: VALUE) -> VALUE {
        // SAFETY: the address of the reference below, whose frame outlives this one.
        unsafe { (*(call as usize as *mut &mut dyn FnMut() -> VALUE))() }
    }
    let (count, first) = raw_arguments(arguments);
    let name = Ruby::get_with(receiver).intern(name).as_raw();
    let mut result = rb_sys::Qnil as VALUE;
    let mut call: &mut dyn FnMut() -> VALUE = &mut || {
        // SAFETY: live values; the arguments outlive the call.
        result = unsafe { rb_sys::rb_funcallv(receiver.as_raw(), name, count, first) };
        result
    };
    let address = ptr::from_mut(&mut call) as usize as VALUE;
    // SAFETY: the VM restores `rb_errinfo` after the second function; exceptions are caught.
    protect(|| unsafe {
        rb_sys::rb_ensure(Some(nothing), rb_sys::Qnil as VALUE, Some(run), address)
    })?;
    // SAFETY: a value returned by Ruby.
    Ok(unsafe { Value::from_raw(result) })
}

/// Runs something that may raise and has no result.
pub(super) fn protected(call: impl FnOnce()) -> Result<(), Error> {
    let call = || {
        call();
        rb_sys::Qnil as VALUE
    };
    protect(call).map(drop)
}

/// A return value, for C only, that makes the VM continue as if the scheduler did not have the hook.
pub fn undefined() -> Value {
    // SAFETY: passed straight back to the VM, which compares it with Qundef before anything else.
    unsafe { Value::from_raw(rb_sys::Qundef as VALUE) }
}

pub(super) fn raw_arguments(arguments: &[Value]) -> (c_int, *const VALUE) {
    (arguments.len() as c_int, arguments.as_ptr().cast())
}
