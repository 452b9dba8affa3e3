//! One job, from its queue to its outcome.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError},
};

use crate::{
    sync::{Condvar, Mutex, MutexGuard},
    token::Token,
};

use super::workers::Shared;

/// The outcome of a job.
///
/// ```
/// use reactor::{Events, Outcome, WorkClass, Reactor, Ready, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let work = || std::fs::read_to_string("Cargo.toml").map(|text| text.lines().count());
/// let mut job = reactor.pool_mut().submit(Token::new(1, 0), WorkClass::Disk, work)?;
/// let mut events = Events::new();
/// while events.is_empty() {
///     reactor.turn(&mut events, None)?;
/// }
/// assert_eq!((events[0].token, events[0].ready), (Token::new(1, 0), Ready::NOTIFIED));
/// let Some(Outcome::Done(lines)) = job.take() else { unreachable!("it was reported") };
/// assert!(lines? > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The result of the work.
    Done(T),
    /// The work panicked with this message. Its worker continues with other jobs.
    Panicked(String),
    /// The work was not run: the pool was dropped, or belongs to the parent of this process.
    Dropped,
}

/// A job of a [`Pool`](super::Pool), as the thread that submitted it sees it.
///
/// The work owns the memory that it uses, and the job owns the result. A job may therefore be dropped at any time. If its work
/// has not begun, it is not run. If it is running, it runs to its end, and its end is not notified.
///
/// ```
/// use reactor::{Outcome, WorkClass, Reactor, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let mut job = reactor.pool_mut().submit(Token::new(1, 0), WorkClass::Disk, || 6 * 7)?;
/// // The thread that has the job may block for it instead of turning the reactor.
/// assert_eq!(job.wait(), Outcome::Done(42));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Job<T> {
    state: Arc<JobState<T>>,
    shared: Arc<Shared>,
    number: u64,
    process: u32,
}

impl<T: Send + 'static> Job<T> {
    pub(super) fn new(
        work: impl FnOnce() -> T + Send + 'static,
        token: Token,
        shared: Arc<Shared>,
        number: u64,
        process: u32,
    ) -> Self {
        let progress = Progress {
            stage: Stage::Waiting(Box::new(work)),
            token,
            awaited: false,
        };
        Self {
            state: Arc::new(JobState {
                progress: Mutex::new(progress),
                ended: Condvar::new(),
            }),
            shared,
            number,
            process,
        }
    }

    /// Drops the work of a job that was never queued.
    pub(super) fn refuse(self) {
        let work = self.state.progress().replace(Stage::Over);
        drop(work); // Foreign code, so no lock is held.
    }

    /// Runs the work on this thread, because there is no worker that will.
    pub(super) fn run_here(&self) {
        self.shared.remove(self.number);
        if let RunOutcome::Ended {
            notify: Some(token),
            ..
        } = self.state.run()
        {
            self.shared.notify(token);
        }
    }

    pub(super) fn task(&self) -> Arc<dyn Task> {
        Arc::clone(&self.state) as Arc<dyn Task>
    }

    /// Takes the outcome; None if the job is queued or running, or if the outcome was taken before.
    pub fn take(&mut self) -> Option<Outcome<T>> {
        if !self.is_of_this_process() {
            return Some(Outcome::Dropped);
        }
        self.state.progress().take()
    }

    /// Blocks this thread until the job has ended, and takes the outcome.
    ///
    /// # Panics
    ///
    /// If the outcome was taken before, or if the job was cancelled: the wait would not end.
    pub fn wait(&mut self) -> Outcome<T> {
        if !self.is_of_this_process() {
            return Outcome::Dropped;
        }
        let mut progress = self.state.progress();
        loop {
            if let Some(outcome) = progress.take() {
                return outcome;
            }
            assert!(
                !matches!(progress.stage, Stage::Over),
                "nothing to wait for"
            );
            progress.awaited = true;
            let woken = self.state.ended.wait(progress);
            progress = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sets the token that is notified when the job ends; at once if it has ended and its outcome was not taken. In that case
    /// the token before may be notified as well, even later.
    pub fn redirect(&mut self, token: Token) {
        if !self.is_of_this_process() {
            return;
        }
        let mut progress = self.state.progress();
        progress.token = token;
        let ended = matches!(progress.stage, Stage::Ended(_));
        drop(progress);
        if ended {
            self.shared.notify(token);
        }
    }
}

impl<T> Job<T> {
    /// Withdraws the work if it has not begun. False if it has begun: its end will be notified.
    pub fn cancel(&mut self) -> bool {
        if !self.is_of_this_process() {
            return true;
        }
        let mut progress = self.state.progress();
        if !matches!(progress.stage, Stage::Waiting(_)) {
            return false;
        }
        let work = progress.replace(Stage::Over);
        drop(progress);
        self.shared.remove(self.number);
        drop(work); // Foreign code, so no lock is held.
        true
    }

    /// A child of fork(2) has a copy of the job, but not of the worker, which may have held the lock.
    fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        if !self.is_of_this_process() || self.cancel() {
            return;
        }
        let mut progress = self.state.progress();
        let dropped = match progress.stage {
            Stage::Running => progress.replace(Stage::Detached),
            _ => progress.replace(Stage::Over),
        };
        drop(progress);
        drop(dropped);
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
    /// Runs the work, unless it was withdrawn.
    fn run(&self) -> RunOutcome;
    /// Drops work that has not begun, and returns the token to be notified.
    fn discard(&self) -> Option<Token>;
}

/// The outcome of [`Task::run`], for the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunOutcome {
    /// The work has run to its end. `notify` is None if the job was dropped meanwhile.
    Ended {
        panicked: bool,
        notify: Option<Token>,
    },
    /// The work was withdrawn before it was run.
    Withdrawn,
}

