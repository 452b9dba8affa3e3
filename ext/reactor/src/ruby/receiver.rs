//! The receiver and arguments of methods that the VM calls constantly.

use std::ptr;

use magnus::{Error, Ruby, TryConvert, TypedData, Value, rb_sys::AsRawValue, typed_data::Obj};
use rb_sys::VALUE;

use crate::ruby::panics;

/// A receiver. magnus' own conversion to [`Obj`] checks the type inside a protection, and so takes some 300
/// instructions more.
pub struct Receiver<T: TypedData>(pub Obj<T>);

impl<T: TypedData> TryConvert for Receiver<T> {
    fn try_convert(object: Value) -> Result<Self, Error> {
        panics::point("method");
        if !has_type::<T>(object) {
            return Obj::try_convert(object).map(Self); // TypeError
        }
        const { assert!(size_of::<Obj<T>>() == size_of::<VALUE>()) };
        // SAFETY: Obj is a transparent VALUE, here of an object whose data is a T.
        Ok(Self(unsafe {
            std::mem::transmute_copy::<Value, Obj<T>>(&object)
        }))
    }
}

fn has_type<T: TypedData>(object: Value) -> bool {
    let object = object.as_raw();
    // SAFETY: only a T_DATA is asked for its data. A DataType is a transparent rb_data_type_t.
    unsafe {
        rb_sys::RB_TYPE_P(object, rb_sys::ruby_value_type::RUBY_T_DATA)
            && rb_sys::RTYPEDDATA_P(object)
            && rb_sys::RTYPEDDATA_TYPE(object) == ptr::from_ref(T::data_type()).cast()
    }
}

/// ArgumentError for too few or too many arguments, as Ruby raises it.
#[cold]
pub fn wrong_number(ruby: &Ruby, given: usize, expected: &str) -> Error {
    let message = format!("wrong number of arguments (given {given}, expected {expected})");
    Error::new(ruby.exception_arg_error(), message)
}
