//! Whether the code that runs is a trap handler or a finalizer: the VM calls these in the middle of other code.

use magnus::{Error, rb_sys::protect};
use reactor_scheduler::state::object_ref::ObjectRef;

use crate::ruby::object::raw;

/// A mutex for [`refuses_locks`], which no code keeps locked.
pub fn new_mutex() -> Result<ObjectRef, Error> {
    // SAFETY: no arguments; it raises if there is no memory.
    let mutex = protect(|| unsafe { rb_sys::rb_mutex_new() })?;
    Ok(ObjectRef::new(mutex as usize))
}

/// Whether the code that runs may lock no mutex: it is a trap handler, or a finalizer that the VM has put off. `mutex` must be a
/// [`new_mutex`] that no other thread uses.
pub fn refuses_locks(mutex: ObjectRef) -> bool {
    let locked = protect(|| {
        // SAFETY: a live mutex that no fiber has locked, so it does not wait; it may raise, hence the protection.
        unsafe {
            rb_sys::rb_mutex_lock(raw(mutex));
            rb_sys::rb_mutex_unlock(raw(mutex))
        }
    });
    locked.is_err()
}
