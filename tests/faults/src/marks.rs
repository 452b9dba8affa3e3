//! How a program tells the supervisor which calls count: by getpriority(2) with a number that no process has.

/// From now on the calls of the program count.
pub const BEGIN: u64 = 1_000_000_001;
/// From now on they do not.
pub const END: u64 = 1_000_000_002;
/// The calling thread is the library's from now on, as each new thread is.
pub const LIBRARY: u64 = 1_000_000_003;
/// The calling thread is the test's from now on: its calls do not count.
pub const TEST: u64 = 1_000_000_004;

/// Makes a mark. Without a supervisor it has no effect.
pub fn mark(mark: u64) {
    // SAFETY: no pointer is passed.
    unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, mark) };
}

/// Runs code of the library on a thread that is the test's otherwise.
pub fn library<T>(run: impl FnOnce() -> T) -> T {
    mark(LIBRARY);
    let result = run();
    mark(TEST);
    result
}
