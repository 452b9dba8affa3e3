//! Unix: forks, names of the VM that only some versions have, and calls that Ruby interrupts by a signal.

pub use reactor_scheduler::system::child_process::await_change;
use reactor_scheduler::system::{descriptor::Descriptor, errno::Errno};

/// Whether BasicSocket has a `read_nonblock` and a `write_nonblock` of its own, which call no hook (socket.rb). All known Rubies.
pub const SOCKETS_HAVE_OWN_NONBLOCK: bool = cfg!(target_os = "linux");

/// Whether socket methods call `io_wait` before they try, and not after EAGAIN.
pub const SOCKETS_WAIT_FIRST: bool = false;

/// The answer of read(2) for memory that cannot be.
pub const TOO_LARGE: Errno = Errno::FAULT;

/// Nothing: a call says by itself whether it may block.
pub fn make_nonblocking(_: Descriptor) {}

/// Has each forked child call this, which must be async-signal-safe.
pub fn on_fork(child: extern "C" fn()) {
    // SAFETY: the handler is a function, and is never unloaded.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// As [`lock_native_thread`](crate::ruby::thread::lock_native_thread).
pub fn lock_native_thread() -> bool {
    // SAFETY: looking a name up in what is loaded.
    let found =
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"rb_thread_lock_native_thread".as_ptr()) };
    if found.is_null() {
        return false;
    }
    // SAFETY: Ruby's ruby/thread.h declares it so.
    let lock: unsafe extern "C" fn() -> bool = unsafe { std::mem::transmute(found) };
    // SAFETY: called by a Ruby thread that holds the GVL; it counts and never raises.
    unsafe { lock() };
    true
}
