//! The VM's fibers: creating, switching, raising, killing.

use std::{
    ffi::{c_int, c_long},
    hint::black_box,
    ptr,
    sync::OnceLock,
};

use magnus::{
    Error, Exception, Module, RArray, RClass, Ruby, Value,
    rb_sys::{AsRawId, AsRawValue, FromRawValue, protect},
    value::ReprValue,
};
use rb_sys::{ID, VALUE};
use reactor_scheduler::state::object_ref::ObjectRef;

use crate::ruby::{
    call::{call_method, raw_arguments},
    error::is_unwinding,
    object::{Object, object_ref, raw},
};

pub fn current_fiber() -> ObjectRef {
    // SAFETY: no arguments, never raises; a value returned by Ruby.
    unsafe { ObjectRef::from_address(rb_sys::rb_fiber_current() as usize) }
}

pub fn is_fiber(object: Value) -> bool {
    // SAFETY: a class check on a live object.
    unsafe { rb_sys::rb_obj_is_fiber(object.as_raw()) == rb_sys::Qtrue as VALUE }
}

/// Keeps a fiber on this stack, where the garbage collector finds it, until a switch to it has returned. Up to Ruby
/// 3.4.10 and 4.0.5 the VM still checks after the switch whether that fiber has ended, through a pointer that does not
/// keep the fiber alive. If it has ended, there may be no other reference to it.
fn keep_alive(fiber: ObjectRef) {
    black_box(raw(fiber));
}

/// Switches to `fiber`. Returns when control comes back, or with the exception raised here.
pub fn transfer(fiber: ObjectRef, arguments: &[Value]) -> Result<(), Error> {
    transfer_for_answer(fiber, arguments).map(drop)
}

/// Like [`transfer`]; returns what this fiber is given with control.
fn transfer_for_answer(fiber: ObjectRef, arguments: &[Value]) -> Result<VALUE, Error> {
    let (count, first) = raw_arguments(arguments);
    // SAFETY: the arguments live in the caller's frame, which is suspended with this call.
    let result = protect(|| unsafe { rb_sys::rb_fiber_transfer(raw(fiber), count, first) });
    keep_alive(fiber);
    result
}

/// Whether the VM calls no scheduler in the current fiber, because the fiber is blocking.
pub fn is_blocking() -> bool {
    // SAFETY: no arguments, never raises.
    unsafe { rb_sys::rb_fiber_scheduler_current() == rb_sys::Qnil as VALUE }
}

/// The fiber that switches to new fibers if the current fiber is blocking: see `VM::Starter` in Ruby. Called before the state
/// says that the new fiber runs, because a trap handler may run in this call.
pub fn starter(scheduler: Value) -> Result<Option<Value>, Error> {
    let is_needed = is_blocking();
    is_needed
        .then(|| call_method(scheduler, "starter", &[]))
        .transpose()
}

/// Switches to a new fiber.
pub fn start_fiber(
    starter: Option<Value>,
    fiber: ObjectRef,
    arguments: &[Value],
) -> Result<(), Error> {
    match starter {
        Some(starter) => start_by(starter, fiber, arguments),
        None => transfer(fiber, arguments),
    }
}

#[cold]
fn start_by(starter: Value, fiber: ObjectRef, arguments: &[Value]) -> Result<(), Error> {
    let arguments = Ruby::get_with(starter)
        .ary_new_from_values(arguments)
        .as_value();
    let given = [current_fiber().value(), fiber.value(), arguments];
    let answer = transfer_for_answer(object_ref(starter), &given);
    keep_alive(fiber);
    // SAFETY: a value returned by Ruby.
    let answer = unsafe { Value::from_raw(answer?) };
    match Exception::from_value(answer) {
        Some(error) if is_unborn(fiber.value()) => Err(error.into()),
        _ => Ok(()), // the value of a fiber that has ended, or nil
    }
}

/// `Fiber#raise` from outside; the VM follows the chain of resumed fibers and raises in the innermost.
pub fn raise_in(fiber: ObjectRef, exception: Value) -> Result<(), Error> {
    let mut arguments = [exception.as_raw()];
    let first = arguments.as_mut_ptr();
    // SAFETY: one argument, alive on this stack. The parameter is `const VALUE *` before Ruby 4.0 and `VALUE *` since; a
    // mutable pointer is accepted as either.
    let result = protect(|| unsafe { rb_sys::rb_fiber_raise(raw(fiber), 1, first) });
    keep_alive(fiber);
    result.map(drop)
}

