//! A job as the submitting thread sees it.

use std::{fmt, sync::Arc};

use crate::token::Token;

use super::{
    job_state::{JobState, Outcome, Stage, Task},
    workers::Shared,
};

/// A job of a [`Pool`](super::Pool), as the submitting thread sees it.
///
/// The work owns the memory it uses, and the job owns the result, so a job may be dropped at any time. Work that has
/// not begun is then never run; work that is running finishes without a notification.
///
/// ```
/// use reactor::{Events, Reactor, Token, pool::{Outcome, WorkClass}};
///
/// let mut reactor = Reactor::open(None)?;
/// let mut job = reactor.pool_mut().submit(Token::new(1, 0), WorkClass::Disk, || 6 * 7)?;
/// let outcome = loop {
///     reactor.turn(&mut Events::new(), None)?;
///     if let Some(outcome) = job.take() {
///         break outcome;
///     }
/// };
/// assert_eq!(outcome, Outcome::Done(42));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Job<T> {
    state: Arc<JobState<T>>,
    shared: Arc<Shared>,
    number: u64,
    /// The outcome was taken, so there is nothing to drop or cancel.
    is_taken: bool,
}

impl<T: Send + 'static> Job<T> {
    pub(super) fn new(
        work: impl FnOnce() -> T + Send + 'static,
        token: Token,
        shared: Arc<Shared>,
        number: u64,
    ) -> Self {
        Self {
            state: Arc::new(JobState::new(work, token)),
            shared,
            number,
            is_taken: false,
        }
    }

    /// Runs the work on this thread, because no worker will.
    pub(super) fn run_here(&self) {
        self.shared.remove(self.number, false);
        self.shared.on_run(None, self.state.run());
    }

    pub(super) fn task(&self) -> Arc<dyn Task> {
        Arc::clone(&self.state) as Arc<dyn Task>
    }

    /// Takes the outcome; None if the job is still queued or running, or its outcome has been taken.
    pub fn take(&mut self) -> Option<Outcome<T>> {
        if !self.is_of_this_process() {
            return Some(Outcome::Dropped);
        }
        let outcome = self.state.progress().take();
        self.is_taken |= outcome.is_some();
        outcome
    }

    /// Changes the token that is notified when the job ends, or notifies the new one at once if the job has ended and
    /// its outcome was not taken. The previous token may then be notified as well, even later.
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
        !self.is_of_this_process() || self.withdraw()
    }

    fn withdraw(&self) -> bool {
        let mut progress = self.state.progress();
        if !matches!(progress.stage, Stage::Waiting(_)) {
            return false;
        }
        let work = progress.replace(Stage::Finished);
        drop(progress);
        self.shared.remove(self.number, true);
        drop(work); // foreign code, so no lock is held
        true
    }

    fn is_of_this_process(&self) -> bool {
        self.shared.is_of_this_process()
    }
}

impl<T> Drop for Job<T> {
    fn drop(&mut self) {
        if self.is_taken || !self.is_of_this_process() || self.withdraw() {
            return;
        }
        let mut progress = self.state.progress();
        let dropped = match progress.stage {
            Stage::Running => progress.replace(Stage::Detached),
            _ => progress.replace(Stage::Finished),
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
