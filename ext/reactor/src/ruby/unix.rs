//! Unix: forks, VM symbols that only some versions have, and calls that Ruby interrupts with a signal.

pub use reactor_scheduler::system::child_process::await_change;
use reactor_scheduler::system::{descriptor::Descriptor, errno::Errno};

/// Whether socket methods call `io_wait` before their first attempt instead of after EAGAIN.
pub const SOCKETS_WAIT_FIRST: bool = false;

/// How read(2) answers an impossible size.
pub const TOO_LARGE: Errno = Errno::FAULT;

/// Does nothing: each call itself says whether it may block.
pub fn make_nonblocking(_: Descriptor) {}

/// Makes each forked child call this function. It must be async-signal-safe.
pub fn on_fork(child: extern "C" fn()) {
    // SAFETY: the handler is a function, and is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// See [`lock_native_thread`](crate::ruby::thread::lock_native_thread).
pub fn lock_native_thread() -> bool {
    // SAFETY: looks up a name in the loaded libraries.
    let found =
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"rb_thread_lock_native_thread".as_ptr()) };
    if found.is_null() {
        return false;
    }
    // SAFETY: declared this way in Ruby's ruby/thread.h.
    let lock: unsafe extern "C" fn() -> bool = unsafe { std::mem::transmute(found) };
    // SAFETY: called by a Ruby thread that holds the GVL; it increments a counter and never raises.
    unsafe { lock() };
    true
}
