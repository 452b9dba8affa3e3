//! Converts Ruby objects to the addresses that the scheduler's state keeps, and back. Reports references to the garbage
//! collector.

use magnus::{
    Ruby, Value,
    gc::Marker,
    rb_sys::{AsRawValue, FromRawValue},
    value::{Opaque, ReprValue},
};
use rb_sys::{RBasic, VALUE};
use reactor_scheduler::state::object_ref::ObjectRef;

/// The address of an object. Code that keeps an address marks the object: marking pins it, so the address stays valid.
pub fn object_ref(value: impl ReprValue) -> ObjectRef {
    // SAFETY: a live object. As with `Value` itself, whoever keeps it marks it.
    unsafe { ObjectRef::from_address(value.as_raw() as usize) }
}

/// Converts an address back to an object.
pub trait Object {
    fn value(self) -> Value;

    /// Marks the object, and thereby pins it.
    fn mark(self, marker: &Marker);
}

impl Object for ObjectRef {
    fn value(self) -> Value {
        // SAFETY: made from a live Value, and marked by its keeper ever since.
        unsafe { Value::from_raw(raw(self)) }
    }

    fn mark(self, marker: &Marker) {
        marker.mark(self.value());
    }
}

pub(super) fn raw(object: ObjectRef) -> VALUE {
    object.address() as VALUE
}

/// Tells the garbage collector that `owner` now refers to `young`.
pub fn write_barrier(owner: impl ReprValue, young: ObjectRef) {
    // SAFETY: both are live objects, neither nil nor numbers, which have no barrier; it allocates nothing in them.
    unsafe {
        if !rb_sys::SPECIAL_CONST_P(raw(young)) {
            rb_sys::rb_gc_writebarrier(owner.as_raw(), raw(young));
        }
    }
}

pub fn is_kind_of(object: Value, class: Opaque<Value>) -> bool {
    let class = Ruby::get_with(object).get_inner(class);
    // SAFETY: a class check on live objects.
    unsafe { rb_sys::rb_obj_is_kind_of(object.as_raw(), class.as_raw()) == rb_sys::Qtrue as VALUE }
}

/// The frozen String with these bytes that Ruby interns, as for a literal.
pub fn interned(bytes: &[u8]) -> Value {
    let length = bytes.len().try_into().unwrap_or(0);
    // SAFETY: bytes and their number, which are copied; the result is a live object on the caller's stack.
    unsafe { Value::from_raw(rb_sys::rb_interned_str(bytes.as_ptr().cast(), length)) }
}

/// Whether Ruby code may use the object. The VM hides some of its objects by clearing their class, yet passes them to
/// hooks: up to Ruby 3.4, the mutex on which `IO#close` waits. Sending a hidden object a message, even `is_a?`, crashes
/// the process.
pub fn is_visible(object: Value) -> bool {
    let object = object.as_raw();
    // SAFETY: a live object that is not a special constant begins with an RBasic.
    unsafe { rb_sys::SPECIAL_CONST_P(object) || (*(object as usize as *const RBasic)).klass != 0 }
}
