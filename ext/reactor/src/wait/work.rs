//! Work that has no non-blocking form: done by the core's pool while the fiber is parked.
//!
//! The work owns all the memory it touches and nothing of Ruby's. A descriptor it uses stays open while it goes on, because
//! a fiber that closes the IO first waits for it ([`wait_until_unpinned`]).

use magnus::Error;
use reactor::{Job, Outcome, Refused, WorkClass};

use crate::{
    control::hook_scope::HookScope,
    ruby::error::{runtime_error, system_error},
};

/// If a fiber is interrupted after its work has begun, it does one of these. (Work that has not begun is taken back.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// It waits for the end: the work changes something, or uses the descriptor of the IO with this number.
    Waits(u64),
    /// It leaves at once, because the outcome does not matter.
    Leaves,
}

/// The outcome of the work.
pub struct EndedWork<T> {
    /// `None` if it was taken back, or left.
    pub result: Option<T>,
    /// The error raised in the fiber meanwhile. The caller cleans up, and raises it.
    pub raised: Option<Error>,
}

/// Has `work` done by the pool. The fiber is parked until it has ended.
///
/// # Errors
///
/// An error raised before the work began; RuntimeError if the work panicked, or if the scheduler was closed.
pub fn on_pool<T: Send + 'static>(
    scope: &HookScope,
    class: WorkClass,
    interrupted: Interrupted,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<EndedWork<T>, Error> {
    let io_number = match interrupted {
        Interrupted::Waits(number) => number,
        Interrupted::Leaves => 0,
    };
    let pin = (io_number, scope.slot);
    scope.scheduler.state_mut().pins.pin(pin);
    let ended = wait_for_capacity(scope, io_number, class)
        .and_then(|()| {
            let mut state = scope.scheduler.state_mut();
            let job = state.begin_job(scope.slot, io_number, |pool, token| {
                pool.submit_or_run(token, class, work)
            });
            drop(state);
            job.map_err(|refused| refusal(&refused))
        })
        .map(|job| wait_for_end(scope, io_number, interrupted, job));
    scope.scheduler.unpin(pin);
    let (outcome, raised) = ended?;
    let result = match outcome {
        None => None,
        Some(Outcome::Done(result)) => Some(result),
        Some(Outcome::Panicked(message)) => return Err(runtime_error(message)),
        Some(Outcome::Dropped) => return Err(runtime_error("the scheduler was closed")),
    };
    Ok(EndedWork { result, raised })
}

/// Parks until the pool's queue of this class has room.
pub fn wait_for_capacity(scope: &HookScope, io_number: u64, class: WorkClass) -> Result<(), Error> {
    let scheduler = scope.scheduler;
    while scheduler
        .state_mut()
        .begin_wait_for_capacity(scope.slot, io_number, class)
    {
        scheduler.park(scope.slot)?;
    }
    Ok(())
}

/// Gives work that uses no descriptor to the pool, and begins a wait for its end.
///
/// # Errors
///
/// Errno::EAGAIN, or what else pthread_create(3) says, if there is no thread; RuntimeError if the pool's queue is full.
pub fn begin_work<T: Send + 'static>(
    scope: &HookScope,
    class: WorkClass,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Job<T>, Error> {
    let mut state = scope.scheduler.state_mut();
    let job = state.begin_job(scope.slot, 0, |pool, token| pool.submit(token, class, work));
    drop(state);
    job.map_err(|refused| refusal(&refused))
}

fn refusal(refused: &Refused) -> Error {
    match refused {
        Refused::NoThread(error) => system_error(error),
        refused => runtime_error(refused.to_string()),
    }
}

/// Parks until the job has ended, or its fiber may leave it.
fn wait_for_end<T: Send + 'static>(
    scope: &HookScope,
    io_number: u64,
    interrupted: Interrupted,
    job: Job<T>,
) -> (Option<Outcome<T>>, Option<Error>) {
    let mut kept = scope.scheduler.state_mut().jobs.keep(job);
    let mut raised = None;
    let outcome = loop {
        if let Err(error) = scope.scheduler.park(scope.slot) {
            // An unwinding without an exception (a kill, a throw) cannot be kept while other Ruby code runs.
            let is_unwinding = error.value().is_none();
            raised = Some(error);
            // To cancel it drops the work, which is foreign code, so nothing is borrowed meanwhile.
            let job = scope.scheduler.state_mut().jobs.take(&kept);
            let Some(mut job) = job else {
                break Some(Outcome::Dropped);
            };
            if job.cancel() || interrupted == Interrupted::Leaves {
                break None;
            }
            if is_unwinding {
                break Some(job.wait());
            }
            kept = scope.scheduler.state_mut().jobs.keep(job);
        }
        let mut state = scope.scheduler.state_mut();
        let outcome = match state.jobs.get(&kept) {
            Some(job) => job.take(),
            None => Some(Outcome::Dropped), // the scheduler was closed
        };
        if outcome.is_some() {
            break outcome;
        }
        state.wait_on_job(scope.slot, io_number, &kept);
    };
    let job = scope.scheduler.state_mut().jobs.take(&kept);
    drop(job);
    (outcome, raised)
}

/// Parks until no worker and no operation of the driver uses the descriptor of the IO with this number.
pub fn wait_until_unpinned(scope: &HookScope, io_number: u64) -> Result<(), Error> {
    let scheduler = scope.scheduler;
    while scheduler
        .state_mut()
        .begin_wait_for_unpin(scope.slot, io_number)
    {
        scheduler.park(scope.slot)?;
    }
    Ok(())
}
