//! Ruby threads, the GVL, trap handlers, and forks.

use std::{
    ffi::{c_int, c_void},
    panic::resume_unwind,
    ptr,
    sync::{
        Once,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
};

use magnus::{
    Error, Thread, Value,
    prelude::*,
    rb_sys::{AsRawValue, FromRawValue, protect},
};
use reactor::{Handle, Sleep};
use reactor_scheduler::state::object_ref::ObjectRef;

use crate::ruby::{
    call::{call_method, protected},
    object::{Object, object_ref, raw},
    panics, platform,
};

/// The scheduler of the current thread, or nil.
pub fn current_scheduler() -> ObjectRef {
    // SAFETY: no arguments, never raises; a value returned by Ruby.
    unsafe { ObjectRef::from_address(rb_sys::rb_fiber_scheduler_get() as usize) }
}

pub fn current_thread() -> ObjectRef {
    // SAFETY: no arguments, never raises; a value returned by Ruby.
    unsafe { ObjectRef::from_address(rb_sys::rb_thread_current() as usize) }
}

static FORKS: AtomicU32 = AtomicU32::new(0);

/// The number of forks between the process that loaded the extension and this one. It distinguishes a process from its
/// parent without a system call.
pub fn fork_generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

pub fn count_forks() {
    extern "C" fn child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| platform::on_fork(child));
}

/// Keeps the current Ruby thread on its native thread from now on; false if this Ruby cannot do that (before 3.4). In
/// Ractors other than the main one, and everywhere with RUBY_MN_THREADS=1, Ruby moves its threads between native
/// threads, while its own `fiber_switch` may still hold a thread-local address from before the switch. Not used on Ruby
/// 4.0: there threads may move, and 4.0.5 crashed in 9 of 25 runs when threads were kept on theirs (`nt_start`, no
/// context).
pub fn lock_native_thread() -> bool {
    platform::lock_native_thread()
}

/// Sleeps with the GVL released. Signals, `Thread#raise` and `Thread#kill` end the sleep by waking the handle; they are
/// *not* acted on here (`RB_NOGVL_INTR_FAIL`): see [`check_interrupts`].
///
/// No interrupt is missed. An interrupt that comes before the VM has stored the handle flags the thread; the VM checks
/// that flag under the same lock, and then does not sleep. An interrupt that comes later wakes the handle, and the wake
/// also ends a sleep that begins afterwards.
///
/// Ruby 4.1's `RB_NOGVL_PENDING_INTR_FAIL` would also refuse the sleep while a mask defers an exception. Under `:never`
/// that would make the loop spin until the mask ends. The callers check for exceptions deferred with `:on_blocking`
/// before they sleep.
pub fn without_gvl(sleep: &Sleep, handle: &Handle) {
    unsafe extern "C" fn interrupt(handle: *mut c_void) {
        // SAFETY: it outlives the call; waking is one write(2), lock-free and async-signal-safe.
        let handle = unsafe { &*handle.cast::<Handle>() };
        _ = panics::catch("interrupt of the sleep", || handle.wake());
    }
    // An error can only mean that there is nothing to sleep on; the next turn gets the same error and reports it.
    let call = || _ = sleep.block();
    let handle = ptr::from_ref(handle).cast_mut().cast();
    // SAFETY: handles may be used by any thread, and this one outlives the call.
    unsafe {
        call_without_gvl(
            call,
            (Some(interrupt), handle),
            rb_sys::RB_NOGVL_UBF_ASYNC_SAFE,
        )
    };
}

/// Makes a possibly slow system call with the GVL released. `None`, without making the call, if an interrupt is already
/// pending.
pub fn blocking_call<T>(call: impl FnOnce() -> T) -> Option<T> {
    // SAFETY: RUBY_UBF_IO (-1) is the VM's own function, which interrupts a system call with a signal.
    unsafe {
        let interrupt = std::mem::transmute::<isize, rb_sys::rb_unblock_function_t>(-1);
        call_without_gvl(call, (interrupt, ptr::null_mut()), 0)
    }
}

/// # Safety
///
/// `interrupt` may be called with its data on any thread until this returns. `call` does not use Ruby.
unsafe fn call_without_gvl<T, F: FnOnce() -> T>(
    call: F,
    interrupt: (rb_sys::rb_unblock_function_t, *mut c_void),
    flags: u32,
) -> Option<T> {
    struct Job<F, T>(Option<F>, Option<std::thread::Result<T>>);
    unsafe extern "C" fn run<F: FnOnce() -> T, T>(job: *mut c_void) -> *mut c_void {
        // SAFETY: the job lives in the caller's frame until rb_nogvl returns.
        let job = unsafe { &mut *job.cast::<Job<F, T>>() };
        job.1 = job.0.take().map(|call| panics::catch("call", call));
        ptr::null_mut()
    }
    let mut job = Job(Some(call), None);
    let flags = (rb_sys::RB_NOGVL_INTR_FAIL | flags) as c_int;
    // SAFETY: as above, and guaranteed by the caller.
    unsafe {
        let data = ptr::from_mut(&mut job).cast();
        rb_sys::rb_nogvl(Some(run::<F, T>), data, interrupt.0, interrupt.1, flags);
    }
    job.1
        .map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
}

