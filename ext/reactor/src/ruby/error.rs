//! The exceptions the extension raises. Their classes are found once, when the extension is loaded.

use std::{ffi::c_int, io, sync::OnceLock};

use magnus::{
    Error, Exception, ExceptionClass, Module, RClass, Ruby, Value,
    prelude::*,
    rb_sys::{AsRawValue, FromRawValue, protect},
    value::Opaque,
};
use rb_sys::VALUE;
use reactor_scheduler::state::object_ref::ObjectRef;

use crate::ruby::{io::set_hidden, object::Object};

/// The message of Ruby's own IOError if another thread closes the IO under a thread that waits for it.
const CLOSED_ELSEWHERE: &str = "stream closed in another thread";

/// The message of Ruby's own IO::TimeoutError.
const TIMED_OUT: &str = "Blocking operation timed out!";

/// Classes that magnus has no method for.
struct Classes {
    fiber_error: Opaque<ExceptionClass>,
    io_timeout_error: Opaque<ExceptionClass>,
    system_call_error: Opaque<ExceptionClass>,
    allocation_error: Opaque<ExceptionClass>,
}

static CLASSES: OnceLock<Classes> = OnceLock::new();

/// Finds the classes. Called from Init.
pub fn find_classes(ruby: &Ruby) -> Result<(), Error> {
    let find = |owner: RClass, name: &str| -> Result<Opaque<ExceptionClass>, Error> {
        let class: ExceptionClass = owner.const_get(name)?;
        ruby.gc_register_mark_object(class);
        Ok(class.into())
    };
    let classes = Classes {
        fiber_error: find(ruby.class_object(), "FiberError")?,
        io_timeout_error: find(ruby.class_io(), "TimeoutError")?,
        system_call_error: find(ruby.class_object(), "SystemCallError")?,
        allocation_error: find(ruby.class_io().const_get("Buffer")?, "AllocationError")?,
    };
    CLASSES.get_or_init(|| classes);
    Ok(())
}

fn class(ruby: &Ruby, select: impl Fn(&Classes) -> Opaque<ExceptionClass>) -> ExceptionClass {
    let class = CLASSES.get().map(select);
    class.map_or_else(
        || ruby.exception_runtime_error(), // Init finds them before there is any method to call
        |class| ruby.get_inner(class),
    )
}

/// The VM that has called this thread's method.
pub fn ruby() -> Ruby {
    // Only reached from methods that Ruby called.
    Ruby::get().unwrap_or_else(|_| std::process::abort())
}

/// The error that raises this object, if it is an exception, or what `raise(object)` would raise.
#[cold]
pub fn exception(object: ObjectRef) -> Error {
    match Exception::from_value(object.value()) {
        Some(exception) => exception.into(),
        None => make_exception(&[object.value()]).unwrap_or_else(|error| error),
    }
}

/// The error that `raise(exception, message)` would raise; nil is no message.
#[cold]
pub fn exception_with_message(exception: Value, message: Value) -> Error {
    let made = if message.is_nil() {
        make_exception(&[exception])
    } else {
        make_exception(&[exception, message])
    };
    made.unwrap_or_else(|error| error)
}

/// The exception that `raise(*arguments)` would raise.
fn make_exception(arguments: &[Value]) -> Result<Error, Error> {
    let mut copy: Vec<VALUE> = arguments.iter().map(|a| a.as_raw()).collect();
    // SAFETY: the copies are alive in the caller's frame too; what is raised is caught.
    let made =
        protect(|| unsafe { rb_sys::rb_make_exception(copy.len() as c_int, copy.as_mut_ptr()) })?;
    // SAFETY: a return value of Ruby.
    let made = unsafe { Value::from_raw(made) };
    Ok(match Exception::from_value(made) {
        Some(exception) => Error::from(exception),
        None => Error::new(
            Ruby::get_with(made).exception_type_error(),
            "exception class/object expected",
        ),
    })
}

