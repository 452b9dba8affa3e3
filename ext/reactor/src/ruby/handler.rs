//! Whether the code that runs is a trap handler or a finalizer: the VM calls these in the middle of other code.

use std::ffi::c_int;

use magnus::{
    Error, RArray, RString, Value,
    prelude::*,
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

/// Whether the code that runs is in a finalizer that a full collection runs at once (`GC.start` and the like), and how many blocks of
/// timeouts have begun in the finalizer. Such a finalizer may lock mutexes. The VM keeps what `Thread#raise` raises away from it.
///
/// `None` if it is in no finalizer, or if `limit` blocks come first, from the innermost frame on.
#[cold]
pub fn blocks_in_finalizer(limit: usize) -> Option<usize> {
    let mut blocks = 0;
    for frame in current_frames() {
        if is_of_collector(frame) {
            return Some(blocks);
        }
        blocks += usize::from(begins_timeout(frame));
        if blocks == limit {
            return None;
        }
    }
    None
}

/// All frames of the current fiber. Ruby 3.3 does not skip frames, so more and more are taken until there is room for all.
fn current_frames() -> Vec<VALUE> {
    let mut room = 256;
    loop {
        let (mut frames, mut lines): (Vec<VALUE>, Vec<c_int>) = (vec![0; room], vec![0; room]);
        // SAFETY: room for as many frames in both.
        let found = unsafe {
            let limit = c_int::try_from(room).unwrap_or(c_int::MAX);
            rb_sys::rb_profile_frames(0, limit, frames.as_mut_ptr(), lines.as_mut_ptr())
        };
        let found = usize::try_from(found).unwrap_or(0);
        if found < room {
            frames.truncate(found);
            return frames;
        }
        room *= 4;
    }
}

/// The same of a fiber that has resumed another one. Paths in its backtrace may be of any encoding, so their bytes are looked at.
pub fn blocks_in_finalizer_of(fiber: Value, limit: usize) -> Result<Option<usize>, Error> {
    let backtrace = call_method(fiber, "backtrace", &[])?;
    let Some(lines) = RArray::from_value(backtrace) else {
        return Ok(None); // it has ended
    };
    let mut blocks = 0;
    let mut was_block = false;
    let mut lines = lines.into_iter().filter_map(RString::from_value).peekable();
    while let Some(line) = lines.next() {
        if is_line_of_collector(bytes(&line), lines.peek().map(bytes)) {
            return Ok(Some(blocks));
        }
        // A subclass may have a method of this name that calls super.
        let is_block = BLOCKS
            .iter()
            .any(|method| ends_with_method(bytes(&line), method));
        blocks += usize::from(is_block && !was_block);
        was_block = is_block;
        if blocks == limit {
            return Ok(None);
        }
    }
    Ok(None)
}

/// The native methods that run the block of a timeout.
const BLOCKS: [&str; 2] = ["timeout_after", "interruptible"];

fn bytes(line: &RString) -> &[u8] {
    // SAFETY: looked at before the next Ruby call.
    unsafe { line.as_slice() }
}

/// From Ruby 4.0 on, a method of the VM's own has the place of its caller, which is the next line.
fn is_line_of_collector(line: &[u8], caller: Option<&[u8]>) -> bool {
    const IN: &[u8] = b":in '";
    if line.starts_with(b"<internal:gc>") {
        return true;
    }
    let Some(end) = line.windows(IN.len()).rposition(|part| part == IN) else {
        return false;
    };
    let (place, method) = (&line[..end + IN.len()], &line[end + IN.len()..]);
    COLLECTORS.iter().any(|name| method.starts_with(name))
        && caller.is_some_and(|caller| caller.starts_with(place))
}

/// How the names of the methods begin that collect garbage.
const COLLECTORS: [&[u8]; 3] = [b"GC.", b"GC#", b"ObjectSpace.garbage_collect"];

/// Whether this line of a backtrace is of the method. Its class stands before the name from Ruby 3.4 on.
fn ends_with_method(line: &[u8], method: &str) -> bool {
    let line = line.strip_suffix(b"'");
    line.is_some_and(|line| line.ends_with(method.as_bytes()))
}

/// A native method has no path.
fn begins_timeout(frame: VALUE) -> bool {
    // SAFETY: a frame just taken, and still there, because nothing is allocated meanwhile; the path and the name are nil or Strings.
    let (path, name) = unsafe {
        (
            rb_sys::rb_profile_frame_path(frame),
            rb_sys::rb_profile_frame_method_name(frame),
        )
    };
    is_nil(path) && BLOCKS.iter().any(|method| is_text(name, method))
}

fn is_nil(value: VALUE) -> bool {
    // SAFETY: a value just got.
    unsafe { Value::from_raw(value) }.is_nil()
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