/// Whether an interrupt is pending for the current thread, as seen from the current fiber. `thread` is that thread.
pub fn is_interrupted(thread: ObjectRef) -> bool {
    // SAFETY: reads a flag of the current thread, which is alive.
    unsafe { rb_sys::rb_thread_interrupted(thread.value().as_raw()) != 0 }
}

/// `Reactor::Internal.woken?(thread)`: whether an interrupt that ends the thread's wait is pending. Until the thread
/// has the GVL, its status still says that it waits.
pub fn is_woken(thread: Thread) -> Result<bool, Error> {
    // Ruby switches threads neither inside `alive?` nor after it, and an ended thread has no flag to read.
    let is_alive: bool = thread.funcall("alive?", ())?;
    // SAFETY: reads a flag of a thread that is alive.
    Ok(is_alive && unsafe { rb_sys::rb_thread_interrupted(thread.as_raw()) != 0 })
}

/// Whether a thread is the main thread of the current Ractor.
pub fn is_main(thread: ObjectRef) -> bool {
    // SAFETY: no arguments, never raises.
    thread.value().as_raw() == unsafe { rb_sys::rb_thread_main() }
}

/// Wakes the thread from a wait of the VM's. Does nothing if it is dead.
pub fn wake_up(thread: ObjectRef) {
    // SAFETY: a thread; never raises.
    unsafe { rb_sys::rb_thread_wakeup_alive(thread.value().as_raw()) };
}

/// Whether this Ractor has no other Ruby thread.
pub fn is_only_thread() -> bool {
    // SAFETY: called with the GVL, by a Ruby thread; reads a number.
    unsafe { rb_sys::rb_thread_alone() != 0 }
}

/// Whether an exception deferred by a mask is pending for this thread (`Thread.pending_interrupt?`).
pub fn has_pending_interrupt() -> Result<bool, Error> {
    let is_pending: Value = current_thread().value().funcall("pending_interrupt?", ())?;
    Ok(is_pending.to_bool())
}

/// Runs the pending interrupts of this thread: trap handlers, `Thread#raise`, `Thread#kill`, exceptions from signals.
pub fn check_interrupts() -> Result<(), Error> {
    // SAFETY: exceptions are caught.
    protected(|| unsafe { rb_sys::rb_thread_check_ints() })
}

/// `Reactor::Internal.without_handlers(proc)`: has the proc called in a postponed job, in which the VM runs no trap handler and no
/// finalizer. A fiber created there never runs one, because it inherits the mask. In the main Ractor only.
///
/// Now and then the job does not run: in a trap handler, if the VM's table of jobs is full, or if another thread of the Ractor calls
/// this in the middle of it. Then the caller does without.
pub fn without_handlers(job: Value) -> Result<(), Error> {
    static JOB: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn postponed(_: *mut c_void) {
        let address = JOB.swap(0, Ordering::Relaxed);
        if address != 0 {
            // SAFETY: the caller of `without_handlers` keeps the proc alive until it has taken its address back.
            let job = unsafe { ObjectRef::from_address(address) };
            drop(call_method(job.value(), "call", &[])); // the VM would drop the error, too
        }
    }
    JOB.store(object_ref(job).address(), Ordering::Relaxed);
    // SAFETY: a function that takes no data; the GVL is held.
    let handle =
        unsafe { rb_sys::rb_postponed_job_preregister(0, Some(postponed), ptr::null_mut()) };
    if handle != rb_sys::rb_postponed_job_handle_t::MAX {
        // SAFETY: a valid handle.
        unsafe { rb_sys::rb_postponed_job_trigger(handle) };
    }
    let result = check_interrupts();
    let mine = object_ref(job).address();
    _ = JOB.compare_exchange(mine, 0, Ordering::Relaxed, Ordering::Relaxed);
    result
}

/// Gives the GVL to threads that wait for it, each for at most its time slice, and runs the pending interrupts of this
/// thread.
pub fn yield_gvl() -> Result<(), Error> {
    // SAFETY: exceptions are caught.
    protected(|| unsafe { rb_sys::rb_thread_schedule() })
}

/// `Reactor::Internal.process_status(pid, number)`: a new Process::Status, which is now also `$?` of the current thread.
pub fn set_last_status(pid: i32, status: i32) -> Value {
    // SAFETY: makes an object; a value returned by Ruby.
    unsafe {
        rb_sys::rb_last_status_set(status, rb_sys::pid_t::from(pid)); // 64 bits on Windows
        Value::from_raw(rb_sys::rb_last_status_get())
    }
}

/// A mutex for [`runs_in_handler`]. It is never held.
pub fn new_mutex() -> Result<ObjectRef, Error> {
    // SAFETY: no arguments; raises if memory runs out.
    let mutex = protect(|| unsafe { rb_sys::rb_mutex_new() })?;
    // SAFETY: a value returned by Ruby.
    Ok(unsafe { ObjectRef::from_address(mutex as usize) })
}

/// Whether the running code must not lock a mutex: it is a trap handler, or a deferred finalizer that the VM calls in
/// the middle of other code. `mutex` must be a [`new_mutex`] that no other thread uses.
pub fn runs_in_handler(mutex: ObjectRef) -> bool {
    let locked = protect(|| {
        // SAFETY: a live mutex that no fiber has locked, so it does not wait; it may raise, hence the protection.
        unsafe {
            rb_sys::rb_mutex_lock(raw(mutex));
            rb_sys::rb_mutex_unlock(raw(mutex))
        }
    });
    locked.is_err()
}
