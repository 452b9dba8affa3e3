//! Methods that the VM calls all the time: defined without the conversions magnus wraps around a function, which cost
//! some 350 instructions a call.

use std::{
    any::Any,
    ffi::{CStr, c_int},
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicPtr, Ordering},
};

use magnus::{
    Error, IntoValue, RClass, RModule, Ruby, TryConvert, TypedData, Value, rb_sys::AsRawValue,
    typed_data::Obj,
};
use rb_sys::VALUE;

use crate::ruby::panics;

/// The type of a receiver. The VM's description of it is noted at the first call.
pub trait Receiver: TypedData + 'static {
    fn receiver_type() -> &'static ReceiverType<Self>;
}

/// The VM's description of a type, once it is known.
pub struct ReceiverType<T>(AtomicPtr<rb_sys::rb_data_type_t>, PhantomData<fn() -> T>);

impl<T> ReceiverType<T> {
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()), PhantomData)
    }
}

/// A function that carries nothing: its type is all there is to it.
pub trait Body<T, R, const COUNT: usize>:
    Fn(&Ruby, Obj<T>, [Value; COUNT]) -> Result<R, Error> + Copy + 'static
{
}

impl<T, R, const COUNT: usize, F> Body<T, R, COUNT> for F where
    F: Fn(&Ruby, Obj<T>, [Value; COUNT]) -> Result<R, Error> + Copy + 'static
{
}

/// The same, for any number of arguments.
pub trait VariadicBody<T, R>:
    Fn(&Ruby, Obj<T>, &[Value]) -> Result<R, Error> + Copy + 'static
{
}

impl<T, R, F> VariadicBody<T, R> for F where
    F: Fn(&Ruby, Obj<T>, &[Value]) -> Result<R, Error> + Copy + 'static
{
}

type Trampoline = unsafe extern "C" fn(c_int, *const Value, Value) -> Value;

/// Defines a method of `T`'s class that takes `COUNT` arguments; ArgumentError for any other number. (To Ruby its arity is
/// -1, and so one form of function does for all.)
pub fn define<T: Receiver, R: IntoValue, const COUNT: usize, F: Body<T, R, COUNT>>(
    class: RClass,
    name: &CStr,
    _body: F,
) {
    unsafe extern "C" fn enter<T, R, const COUNT: usize, F>(
        argc: c_int,
        argv: *const Value,
        this: Value,
    ) -> Value
    where
        T: Receiver,
        R: IntoValue,
        F: Body<T, R, COUNT>,
    {
        // SAFETY: the VM passes argc values at argv, alive while this runs.
        let arguments = unsafe { given(argc, argv) };
        run(this, |ruby, this| match arguments.try_into() {
            Ok(arguments) => function::<F>()(ruby, this, arguments),
            Err(_) => Err(wrong_number(ruby, arguments.len(), &COUNT.to_string())),
        })
    }
    define_entry(class, name, enter::<T, R, COUNT, F>);
}

/// Defines a method that takes any number of arguments.
pub fn define_variadic<T: Receiver, R: IntoValue, F: VariadicBody<T, R>>(
    class: RClass,
    name: &CStr,
    _body: F,
) {
    unsafe extern "C" fn enter<T: Receiver, R: IntoValue, F: VariadicBody<T, R>>(
        argc: c_int,
        argv: *const Value,
        this: Value,
    ) -> Value {
        // SAFETY: the VM passes argc values at argv, alive while this runs.
        let arguments = unsafe { given(argc, argv) };
        run(this, |ruby, this| function::<F>()(ruby, this, arguments))
    }
    define_entry(class, name, enter::<T, R, F>);
}

/// Defines a private function of a module that takes a `T` and `COUNT` arguments; as [`define`]. A fiber's body calls it without
/// a name to look up, as it would for `__send__`.
pub fn define_private_function<
    T: Receiver,
    R: IntoValue,
    const COUNT: usize,
    F: Body<T, R, COUNT>,
