//! One piece of work on its way through the pool.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::token::Token;

use super::workers::Shared;

/// What became of a job.
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
///
/// ```
/// use reactor::{Outcome, WorkClass, Reactor, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let mut job = reactor.pool_mut().submit(Token::new(1, 0), WorkClass::Disk, || 6 * 7)?;
/// // Or without turning, on whichever thread has the job.
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

    pub(super) fn task(&self) -> Arc<dyn Task> {
        Arc::clone(&self.state) as Arc<dyn Task>
    }

    /// What became of it; `None` as long as it is queued or going on, and once it was taken.
    pub fn take(&mut self) -> Option<Outcome<T>> {
        if !self.is_of_this_process() {
            return Some(Outcome::Dropped);
        }
        self.state.progress().take()
    }

    /// Blocks this thread until the job has ended: for whoever cannot wait for an event any more.
    ///
    /// # Panics
    ///
    /// If the result was taken before, or the job taken back: it would wait for ever.
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

    /// From now on it is `token` that the end will be notified with; at once, if that has come already and
    /// [`Job::take`] has not been told.
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
    /// Takes the work back if it has not begun. False if it has: then its end will be notified all the same.
    pub fn cancel(&mut self) -> bool {
        if !self.is_of_this_process() {
            return true;
        }
        let mut progress = self.state.progress();
        if !matches!(progress.stage, Stage::Waiting(_)) {
            return false;
        }
        let work = progress.turn(Stage::Over);
        drop(progress);
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
        let mut progress = self.state.progress();
        let unheard = match progress.stage {
            Stage::Running => progress.turn(Stage::Detached),
            _ => progress.turn(Stage::Over),
        };
        drop(progress);
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
    fn run(&self) -> RunOutcome;
    /// The work will never be run. Whom to tell, if it had not been begun.
    fn discard(&self) -> Option<Token>;
}

/// What a worker has to tell of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunOutcome {
    /// To its end; and whom to tell, if anybody still wants to hear.
    Ended {
        panicked: bool,
        notify: Option<Token>,
    },
    /// It had been taken back.
    Withdrawn,
}

struct JobState<T> {
    progress: Mutex<Progress<T>>,
    ended: Condvar,
}

struct Progress<T> {
    stage: Stage<T>,
    token: Token,
    /// Somebody sleeps until it has ended. (To wake nobody is a system call, too.)
    awaited: bool,
}

enum Stage<T> {
    Waiting(Box<dyn FnOnce() -> T + Send>),
    Running,
    /// Going on, with nobody there to hear of its end.
    Detached,
    Ended(Outcome<T>),
    Over,
}

impl<T> JobState<T> {
    fn progress(&self) -> MutexGuard<'_, Progress<T>> {
        // No stage is ever half written, and no foreign code runs under the lock.
        let progress = self.progress.lock();
        progress.unwrap_or_else(PoisonError::into_inner)
    }

    /// It has ended: wakes whoever sleeps until then.
    fn tell(&self, progress: MutexGuard<'_, Progress<T>>) {
        let awaited = progress.awaited;
        drop(progress);
        if awaited {
            self.ended.notify_all();
        }
    }
}

impl<T> Progress<T> {
    /// The stage it was in, now that it is in the next.
    fn turn(&mut self, next: Stage<T>) -> Stage<T> {
        std::mem::replace(&mut self.stage, next)
    }

    fn take(&mut self) -> Option<Outcome<T>> {
        match self.turn(Stage::Over) {
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
        let work = match progress.turn(Stage::Running) {
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
            // Nobody has seen the result; what its own drop does is its affair, too.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(outcome)));
            return RunOutcome::Ended {
                panicked: panicked || dropped.is_err(),
                notify: None,
            };
        }
        progress.stage = Stage::Ended(outcome);
        let notify = Some(progress.token);
        self.tell(progress);
        RunOutcome::Ended { panicked, notify }
    }

    fn discard(&self) -> Option<Token> {
        let mut progress = self.progress();
        if !matches!(progress.stage, Stage::Waiting(_)) {
            return None;
        }
        let work = progress.turn(Stage::Ended(Outcome::Dropped));
        let token = progress.token;
        self.tell(progress);
        drop(work);
        Some(token)
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
