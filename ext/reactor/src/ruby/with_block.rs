//! Methods with a block.
//!
//! magnus raises anew what a method returns as an error. For an exception that the block has raised, TracePoint would
//! report that a second time, and the VM would make two Strings of each frame of its backtrace (`setup_exception` in
//! eval.c). So such an exception goes on as it does through a method written in C.

use std::{ffi::c_int, mem, panic::AssertUnwindSafe, slice};

use magnus::{
    Error, Ruby, Value,
    error::ErrorType,
    rb_sys::{AsRawValue, FromRawValue, catch_unwind, protect, resume_error},
};
use rb_sys::VALUE;

use crate::ruby::{call::raw_arguments, error::ruby};

/// `TAG_RAISE` of the VM: an exception.
const RAISE: c_int = 6;

/// The block of the method that runs, and the exception with which it ended.
pub struct Block(Option<VALUE>);

impl Block {
    /// Yields to the block.
    pub fn call(&mut self, arguments: &[Value]) -> Result<Value, Error> {
        let (count, first) = raw_arguments(arguments);
        // SAFETY: the arguments outlive the call; exceptions are caught.
        let result = protect(|| unsafe { rb_sys::rb_yield_values2(count, first) });
        // SAFETY: a value returned by Ruby.
        self.note(result.map(|value| unsafe { Value::from_raw(value) }))
    }

    /// Lets what Ruby code has raised go on as if the block had raised it. Until then it is `$!`, so what is raised meanwhile
    /// has it as its cause.
    pub fn note<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        self.0 = result.as_ref().err().and_then(exception);
        if let Some(raised) = self.0 {
            // SAFETY: a live exception.
            unsafe { rb_sys::rb_set_errinfo(raised) };
        }
        result
    }
}

/// A method's function: its receiver, all arguments, and the block.
pub trait Method: Fn(&Ruby, Value, &[Value], &mut Block) -> Result<Value, Error> + Copy {}

impl<F> Method for F where F: Fn(&Ruby, Value, &[Value], &mut Block) -> Result<Value, Error> + Copy {}

/// What defines a method by this function. It takes any number of arguments.
pub fn method<F: Method>(_: F) -> unsafe extern "C" fn(c_int, *const Value, Value) -> Value {
    const { assert!(size_of::<F>() == 0) };
    call::<F>
}

unsafe extern "C" fn call<F: Method>(count: c_int, first: *const Value, this: Value) -> Value {
    let mut block = Block(None);
    let work = AssertUnwindSafe(|| {
        // SAFETY: a function has no size, and `method` was given it.
        let function = unsafe { mem::transmute_copy::<(), F>(&()) };
        // SAFETY: the VM's arguments, which outlive the call.
        let arguments = unsafe { slice::from_raw_parts(first, count as usize) };
        function(&ruby(), this, arguments, &mut block)
    });
    let error = match catch_unwind(work).and_then(|result| result) {
        Ok(value) => return value,
        Err(error) => error,
    };
    let raised = exception(&error).filter(|raised| block.0 == Some(*raised));
    // SAFETY: nothing is left to be dropped: an error that is an exception owns nothing.
    unsafe {
        if let Some(raised) = raised {
            rb_sys::rb_set_errinfo(raised);
            rb_sys::rb_jump_tag(RAISE);
        }
        resume_error(error)
    }
}

fn exception(error: &Error) -> Option<VALUE> {
    match error.error_type() {
        ErrorType::Exception(exception) => Some(exception.as_raw()),
        _ => None,
    }
}