>(
    module: RModule,
    name: &CStr,
    _body: F,
) {
    unsafe extern "C" fn enter<T, R, const COUNT: usize, F>(
        argc: c_int,
        argv: *const Value,
        module: Value,
    ) -> Value
    where
        T: Receiver,
        R: IntoValue,
        F: Body<T, R, COUNT>,
    {
        // SAFETY: the VM passes argc values at argv, alive while this runs.
        let arguments = unsafe { given(argc, argv) };
        let this = arguments.first().copied().unwrap_or(module);
        run(this, |ruby, this| {
            match arguments.get(1..).unwrap_or_default().try_into() {
                Ok(arguments) => function::<F>()(ruby, this, arguments),
                Err(_) => Err(wrong_number(
                    ruby,
                    arguments.len(),
                    &(COUNT + 1).to_string(),
                )),
            }
        })
    }
    // SAFETY: a live module, a valid C string, and a function of the form that the count -1 stands for.
    unsafe {
        let entry = enter::<T, R, COUNT, F>;
        let entry = std::mem::transmute::<Trampoline, unsafe extern "C" fn() -> VALUE>(entry);
        let class = rb_sys::rb_singleton_class(module.as_raw());
        rb_sys::rb_define_private_method(class, name.as_ptr(), Some(entry), -1);
    }
}

/// # Safety
///
/// There are argc values at argv; if there are none, it may be anything.
unsafe fn given<'a>(argc: c_int, argv: *const Value) -> &'a [Value] {
    match argc {
        0 => &[],
        // SAFETY: as the caller says.
        _ => unsafe { slice::from_raw_parts(argv, argc as usize) },
    }
}

fn define_entry(class: RClass, name: &CStr, entry: Trampoline) {
    // SAFETY: a live class, a valid C string, and a function of the form that the count -1 stands for.
    unsafe {
        let entry = std::mem::transmute::<Trampoline, unsafe extern "C" fn() -> VALUE>(entry);
        rb_sys::rb_define_method(class.as_raw(), name.as_ptr(), Some(entry), -1);
    }
}

/// ArgumentError for too few or too many arguments, as Ruby raises it.
#[cold]
pub fn wrong_number(ruby: &Ruby, given: usize, expected: &str) -> Error {
    let message = format!("wrong number of arguments (given {given}, expected {expected})");
    Error::new(ruby.exception_arg_error(), message)
}

/// The function of type `F`. The caller was given a value of the type.
pub(super) fn function<F: Copy + 'static>() -> F {
    const { assert!(size_of::<F>() == 0, "a function carries nothing") };
    // SAFETY: there was a value of this type, and without size all of them are alike.
    unsafe { NonNull::<F>::dangling().read() }
}

/// Calls the body, and raises its error. Nothing that needs dropping is in this frame then.
fn run<T: Receiver, R: IntoValue>(
    this: Value,
    body: impl FnOnce(&Ruby, Obj<T>) -> Result<R, Error>,
) -> Value {
    let ruby = Ruby::get_with(this);
    let result = catch_unwind(AssertUnwindSafe(|| {
        panics::point("method");
        let this = match receiver(this) {
            Some(this) => this,
            None => unusual_receiver(this)?,
        };
        body(&ruby, this)
    }));
    match result {
        Ok(Ok(value)) => value.into_value_with(&ruby),
        Ok(Err(error)) => raise(error),
        Err(panic) => raise(panicked(&ruby, panic)),
    }
}

#[cold]
fn raise(error: Error) -> ! {
    // SAFETY: the VM has called us, and no frame in between has anything to drop.
    unsafe { magnus::rb_sys::resume_error(error) }
}

#[cold]
fn panicked(ruby: &Ruby, panic: Box<dyn Any + Send>) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::new(ruby.exception_fatal(), text.unwrap_or("panic").to_owned())
}

/// The object as a `T`, if it is of the type that was seen before.
fn receiver<T: Receiver>(this: Value) -> Option<Obj<T>> {
    let raw = this.as_raw();
    let known = T::receiver_type().0.load(Ordering::Relaxed).cast_const();
    // SAFETY: a receiver is an object, and only a T_DATA is asked what data it has.
    let same = unsafe {
        rb_sys::RB_TYPE_P(raw, rb_sys::ruby_value_type::RUBY_T_DATA)
            && rb_sys::RTYPEDDATA_P(raw)
            && rb_sys::RTYPEDDATA_TYPE(raw) == known
    };
    const { assert!(size_of::<Obj<T>>() == size_of::<VALUE>()) };
    // SAFETY: Obj is a transparent VALUE, of an object with a T as its data: that is what was noted.
    same.then(|| unsafe { std::mem::transmute_copy::<VALUE, Obj<T>>(&raw) })
}

/// The first receiver ever, or TypeError.
#[cold]
fn unusual_receiver<T: Receiver>(this: Value) -> Result<Obj<T>, Error> {
    let object = Obj::<T>::try_convert(this)?;
    // SAFETY: it was just found to be one.
    let seen = unsafe { rb_sys::RTYPEDDATA_TYPE(this.as_raw()) };
    T::receiver_type()
        .0
        .store(seen.cast_mut(), Ordering::Relaxed);
    Ok(object)
}
