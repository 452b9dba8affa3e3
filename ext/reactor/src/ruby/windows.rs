//! Windows: what takes a function of Ruby's DLL, or needs none.

use std::{
    ffi::c_int,
    mem::ManuallyDrop,
    net::TcpStream,
    os::windows::io::{FromRawSocket, RawHandle},
};

use reactor_scheduler::system::{child_process::Children, descriptor::Descriptor, errno::Errno};

/// As on Unix.
pub const SOCKETS_HAVE_OWN_NONBLOCK: bool = false;

/// Whether socket methods call `io_wait` before they try (RSOCK_WAIT_BEFORE_BLOCKING of rubysocket.h), and not after EAGAIN.
pub const SOCKETS_WAIT_FIRST: bool = true;

/// The answer of Ruby's read for memory that cannot be.
pub const TOO_LARGE: Errno = Errno::INVAL;

/// Tells Ruby that the socket is non-blocking, so that its own `send`, `recvmsg` and others wait by `io_wait` instead of in the call.
pub fn make_nonblocking(descriptor: Descriptor) {
    unsafe extern "C" {
        /// Of ruby/win32.h.
        fn rb_w32_set_nonblock(descriptor: c_int) -> c_int;
    }
    // SAFETY: any number may be given.
    if unsafe { rb_w32_set_nonblock(descriptor.number()) } != 0 {
        // Ruby takes a copy (`IO#dup`) for a pipe. If this fails, the first transfer meets the reason.
        // SAFETY: a socket, which is never closed here.
        let socket = ManuallyDrop::new(unsafe { TcpStream::from_raw_socket(descriptor.polled()) });
        _ = socket.set_nonblocking(true);
    }
}

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