/// The class Fiber, the name of its `new`, and the proc that every fiber runs.
static TEMPLATE: OnceLock<(VALUE, ID, VALUE)> = OnceLock::new();

/// Sets the proc run by fibers created with [`new_fiber`]. Only the first call has an effect.
pub fn define_fiber_body(body: Value) -> Result<(), Error> {
    let ruby = Ruby::get_with(body);
    let class: RClass = ruby.class_object().const_get("Fiber")?;
    let new = ruby.intern("new").as_raw();
    ruby.gc_register_mark_object(body);
    ruby.gc_register_mark_object(class);
    _ = TEMPLATE.set((class.as_raw(), new, body.as_raw()));
    Ok(())
}

/// A suspended non-blocking fiber with this storage, or a copy of the current fiber's. When first switched to, it runs the
/// body with the arguments of that switch.
pub fn new_fiber(ruby: &Ruby, storage: Option<Value>) -> Result<ObjectRef, Error> {
    let Some(&(class, new, body)) = TEMPLATE.get() else {
        let class = ruby.exception_not_imp_error();
        return Err(Error::new(class, "fibers have no body"));
    };
    let mut options = None;
    if let Some(storage) = storage {
        let named = ruby.hash_new();
        named.aset(ruby.to_symbol("storage"), storage)?;
        options = Some(named.as_value());
    }
    let (count, first) = raw_arguments(options.as_slice());
    let keywords = rb_sys::RB_PASS_KEYWORDS as c_int * count;
    // SAFETY: live values, the options on this stack; an invalid storage raises.
    let fiber = protect(|| unsafe {
        rb_sys::rb_funcall_with_block_kw(class, new, count, first, body, keywords)
    })?;
    // SAFETY: a value returned by Ruby.
    Ok(unsafe { ObjectRef::from_address(fiber as usize) })
}

/// Whether the fiber has never run: only such a fiber is alive but has no current line.
pub fn is_unborn(fiber: Value) -> bool {
    let is_alive = call_method(fiber, "alive?", &[]).is_ok_and(|answer| answer.to_bool());
    let lines = call_method(fiber, "backtrace", &[]);
    is_alive
        && lines.is_ok_and(|lines| RArray::from_value(lines).is_none_or(|lines| lines.is_empty()))
}

/// Ends the current fiber with `Fiber#kill`, which no rescue can stop.
pub fn kill(fiber: ObjectRef) -> Error {
    let killed = fiber.value().funcall::<_, _, Value>("kill", ());
    // `Fiber#kill` returns only for a fiber that is already being killed. But the VM raises the kill again on every
    // switch back to that fiber, so switching to an empty fiber and back ends it.
    match killed.and_then(|_| switch_to_empty_fiber()) {
        Err(error) => error,
        Ok(()) => unreachable!("a killed fiber does not continue"),
    }
}

/// A switch without effect, except that the VM raises here the kill that it raises on every switch back to a killed
/// fiber.
pub fn switch_to_empty_fiber() -> Result<(), Error> {
    unsafe extern "C" fn empty(_: VALUE, _: VALUE, _: c_int, _: *const VALUE, _: VALUE) -> VALUE {
        rb_sys::Qnil as VALUE
    }
    protect(|| {
        // SAFETY: the function has a block's signature and returns at once; exceptions are caught.
        unsafe {
            let fiber = rb_sys::rb_fiber_new(Some(empty), rb_sys::Qnil as VALUE);
            let value = rb_sys::rb_fiber_resume(fiber, 0, ptr::null());
            black_box(fiber);
            value
        }
    })
    .map(drop)
}

/// Whether this error is the unwinding of a killed fiber. Call this before any Ruby code runs.
pub fn is_kill(error: &Error) -> bool {
    // eval_intern.h: RUBY_FATAL_FIBER_KILLED, since Ruby 3.3.
    const KILLED: c_long = 2;
    // SAFETY: reads the object that the VM stored beside the tag with which it jumped.
    is_unwinding(error) && unsafe { rb_sys::rb_errinfo() == rb_sys::LONG2FIX(KILLED) }
}

/// Lets a killed fiber continue, so that its `ensure` blocks can wait.
pub fn clear_kill() {
    // SAFETY: nil may always be stored there.
    unsafe { rb_sys::rb_set_errinfo(rb_sys::Qnil as VALUE) };
}
