//! Whether the code that runs is a trap handler or a finalizer: the VM calls these in the middle of other code.

use std::ffi::c_int;

use magnus::{
    Error, RArray, RString, Value,
    rb_sys::{FromRawValue, protect},
};
use rb_sys::VALUE;
use reactor_scheduler::state::object_ref::ObjectRef;

use crate::ruby::{call::call_method, object::raw};

/// A mutex for [`refuses_locks`], which no code keeps locked.
pub fn new_mutex() -> Result<ObjectRef, Error> {
    // SAFETY: no arguments; it raises if there is no memory.
    let mutex = protect(|| unsafe { rb_sys::rb_mutex_new() })?;
    Ok(ObjectRef::new(mutex as usize))
}

/// Whether the code that runs may lock no mutex: it is a trap handler, or a finalizer that the VM has put off. `mutex` must be a
/// [`new_mutex`] that no other thread uses.
#[inline(never)]
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

/// Whether the code that runs is a finalizer that a full collection runs at once (`GC.start` and the like), outside of timeouts that
/// began in it. Such a finalizer may lock mutexes. The VM keeps what `Thread#raise` raises away from it.
#[cold]
pub fn is_finalizer_of_full_collection() -> bool {
    const DEPTH: usize = 256;
    let (mut frames, mut lines): ([VALUE; DEPTH], [c_int; DEPTH]) = ([0; DEPTH], [0; DEPTH]);
    // SAFETY: room for DEPTH frames in both.
    let found = unsafe {
        rb_sys::rb_profile_frames(0, DEPTH as c_int, frames.as_mut_ptr(), lines.as_mut_ptr())
    };
    let found = usize::try_from(found).unwrap_or(0);
    frames[..found]
        .iter()
        .take_while(|frame| !begins_timeout(**frame))
        .any(|frame| is_of_collector(*frame))
}

/// The same of a fiber that has resumed another one. Paths in its backtrace may be of any encoding, so their bytes are looked at.
pub fn is_in_finalizer_of_full_collection(fiber: Value) -> Result<bool, Error> {
    let backtrace = call_method(fiber, "backtrace", &[])?;
    let Some(lines) = RArray::from_value(backtrace) else {
        return Ok(false); // it has ended
    };
    let timeout = b"timeout_after'";
    Ok(lines
        .into_iter()
        .filter_map(RString::from_value)
        .take_while(|line| {
            !bytes(line)
                .windows(timeout.len())
                .any(|part| part == timeout)
        })
        .any(|line| bytes(&line).starts_with(b"<internal:gc>")))
}

fn bytes(line: &RString) -> &[u8] {
    // SAFETY: looked at before the next Ruby call.
    unsafe { line.as_slice() }
}

fn begins_timeout(frame: VALUE) -> bool {
    // SAFETY: a frame just taken, and still there; the name is nil or a String.
    is_text(
        unsafe { rb_sys::rb_profile_frame_method_name(frame) },
        "timeout_after",
    )
}

fn is_of_collector(frame: VALUE) -> bool {
    // SAFETY: as above.
    is_text(
        unsafe { rb_sys::rb_profile_frame_path(frame) },
        "<internal:gc>",
    )
}

fn is_text(value: VALUE, text: &str) -> bool {
    // SAFETY: compared at once, no Ruby call in between.
    let string = unsafe { RString::from_value(Value::from_raw(value)) };
    string.is_some_and(|string| unsafe { string.as_slice() } == text.as_bytes())
}
