//! Waiting until a thread is blocked in the kernel, so that a wake meets a sleeping thread.

use std::{fs, path::PathBuf, thread};

/// The state of one thread, as proc(5) reports it; unknown on systems other than Linux.
pub struct ThreadState(Option<PathBuf>);

impl ThreadState {
    /// The calling thread.
    pub fn current() -> Self {
        let thread = fs::read_link("/proc/thread-self").ok();
        Self(thread.map(|thread| PathBuf::from("/proc").join(thread).join("stat")))
    }

    /// Returns when the thread sleeps, after 100,000 looks, or at once if the state is unknown. A test must pass in each case: the
    /// sleep only makes it more precise.
    pub fn wait_until_asleep(&self) {
        for _ in 0..100_000 {
            if self.letter().is_none_or(|letter| letter == 'S') {
                return;
            }
            thread::yield_now();
        }
    }

    /// The state: the letter after the thread's name, which is in brackets.
    fn letter(&self) -> Option<char> {
        let text = fs::read_to_string(self.0.as_ref()?).ok()?;
        text.rsplit_once(')')?.1.trim_start().chars().next()
    }
}
