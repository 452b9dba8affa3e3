//! A number kept in a hidden instance variable of an object: a fiber's own number, or an IO's if it has no entry in the
//! table of [`io_number_table`](super::io_number_table). No two objects ever have the same number, whatever their addresses.

use std::{
    ffi::{CStr, c_char},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use magnus::{
    Value,
    rb_sys::{AsRawValue, protect},
    value::ReprValue,
};
use rb_sys::{ID, VALUE};

/// The object's number. If it has none, it gets one. `None` for a frozen object, which cannot store a number.
pub fn given(object: Value) -> Option<u64> {
    let known = known(object);
    if known.is_none() && !object.is_frozen() {
        let number = next_serial();
        set(object, number);
        return Some(number);
    }
    known
}

pub fn next_serial() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The object's number, if it has one.
pub fn known(object: Value) -> Option<u64> {
    // SAFETY: reading an instance variable never raises; the name has no @ and so is invisible to Ruby.
    let known = unsafe { rb_sys::rb_ivar_get(object.as_raw(), name()) };
    if known == rb_sys::Qnil as VALUE {
        return None;
    }
    // SAFETY: only this module writes the variable, and writes only Integers. (On Windows a Fixnum has 31 bits.)
    Some(unsafe {
        match rb_sys::FIXNUM_P(known) {
            true => rb_sys::FIX2LONG(known) as u64,
            false => rb_sys::rb_num2ull(known),
        }
    })
}

/// Sets the number of an object that is not frozen.
pub fn set(object: Value, number: u64) {
    // SAFETY: an object that is not frozen accepts it without raising, unless memory runs out. (A protection would be the
    // deepest frame on the stack of a reading fiber.)
    unsafe { rb_sys::rb_ivar_set(object.as_raw(), name(), rb_sys::rb_ull2inum(number)) };
}

/// Removes the number; the next call of [`given`] assigns a new one.
pub fn clear(object: Value) {
    // SAFETY: FrozenError is caught; a frozen object has no number anyway.
    _ = protect(|| unsafe { rb_sys::rb_ivar_set(object.as_raw(), name(), rb_sys::Qnil as VALUE) });
}

/// The name of the variable. Made when the extension is loaded.
pub fn name() -> ID {
    static ID: OnceLock<ID> = OnceLock::new();
    const NAME: &CStr = c"__reactor__";
    // SAFETY: a valid C string.
    *ID.get_or_init(|| unsafe { rb_sys::rb_intern(NAME.as_ptr().cast::<c_char>()) })
}
