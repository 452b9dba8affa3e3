//! Waiting until a thread is blocked in the kernel, so that what is meant to end its sleep meets a sleeper.

use std::{fs, path::PathBuf, thread};

/// The state of one thread, as proc(5) reports it. Elsewhere than on Linux nothing is known.
pub struct ThreadState(Option<PathBuf>);

impl ThreadState {
    /// The calling thread.
    pub fn current() -> Self {
        let thread = fs::read_link("/proc/thread-self").ok();
        Self(thread.map(|thread| PathBuf::from("/proc").join(thread).join("stat")))
    }

    /// Returns when the thread sleeps, or after 100,000 looks. A test must be right in either order: it only becomes sharper.
    pub fn wait_until_asleep(&self) {
        for _ in 0..100_000 {
            if self.letter().is_none_or(|letter| letter == 'S') {
                return;
            }
            thread::yield_now();
        }
    }

    /// The letter of the state: the first one behind the name, which stands in brackets.
    fn letter(&self) -> Option<char> {
        let text = fs::read_to_string(self.0.as_ref()?).ok()?;
        text.rsplit_once(')')?.1.trim_start().chars().next()
    }
}
