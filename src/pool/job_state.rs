//! The state that a job and its worker share: the work, its stage and its outcome.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::PoisonError,
};

use crate::{
    sync::{Mutex, MutexGuard},
    token::Token,
};

/// The outcome of a job.
///
/// ```
/// use reactor::{Events, Reactor, Ready, Token, pool::{Outcome, WorkClass}};
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
    /// The work was not run: the pool was dropped, or belongs to the parent process.
    Dropped,
}

/// A job as a worker sees it.
pub(super) trait Task: Send + Sync {
    /// Runs the work, unless it was withdrawn.
    fn run(&self) -> RunOutcome;
    /// Drops work that has not begun, and returns the token to notify.
    fn discard(&self) -> Option<Token>;
}

/// The outcome of [`Task::run`], for the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunOutcome {
    /// The work ran to completion. `notify` is None if the job was dropped meanwhile.
    Ended {
        panicked: bool,
        notify: Option<Token>,
    },
    /// The work was withdrawn before it ran.
    Withdrawn,
}

/// What a job and its worker share.
pub(super) struct JobState<T> {
    progress: Mutex<Progress<T>>,
}

pub(super) struct Progress<T> {
    pub(super) stage: Stage<T>,
    pub(super) token: Token,
}

pub(super) enum Stage<T> {
    Waiting(Box<dyn FnOnce() -> T + Send>),
    Running,
    /// Running, but its job was dropped.
    Detached,
    Ended(Outcome<T>),
    /// The outcome was taken, or the work was withdrawn.
    Finished,
}

impl<T> JobState<T> {
    pub(super) fn new(work: impl FnOnce() -> T + Send + 'static, token: Token) -> Self {
        let progress = Progress {
            stage: Stage::Waiting(Box::new(work)),
            token,
        };
        Self {
            progress: Mutex::new(progress),
        }
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress<T>> {
        // A poisoned lock is harmless: no foreign code runs under it, and no stage is ever half written.
        let progress = self.progress.lock();
        progress.unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Progress<T> {
    /// Sets the stage and returns the previous one.
    pub(super) fn replace(&mut self, next: Stage<T>) -> Stage<T> {
        std::mem::replace(&mut self.stage, next)
    }

    pub(super) fn take(&mut self) -> Option<Outcome<T>> {
        match self.replace(Stage::Finished) {
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
        let result = caught(work);
        let panicked = result.is_err();
        let outcome = result.map_or_else(Outcome::Panicked, Outcome::Done);
        let mut progress = self.progress();
        if matches!(progress.stage, Stage::Detached) {
            progress.stage = Stage::Finished;
            drop(progress);
            let dropped = caught(|| drop(outcome));
            return RunOutcome::Ended {
                panicked: panicked || dropped.is_err(),
                notify: None,
            };
        }
        progress.stage = Stage::Ended(outcome);
        let notify = Some(progress.token);
        RunOutcome::Ended { panicked, notify }
    }

    fn discard(&self) -> Option<Token> {
        let mut progress = self.progress();
        if !matches!(progress.stage, Stage::Waiting(_)) {
            return None;
        }
        let work = progress.replace(Stage::Ended(Outcome::Dropped));
        let token = progress.token;
        drop(progress);
        _ = caught(|| drop(work)); // the pool has to discard others
        Some(token)
    }
}

/// Calls foreign code. An error is the message of its panic.
fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(message)
}

fn message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => match payload.downcast::<&str>() {
            Ok(message) => (*message).to_owned(),
            // Dropping a panic payload may panic again, so the payload is leaked.
            Err(payload) => {
                std::mem::forget(payload);
                "a panic without a message".to_owned()
            }
        },
    }
}