pub fn is_fiber_error(exception: Value) -> bool {
    exception.is_kind_of(class(&ruby(), |classes| classes.fiber_error))
}

#[cold]
pub fn fiber_error(message: &'static str) -> Error {
    Error::new(class(&ruby(), |classes| classes.fiber_error), message)
}

#[cold]
pub fn runtime_error(message: impl Into<String>) -> Error {
    Error::new(ruby().exception_runtime_error(), message.into())
}

#[cold]
pub fn argument_error(message: impl Into<String>) -> Error {
    Error::new(ruby().exception_arg_error(), message.into())
}

#[cold]
pub fn io_error(message: &'static str) -> Error {
    Error::new(ruby().exception_io_error(), message)
}

#[cold]
pub fn io_timeout_error() -> Error {
    let class = class(&ruby(), |classes| classes.io_timeout_error);
    Error::new(class, TIMED_OUT)
}

/// Raised for an IO::Buffer that was freed, or made smaller, while it was in use.
#[cold]
pub fn not_allocated() -> Error {
    let class = class(&ruby(), |classes| classes.allocation_error);
    Error::new(class, "The buffer is not allocated!")
}

/// Raised in a fiber that uses an IO while another fiber or thread closes it.
#[cold]
pub fn closed_elsewhere() -> Error {
    Error::new(ruby().exception_io_error(), CLOSED_ELSEWHERE)
}

/// The same as an object, to be raised in another fiber.
pub fn closed_elsewhere_exception(ruby: &Ruby) -> Result<Exception, Error> {
    ruby.exception_io_error().new_instance((CLOSED_ELSEWHERE,))
}

/// The error that Ruby raises when every thread waits for another one.
#[cold]
pub fn deadlock(message: String) -> Error {
    match ruby().exception_fatal().new_instance((message,)) {
        Ok(exception) => exception.into(),
        Err(error) => error,
    }
}

/// The Errno exception for a failed system call.
#[cold]
pub fn system_error(error: &io::Error) -> Error {
    errno(error.raw_os_error().unwrap_or(0), None)
}

/// Makes errno what a system call leaves that would have to wait, for code of the VM's that reads it.
#[cold]
pub fn set_errno_to_would_block() {
    // SAFETY: it stores a number that belongs to this thread.
    unsafe { rb_sys::rb_errno_set(libc::EAGAIN) };
}

/// The Errno exception with this number, for what has failed.
#[cold]
pub fn errno(code: i32, what: Option<&str>) -> Error {
    let class = class(&ruby(), |classes| classes.system_call_error);
    match class.new_instance((what, code)) {
        Ok(exception) => Error::from(exception),
        Err(error) => error,
    }
}

/// A core that did not open: what the system said, or ArgumentError with the reason.
#[cold]
pub fn unavailable(error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(_) => system_error(error),
        None => argument_error(error.to_string()),
    }
}

/// Socket::ResolutionError with an error_code of getaddrinfo(3)'s.
#[cold]
pub fn resolution_error(message: &str, code: i32) -> Error {
    let ruby = ruby();
    let made = || {
        let class = resolution_error_class(&ruby)?;
        let exception: Exception =
            class.new_instance((ruby.str_from_slice(message.as_bytes()),))?;
        let code = ruby.integer_from_i64(code.into());
        set_hidden(exception.as_value(), c"error_code", code.as_value())?;
        Ok(exception.into())
    };
    made().unwrap_or_else(|error| error)
}

/// Found at its first use, because the socket library may be loaded later than the extension.
fn resolution_error_class(ruby: &Ruby) -> Result<ExceptionClass, Error> {
    static CLASS: OnceLock<Opaque<ExceptionClass>> = OnceLock::new();
    if let Some(class) = CLASS.get() {
        return Ok(ruby.get_inner(*class));
    }
    let socket: RClass = ruby.class_object().const_get("Socket")?;
    let class: ExceptionClass = socket.const_get("ResolutionError")?;
    ruby.gc_register_mark_object(class);
    CLASS.get_or_init(|| class.into());
    Ok(class)
}
