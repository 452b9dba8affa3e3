//! A lock for changing Ruby's own classes: one thread of the process holds it, in any Ractor.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use magnus::Error;

use crate::ruby::thread::{check_interrupts, fork_generation, interruptible_call};

struct PatchLock {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The fork generation of the process that holds the lock. A thread of the parent process, which a fork does not
    /// copy, holds nothing in the child.
    holder: Option<u32>,
    /// Counts interrupts of waiting threads.
    interrupts: u64,
}

/// A forked child uses another element than its parent, because a fork may copy a mutex that another thread has locked.
static LOCKS: [PatchLock; 16] = [const { PatchLock::new() }; 16];

impl PatchLock {
    const fn new() -> Self {
        let state = State {
            holder: None,
            interrupts: 0,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the lock is free, and takes it: true. False after an interrupt that came since there were `interrupts`.
    fn wait(&self, process: u32, interrupts: u64) -> bool {
        let state = self.state();
        let mut state = self
            .changed
            .wait_while(state, |state| {
                state.holder == Some(process) && state.interrupts == interrupts
            })
            .unwrap_or_else(PoisonError::into_inner);
        let is_free = state.holder != Some(process);
        if is_free {
            state.holder = Some(process);
        }
        is_free
    }

    fn interrupt(&self) {
        self.state().interrupts += 1;
        self.changed.notify_all();
    }

    fn unlock(&self) {
        self.state().holder = None;
        self.changed.notify_all();
    }
}

fn of_process(process: u32) -> &'static PatchLock {
    &LOCKS[process as usize % LOCKS.len()]
}

/// `Reactor::Internal.lock_patches`: waits without the GVL until the caller holds the lock. It holds it until it calls
/// [`unlock_patches`].
pub fn lock_patches() -> Result<(), Error> {
    let process = fork_generation();
    let lock = of_process(process);
    loop {
        // Read before the VM looks for interrupts: an interrupt after that is counted.
        let interrupts = lock.state().interrupts;
        let taken = interruptible_call(|| lock.wait(process, interrupts), &|| lock.interrupt());
        if taken == Some(true) {
            return Ok(());
        }
        check_interrupts()?;
    }
}

/// `Reactor::Internal.unlock_patches`
pub fn unlock_patches() {
    of_process(fork_generation()).unlock();
}