/// What a job and its worker share.
struct JobState<T> {
    progress: Mutex<Progress<T>>,
    ended: Condvar,
}

struct Progress<T> {
    stage: Stage<T>,
    token: Token,
    /// Does a thread block in [`Job::wait`]? Otherwise futex(2) is not called at the end.
    awaited: bool,
}

enum Stage<T> {
    Waiting(Box<dyn FnOnce() -> T + Send>),
    Running,
    /// Running, and its job was dropped.
    Detached,
    Ended(Outcome<T>),
    /// The outcome was taken, or the work was withdrawn.
    Over,
}

impl<T> JobState<T> {
    fn progress(&self) -> MutexGuard<'_, Progress<T>> {
        // A poisoned lock is harmless: no foreign code runs under it, and no stage is ever half written.
        let progress = self.progress.lock();
        progress.unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread that blocks in [`Job::wait`], after the job has ended.
    fn wake_waiter(&self, progress: MutexGuard<'_, Progress<T>>) {
        let awaited = progress.awaited;
        drop(progress);
        if awaited {
            self.ended.notify_all();
        }
    }
}

impl<T> Progress<T> {
    /// Sets the stage and returns the one before.
    fn replace(&mut self, next: Stage<T>) -> Stage<T> {
        std::mem::replace(&mut self.stage, next)
    }

    fn take(&mut self) -> Option<Outcome<T>> {
        match self.replace(Stage::Over) {
            Stage::Ended(outcome) => Some(outcome),
            other => {
                self.stage = other;
                None
            }
        }
    }
}

impl<T: Send> Task for JobState<T> {
    fn run(&self) -> RunOutcome {
        let mut progress = self.progress();
        let work = match progress.replace(Stage::Running) {
            Stage::Waiting(work) => work,
            other => {
                progress.stage = other;
                return RunOutcome::Withdrawn;
            }
        };
        drop(progress);
        let result = catch_unwind(AssertUnwindSafe(work));
        let panicked = result.is_err();
        let outcome = match result {
            Ok(result) => Outcome::Done(result),
            Err(payload) => Outcome::Panicked(message(payload)),
        };
        let mut progress = self.progress();
        if matches!(progress.stage, Stage::Detached) {
            progress.stage = Stage::Over;
            drop(progress);
            // The result is dropped here, and its drop may panic.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(outcome)));
            return RunOutcome::Ended {
                panicked: panicked || dropped.is_err(),
                notify: None,
            };
        }
        progress.stage = Stage::Ended(outcome);
        let notify = Some(progress.token);
        self.wake_waiter(progress);
        RunOutcome::Ended { panicked, notify }
    }

    fn discard(&self) -> Option<Token> {
        let mut progress = self.progress();
        if !matches!(progress.stage, Stage::Waiting(_)) {
            return None;
        }
        let work = progress.replace(Stage::Ended(Outcome::Dropped));
        let token = progress.token;
        self.wake_waiter(progress);
        drop(work);
        Some(token)
    }
}

fn message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => match payload.downcast::<&str>() {
            Ok(message) => (*message).to_owned(),
            // The drop of a payload may panic again, so the payload is leaked.
            Err(payload) => {
                std::mem::forget(payload);
                "a panic without a message".to_owned()
            }
        },
    }
}
