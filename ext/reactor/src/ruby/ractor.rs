//! Per-Ractor state: this library's schedulers in it.

use std::sync::OnceLock;

use magnus::{
    Error, RArray, Value,
    prelude::*,
    rb_sys::{AsRawValue, FromRawValue},
};

use crate::ruby::{
    hidden_ivar,
    object::{Object, object_ref},
    thread::current_scheduler,
};

/// The key under which a Ractor stores the map of its schedulers. Made when the extension is loaded.
pub fn key() -> rb_sys::rb_ractor_local_key_t {
    static KEY: OnceLock<usize> = OnceLock::new(); // an address
    // SAFETY: no arguments, never raises.
    let key =
        KEY.get_or_init(|| unsafe { rb_sys::rb_ractor_local_storage_value_newkey() } as usize);
    *key as rb_sys::rb_ractor_local_key_t
}

/// `Reactor::Internal.schedulers`: an ObjectSpace::WeakMap whose keys are this Ractor's schedulers; nil before the first
/// one.
pub fn schedulers() -> Value {
    // SAFETY: our own key; a live object, or nil.
    unsafe { Value::from_raw(rb_sys::rb_ractor_local_storage_value(key())) }
}

/// `Reactor::Internal.schedulers = map`, called with each change of the map.
pub fn set_schedulers(map: Value) {
    hidden_ivar::clear(map);
    // SAFETY: our own key, and a live object.
    unsafe { rb_sys::rb_ractor_local_storage_value_set(key(), map.as_raw()) };
}

/// This Ractor's schedulers that have not ended.
///
/// If there is only one scheduler, its address is cached in the map. While it is also the thread's scheduler, closing
/// an IO allocates no array, and so does not hasten the next garbage collection.
pub fn each_scheduler() -> Result<impl Iterator<Item = Value>, Error> {
    let map = schedulers();
    let current = current_scheduler();
    let (mut lone, mut keys): (Option<Value>, Option<RArray>) = (None, None);
    if hidden_ivar::known(map) == Some(current.address() as u64) {
        lone = Some(current.value());
    } else if !map.is_nil() {
        let found: RArray = map.funcall("keys", ())?;
        if found.len() == 1 {
            hidden_ivar::set(map, object_ref(found.entry::<Value>(0)?).address() as u64);
        }
        keys = Some(found);
    }
    let count = keys.map_or(0, RArray::len);
    let others = (0..count).filter_map(move |index| keys?.entry(index as isize).ok());
    Ok(lone.into_iter().chain(others))
}
