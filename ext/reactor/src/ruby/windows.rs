//! The Windows versions of `unix.rs`, through functions of Ruby's DLL where necessary.

use std::{
    ffi::c_int,
    mem::ManuallyDrop,
    net::TcpStream,
    os::windows::io::{FromRawSocket, RawHandle},
};

use reactor_scheduler::system::{child_process::Children, descriptor::Descriptor, errno::Errno};

/// Whether socket methods call `io_wait` before their first attempt (RSOCK_WAIT_BEFORE_BLOCKING in rubysocket.h) instead of
/// after EAGAIN.
pub const SOCKETS_WAIT_FIRST: bool = true;

/// How Ruby's read answers an impossible size.
pub const TOO_LARGE: Errno = Errno::INVAL;

/// Tells Ruby that the socket is non-blocking, so that its own `send`, `recvmsg` and others wait through `io_wait` instead
/// of inside the call.
pub fn make_nonblocking(descriptor: Descriptor) {
    unsafe extern "C" {
        /// Declared in ruby/win32.h.
        fn rb_w32_set_nonblock(descriptor: c_int) -> c_int;
    }
    // SAFETY: any number may be passed.
    if unsafe { rb_w32_set_nonblock(descriptor.number()) } != 0 {
        // Ruby takes a duplicated socket (`IO#dup`) for a pipe. If this fails, the first transfer gets the error.
        // SAFETY: a socket, which is never closed here.
        let socket = ManuallyDrop::new(unsafe { TcpStream::from_raw_socket(descriptor.polled()) });
        _ = socket.set_nonblocking(true);
    }
}

/// Does nothing: there is no fork.
pub fn on_fork(_child: extern "C" fn()) {}

/// True: each Ruby thread has its own native thread, and keeps it.
pub fn lock_native_thread() -> bool {
    true
}

/// Blocks until Process.wait(pid) would return, without reaping. Returns early if the thread is interrupted, and at once if
/// there is no such child.
pub fn await_change(pid: i32, _flags: i32) -> Result<(), Errno> {
    unsafe extern "C" {
        /// WaitForMultipleObjects, which an interrupt of the current thread also ends (ruby/win32.h).
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
        // SAFETY: called by a Ruby thread; the handles stay open meanwhile.
        unsafe { rb_w32_wait_events_blocking(handles.as_ptr(), count, children.limit) };
    }
    Ok(())
}
