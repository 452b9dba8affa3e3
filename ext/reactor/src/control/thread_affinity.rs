//! Which thread of which process may use a scheduler.

use std::cell::Cell;

use magnus::{Error, Ruby, Value};
use reactor_scheduler::state::object_ref::ObjectRef;

use crate::ruby::{
    error::runtime_error,
    object::object_ref,
    thread::{current_scheduler, current_thread, fork_generation},
};

/// The thread that created the scheduler, or the thread on which the scheduler was set before its first use.
#[derive(Debug, Default)]
pub struct ThreadAffinity(Cell<Option<Claim>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claim {
    /// Only compared with the current thread, so it need not be marked.
    thread: ObjectRef,
    forks: u32,
    /// Until the scheduler is used on its thread, it may still be set on another thread.
    used: bool,
}

impl ThreadAffinity {
    /// Binds a new scheduler to the current thread.
    pub fn claim(&self) {
        self.set(false);
    }

    fn set(&self, used: bool) {
        self.0.set(Some(Claim {
            thread: current_thread(),
            forks: fork_generation(),
            used,
        }));
    }

    /// Whether the current thread may use the scheduler (ThreadError if not) in this process (false if not).
    pub fn check(&self, ruby: &Ruby, scheduler: Value) -> Result<bool, Error> {
        let thread = current_thread();
        let Some(claim) = self.0.get() else {
            return Err(runtime_error("uninitialized scheduler"));
        };
        if claim.forks != fork_generation() {
            return Ok(false);
        }
        if claim.thread != thread {
            if claim.used || current_scheduler() != object_ref(scheduler) {
                let message = "this scheduler belongs to another thread";
                return Err(Error::new(ruby.exception_thread_error(), message));
            }
            self.set(true);
        } else if !claim.used {
            self.set(true);
        }
        Ok(true)
    }

    /// Whether the current thread may use the scheduler in this process, and has used it before. If false, [`ThreadAffinity::check`]
    /// tells why.
    pub fn is_in_use(&self) -> bool {
        let thread = current_thread();
        let claim = self.0.get();
        claim.is_some_and(|claim| {
            claim.used && claim.thread == thread && claim.forks == fork_generation()
        })
    }

    /// The current thread, in a hook that has already checked that it may use the scheduler, so the VM is not asked again.
    pub fn thread_in_hook(&self) -> ObjectRef {
        let claim = self.0.get();
        claim.map_or_else(current_thread, |claim| claim.thread)
    }

    /// Whether the current thread is the scheduler's.
    pub fn is_current_thread(&self) -> bool {
        let thread = current_thread();
        self.0.get().is_some_and(|claim| claim.thread == thread)
    }

    /// Whether this process is a forked child of the scheduler's process.
    pub fn is_forked_child(&self) -> bool {
        let claim = self.0.get();
        claim.is_some_and(|claim| claim.forks != fork_generation())
    }
}
