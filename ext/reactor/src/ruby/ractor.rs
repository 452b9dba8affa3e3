//! State of each Ractor: the schedulers of this library in it.

use std::{ptr, sync::OnceLock};

use magnus::{
    Error, RArray, Ruby, Value,
    prelude::*,
    rb_sys::{AsRawId, AsRawValue, FromRawValue, protect},
};
use rb_sys::ID;

/// The key under which a Ractor keeps it, as an address.
static SCHEDULERS: OnceLock<usize> = OnceLock::new();

fn key() -> rb_sys::rb_ractor_local_key_t {
    // SAFETY: no arguments, never raises.
    let key = SCHEDULERS
        .get_or_init(|| unsafe { rb_sys::rb_ractor_local_storage_value_newkey() } as usize);
    *key as rb_sys::rb_ractor_local_key_t
}

/// `Reactor::Internal.schedulers`: an ObjectSpace::WeakMap whose keys are this Ractor's schedulers; nil before the first one.
pub fn schedulers() -> Value {
    // SAFETY: a key of ours; a live object, or nil.
    unsafe { Value::from_raw(rb_sys::rb_ractor_local_storage_value(key())) }
}

/// `Reactor::Internal.schedulers = map`
pub fn set_schedulers(map: Value) {
    // SAFETY: a key of ours, a live object.
    unsafe { rb_sys::rb_ractor_local_storage_value_set(key(), map.as_raw()) };
}

/// This Ractor's schedulers that have not ended.
pub fn each_scheduler() -> Result<impl Iterator<Item = Value>, Error> {
    static KEYS: OnceLock<ID> = OnceLock::new();
    let schedulers = schedulers();
    let keys = match schedulers.is_nil() {
        true => None,
        false => {
            let name = *KEYS.get_or_init(|| Ruby::get_with(schedulers).intern("keys").as_raw());
            // SAFETY: a live object; the method takes no arguments, and what is raised is caught.
            let keys = protect(|| unsafe {
                rb_sys::rb_funcallv(schedulers.as_raw(), name, 0, ptr::null())
            })?;
            // SAFETY: a return value of Ruby.
            RArray::from_value(unsafe { Value::from_raw(keys) })
        }
    };
    let count = keys.map_or(0, RArray::len);
    Ok((0..count).filter_map(move |index| keys?.entry(index as isize).ok()))
}
