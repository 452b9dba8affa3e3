//! How a program tells the supervisor which calls count: by getpriority(2) with a number that no process has.

/// `BEGIN + number`: from now on the calls of this process count. They belong to the trial with this number.
pub const BEGIN: u64 = 1_200_000_000;
/// How many trials a program may have.
const TRIALS: u64 = 100_000;
/// From now on the calls of this process do not count.
pub const END: u64 = 1_000_000_001;
/// The calling thread is the library's from now on, as each new thread is.
pub const LIBRARY: u64 = 1_000_000_002;
/// The calling thread is the test's from now on: its calls do not count.
pub const TEST: u64 = 1_000_000_003;

/// `OWNED + 1000 * task + descriptor`: from now on the descriptor belongs to this task of the program.
pub const OWNED: u64 = 1_100_000_000;
/// How many descriptors a mark can tell of, and how many tasks.
pub const DESCRIPTORS: u64 = 1000;
const TASKS: u64 = 1000;

/// The number of the trial that begins, if the mark says so.
pub fn begun(mark: u64) -> Option<usize> {
    let number = mark.checked_sub(BEGIN)?;
    (number < TRIALS).then_some(number as usize)
}

/// The descriptor and the task of a mark, if it is one of these.
pub fn owned(mark: u64) -> Option<(i32, u64)> {
    let number = mark.checked_sub(OWNED)?;
    let task = number / DESCRIPTORS;
    (task < TASKS).then_some(((number % DESCRIPTORS) as i32, task))
}

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
