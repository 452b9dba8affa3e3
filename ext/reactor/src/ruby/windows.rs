//! Windows: what takes a function of Ruby's DLL, or needs none.

use std::{ffi::c_int, os::windows::io::RawHandle};

use reactor_scheduler::system::{child_process::Children, errno::Errno};

/// As on Unix.
pub const SOCKETS_HAVE_OWN_NONBLOCK: bool = false;

/// Nothing, because there is no fork.
pub fn on_fork(_child: extern "C" fn()) {}

/// True: each thread of Ruby's has a native one, and keeps it.
pub fn lock_native_thread() -> bool {
    true
}

/// Blocks until Process.wait(pid) would have an answer, and takes nothing. Returns early if the thread is interrupted, and at once
/// when there is no such child.
pub fn await_change(pid: i32, _flags: i32) -> Result<(), Errno> {
    unsafe extern "C" {
        /// WaitForMultipleObjects, which an interrupt of the current thread ends as well (ruby/win32.h).
        fn rb_w32_wait_events_blocking(
            handles: *const RawHandle,
            count: c_int,
            milliseconds: u32,
        ) -> c_int;
    }
    let children = Children::find(pid);
    let handles = children.handles();
    if !handles.is_empty() {
        let count = handles.len() as c_int;
        // SAFETY: called by a thread of Ruby's; the handles stay open meanwhile.
        unsafe { rb_w32_wait_events_blocking(handles.as_ptr(), count, children.limit) };
    }
    Ok(())
}
