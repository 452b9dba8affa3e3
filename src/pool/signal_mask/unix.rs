//! Unix: a new thread inherits the signal mask of its creator; see pthread_create(3).

use std::{mem::MaybeUninit, ptr};

/// Signals raised by the thread's own instructions. If they were blocked, the kernel would kill the process without
/// running a handler that prints diagnostics.
const FAULTS: [libc::c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// Runs `start` with all signals except [`FAULTS`] blocked in this thread. Threads that `start` creates inherit the
/// mask, so the kernel delivers signals to other threads.
pub(super) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises `all` before it is read. The first pthread_sigmask initialises `before`; it fails
    // only for an invalid `how`. A panic in `start` would leave the signals blocked, which is not unsafe.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in FAULTS {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let result = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        result
    }
}
