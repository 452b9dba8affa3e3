//! Unix: a thread starts with the signal mask of the one that makes it.

use std::{mem::MaybeUninit, ptr};

/// Raised by the thread's own instructions: to block them would only turn a diagnosis into a bare death.
const OWN_FAULT: [libc::c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];

/// Runs `start` with all signals blocked in this thread, so that a thread it makes never gets one: they go to those of
/// the program that expect them.
pub(super) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: sigfillset makes the set whole before anything reads it; `before` is written by the first pthread_sigmask,
    // which can only fail for a bad `how`. Nothing in between unwinds past the restoring call: `start` is ours and a
    // panic in it would leave the signals blocked, no more.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in OWN_FAULT {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let result = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        result
    }
}
