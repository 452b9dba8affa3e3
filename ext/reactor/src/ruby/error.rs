//! The exceptions that the extension raises.

use std::{ffi::c_int, io};

use magnus::{
    Error, Exception, ExceptionClass, RClass, Ruby, Value,
    error::ErrorType,
    prelude::*,
    rb_sys::{AsRawValue, FromRawValue, protect},
};
use rb_sys::VALUE;
use reactor::Backend;
use reactor_scheduler::{state::object_ref::ObjectRef, system::errno::Errno};

use crate::ruby::{
    io::set_hidden,
    object::{Object, interned},
};

/// An error class that magnus has no method for. RuntimeError if its constant is missing.
fn class(owner: RClass, name: &str) -> ExceptionClass {
    let class = owner.const_get(name);
    class.unwrap_or_else(|_: Error| ruby().exception_runtime_error())
}

fn fiber_error_class() -> ExceptionClass {
    class(ruby().class_object(), "FiberError")
}

/// The VM that called this thread's method.
pub fn ruby() -> Ruby {
    // Only reached from methods called by Ruby.
    Ruby::get().unwrap_or_else(|_| std::process::abort())
}

/// The exception that an error raises. `Err` if the error unwinds without an exception: a kill, or a throw.
///
/// Use this instead of `Error::value`. For an error made in Rust, that returns the exception's class, because magnus
/// creates the exception only when it raises it.
#[cold]
pub fn into_exception(error: Error) -> Result<Exception, Error> {
    match error.error_type() {
        ErrorType::Jump(_) => Err(error),
        ErrorType::Error(class, message) => class.new_instance((message.as_ref(),)),
        ErrorType::Exception(exception) => Ok(*exception),
    }
}

/// Whether the error unwinds without an exception. Ruby code that runs meanwhile may make the VM forget the kind of
/// unwinding.
pub fn is_unwinding(error: &Error) -> bool {
    matches!(error.error_type(), ErrorType::Jump(_))
}

/// The error that raises this object if it is an exception, or what `raise(object)` would raise; for nil,
/// [`closed_elsewhere`].
#[cold]
pub fn exception(object: ObjectRef) -> Error {
    match Exception::from_value(object.value()) {
        Some(exception) => exception.into(),
        None if object.value().is_nil() => closed_elsewhere(),
        None => raised_by(&[object.value()]),
    }
}

/// The error that `raise(*arguments)` would raise.
#[cold]
pub fn raised_by(arguments: &[Value]) -> Error {
    let mut copy: Vec<VALUE> = arguments.iter().map(|a| a.as_raw()).collect();
    // SAFETY: the copies are alive in the caller's frame too; exceptions are caught.
    let made =
        protect(|| unsafe { rb_sys::rb_make_exception(copy.len() as c_int, copy.as_mut_ptr()) });
    // SAFETY: a value returned by Ruby.
    let made = made.map(|made| Exception::from_value(unsafe { Value::from_raw(made) }));
    match made {
        Ok(Some(exception)) => exception.into(),
        Ok(None) => {
            let class = ruby().exception_type_error();
            Error::new(class, "exception class/object expected")
        }
        Err(error) => error,
    }
}

pub fn is_fiber_error(error: &Error) -> bool {
    error.is_kind_of(fiber_error_class())
}

#[cold]
pub fn fiber_error(message: &'static str) -> Error {
    Error::new(fiber_error_class(), message)
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
    let class = class(ruby().class_io(), "TimeoutError");
    Error::new(class, "Blocking operation timed out!")
}

/// Raised when an IO::Buffer is freed or shrunk while in use.
#[cold]
pub fn not_allocated() -> Error {
    let buffer = ruby().class_io().const_get("Buffer");
    buffer.map_or_else(
        |error| error,
        |buffer| {
            Error::new(
                class(buffer, "AllocationError"),
                "The buffer is not allocated!",
            )
        },
    )
}

/// Raised in a fiber that uses an IO while another fiber or thread closes it. All share one frozen message, as in Ruby
/// itself.
#[cold]
pub fn closed_elsewhere() -> Error {
    let message = interned(b"stream closed in another thread");
    let exception = ruby().exception_io_error().new_instance((message,));
    exception.map_or_else(|error| error, Error::from)
}

/// The Errno exception for a failed system call.
#[cold]
pub fn system_error(error: &io::Error) -> Error {
    let reason = error.raw_os_error().is_none().then(|| error.to_string());
    errno(Errno::from(error).number(), reason.as_deref())
}

/// Sets errno as a system call that would block sets it, for VM code that reads errno.
#[cold]
pub fn set_errno_to_would_block() {
    // SAFETY: it stores a number in this thread's own errno.
    unsafe { rb_sys::rb_errno_set(Errno::AGAIN.number()) };
}

/// The Errno exception with this number, for any kind of failure.
#[cold]
pub fn errno(code: i32, what: Option<&str>) -> Error {
    let class = ruby().exception_system_call_error();
    let exception = class.new_instance((what, code));
    exception.map_or_else(|error| error, Error::from)
}

/// The error for a backend that could not be opened: the system's, or ArgumentError with the reason.
#[cold]
pub fn unavailable(backend: Option<Backend>, error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(code) if backend == Some(Backend::Uring) => shortage(code, "io_uring_setup"),
        Some(_) => system_error(error),
        None => argument_error(error.to_string()),
    }
}

/// The Errno exception for a backend for which descriptors or memory are short: this is what failed.
#[cold]
pub fn shortage(code: i32, what: &str) -> Error {
    match code == Errno::NOMEM.number() && what == "io_uring_setup" {
        true => errno(code, Some("io_uring_setup, which RLIMIT_MEMLOCK limits")),
        false => errno(code, Some(what)),
    }
}

/// Socket::ResolutionError with an error_code from getaddrinfo(3).
#[cold]
pub fn resolution_error(message: &str, code: i32) -> Error {
    let ruby = ruby();
    let made = || {
        let socket: RClass = ruby.class_object().const_get("Socket")?;
        let class: ExceptionClass = socket.const_get("ResolutionError")?;
        let exception = class.new_instance((ruby.str_from_slice(message.as_bytes()),))?;
        let code = ruby.integer_from_i64(code.into());
        set_hidden(exception.as_value(), c"error_code", code.as_value())?;
        Ok(exception.into())
    };
    made().unwrap_or_else(|error| error)
}
