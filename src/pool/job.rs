//! One piece of work on its way through the pool.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::Shared;

/// What became of a job.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The work's result.
    Done(T),
    /// The work panicked, with this message. The worker goes on.
    Panicked(String),
    /// It was never run: the pool is gone, or belongs to the parent of this process.
    Dropped,
}

/// A job that was handed to a [`Pool`](super::Pool), as seen by whoever waits for it.
///
/// Everything the work touches belongs to the work, and its result to the job: whoever waits owns neither, and may leave
/// at any time. Dropping a job is leaving: work that has not begun never will; work that is going on goes on to its end,
/// unheard.
pub struct Job<T> {
    cell: Arc<Cell<T>>,
    shared: Arc<Shared>,
    number: u64,
    process: u32,
}

impl<T: Send + 'static> Job<T> {
    pub(super) fn new(
        work: impl FnOnce() -> T + Send + 'static,
        shared: Arc<Shared>,
        number: u64,
        process: u32,
    ) -> Self {
        let cell = Arc::new(Cell(Mutex::new(Stage::Waiting(Box::new(work)))));
        Self {
            cell,
            shared,
            number,
            process,
        }
    }

    pub(super) fn task(&self) -> Arc<dyn Task> {
        Arc::clone(&self.cell) as Arc<dyn Task>
    }

    /// What became of it; `None` as long as it is queued or going on, and once it was taken.
    pub fn take(&mut self) -> Option<Outcome<T>> {
        if !self.is_of_this_process() {
            return Some(Outcome::Dropped);
        }
        let mut stage = self.cell.stage();
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Ended(outcome) => Some(outcome),
            other => {
                *stage = other;
                None
            }
        }
    }
}

impl<T> Job<T> {
    /// Takes the work back if it has not begun. False if it has: then its end will be notified all the same.
    pub fn cancel(&mut self) -> bool {
        if !self.is_of_this_process() {
            return true;
        }
        let mut stage = self.cell.stage();
        if !matches!(*stage, Stage::Waiting(_)) {
            return false;
        }
        let work = std::mem::replace(&mut *stage, Stage::Over);
        drop(stage);
        self.shared.remove(self.number);
        drop(work); // which may run anything: no lock is held any more
        true
    }

    /// A child of fork(2) has a copy of the job, but not the worker, which may have held the lock.
    fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        if !self.is_of_this_process() || self.cancel() {
            return;
        }
        let mut stage = self.cell.stage();
        let unheard = match *stage {
            Stage::Running => std::mem::replace(&mut *stage, Stage::Unwanted),
            _ => std::mem::replace(&mut *stage, Stage::Over),
        };
        drop(stage);
        drop(unheard);
    }
}

impl<T> fmt::Debug for Job<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Job")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// A job as a worker sees it.
pub(super) trait Task: Send + Sync {
    /// Runs the work, unless it was taken back.
    fn run(&self) -> Ran;
    /// The work will never be run.
    fn discard(&self);
}

/// What a worker has to tell of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// Somebody waits for it.
    Wanted { panicked: bool },
    /// Whoever wanted it has left.
    Unwanted { panicked: bool },
    /// It had been taken back.
    Not,
}

struct Cell<T>(Mutex<Stage<T>>);

enum Stage<T> {
    Waiting(Box<dyn FnOnce() -> T + Send>),
    Running,
    /// Going on, with nobody there to hear of its end.
    Unwanted,
    Ended(Outcome<T>),
    Over,
}

impl<T> Cell<T> {
    fn stage(&self) -> MutexGuard<'_, Stage<T>> {
        // No stage is ever half written, and no foreign code runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Task for Cell<T> {
    fn run(&self) -> Ran {
        let mut stage = self.stage();
        let work = match std::mem::replace(&mut *stage, Stage::Running) {
            Stage::Waiting(work) => work,
            other => {
                *stage = other;
                return Ran::Not;
            }
        };
        drop(stage);
        let result = catch_unwind(AssertUnwindSafe(work));
        let panicked = result.is_err();
        let outcome = match result {
            Ok(result) => Outcome::Done(result),
            Err(payload) => Outcome::Panicked(message(payload)),
        };
        let mut stage = self.stage();
        if matches!(*stage, Stage::Unwanted) {
            *stage = Stage::Over;
            drop(stage);
            // Nobody has seen the result; what its own drop does is its affair, too.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(outcome)));
            return Ran::Unwanted {
                panicked: panicked || dropped.is_err(),
            };
        }
        *stage = Stage::Ended(outcome);
        Ran::Wanted { panicked }
    }

    fn discard(&self) {
        let mut stage = self.stage();
        if matches!(*stage, Stage::Waiting(_)) {
            let work = std::mem::replace(&mut *stage, Stage::Ended(Outcome::Dropped));
            drop(stage);
            drop(work);
        }
    }
}

fn message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => match payload.downcast::<&str>() {
            Ok(message) => (*message).to_owned(),
            // To drop a payload may panic again: it is leaked rather.
            Err(payload) => {
                std::mem::forget(payload);
                "a panic without a message".to_owned()
            }
        },
    }
}
