//! Work that has no non-blocking form, done while the fiber is parked: by the core's pool, or by a driver that carries out
//! file operations itself (io_uring). For other uses of the ring see `bench/NOTES.md`, "What io_uring does, and what it
//! does not".
//!
//! The work owns all the memory it uses, and none of Ruby's. The descriptor it uses stays open until the work ends,
//! because a fiber that closes the IO first waits for the work ([`park_until_unused`]).

use std::{thread, time::Duration};

use magnus::Error;
use reactor::{
    Operation, OperationId, TimerId, Token,
    pool::{Job, Outcome, Pool, Refused, WorkClass},
};
use reactor_scheduler::{state::wait::WakeCause, system::errno::Errno};

use crate::{
    control::{hook_scope::HookScope, pending::Kept},
    ruby::{
        convert,
        error::{io_timeout_error, runtime_error, system_error},
        io_info::IoInfo,
        thread::blocking_call,
    },
};

/// How often a fiber that is unwound, and may not park, asks whether its work has ended.
const UNWINDING_PAUSE: Duration = Duration::from_millis(1);

/// Makes the pool do `work` while the fiber is parked. If the fiber is interrupted, work that has not begun is withdrawn;
/// work in progress is waited for, because it uses the descriptor of the IO with this number.
///
/// # Errors
///
/// The exception raised in the fiber; RuntimeError if the work panicked or the scheduler was closed.
pub fn on_pool<T: Send + 'static>(
    scope: &HookScope,
    class: WorkClass,
    io_number: u64,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let usage = (io_number, scope.slot);
    scope.scheduler.state_mut().descriptors_in_use.begin(usage);
    let job = begin_job(scope, io_number, |pool, token| {
        pool.submit_or_run(token, class, work)
    });
    let ended = job.and_then(|job| wait_for_end(scope, io_number, job, None, || ()));
    scope.scheduler.end_use(usage);
    result_of(ended?)
}

fn result_of<T>(outcome: Outcome<T>) -> Result<T, Error> {
    match outcome {
        Outcome::Done(result) => Ok(result),
        Outcome::Panicked(message) => Err(runtime_error(message)),
        Outcome::Dropped => Err(runtime_error("the scheduler was closed")),
    }
}

/// Like [`on_pool`], for work that may wait forever. The work has its own thread, which counts towards no limit. `stop`
/// ends the work if the fiber is interrupted or the IO's timeout elapses.
///
/// # Errors
///
/// The errors of [`on_pool`], and IO::TimeoutError.
pub fn on_own_thread<T: Send + 'static>(
    scope: &HookScope,
    io: &IoInfo,
    work: impl FnOnce() -> T + Send + 'static,
    stop: impl Fn(),
) -> Result<T, Error> {
    let limit = convert::timeout(io.io.timeout())?;
    let (scheduler, io_number) = (scope.scheduler, io.io_number());
    let usage = (io_number, scope.slot);
    let job = scheduler
        .state_mut()
        .begin_unpolled_job(scope.slot, io_number, work);
    // Nothing is borrowed while an exception is made: that may collect garbage, and collections run finalizers.
    let job = job.map_err(|refused| refusal(&refused))?;
    let mut state = scheduler.state_mut();
    let deadline = state.event_loop.deadline(limit);
    let token = state.fibers.wait_token(scope.slot);
    let timer = state.event_loop.timer(deadline, token);
    state.descriptors_in_use.begin(usage);
    drop(state);
    let ended = wait_for_end(scope, io_number, job, timer, stop);
    scheduler.end_use(usage);
    result_of(ended?)
}

/// Gives work that uses no descriptor to the pool, and begins a wait for its end.
///
/// # Errors
///
/// Errno::EAGAIN, or another error of pthread_create(3), if there is no thread.
pub fn begin_work<T: Send + 'static>(
    scope: &HookScope,
    class: WorkClass,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Job<T>, Error> {
    begin_job(scope, 0, |pool, token| pool.submit(token, class, work))
}

fn begin_job<T: Send + 'static>(
    scope: &HookScope,
    io_number: u64,
    submit: impl FnOnce(&mut Pool, Token) -> Result<Job<T>, Refused>,
) -> Result<Job<T>, Error> {
    let mut state = scope.scheduler.state_mut();
    let job = state.begin_job(scope.slot, io_number, submit);
    drop(state);
    job.map_err(|refused| refusal(&refused))
}

fn refusal(refused: &Refused) -> Error {
    match refused {
        Refused::NoThread(error) => system_error(error),
        refused => runtime_error(refused.to_string()),
    }
}

/// Parks until the job has ended or been withdrawn. If the fiber is interrupted or the timer elapses, calls `stop`.
fn wait_for_end<T: Send + 'static>(
    scope: &HookScope,
    io_number: u64,
    job: Job<T>,
    timer: Option<TimerId>,
    stop: impl Fn(),
) -> Result<Outcome<T>, Error> {
    let mut kept = scope.scheduler.state_mut().keep_job(job);
    let mut raised = None;
    let outcome = loop {
        let parked = scope.scheduler.park(scope.slot);
        scope.scheduler.state_mut().event_loop.cancel_timer(timer);
        let is_elapsed = matches!(parked, Ok(WakeCause::Elapsed));
        if let Err(error) = parked {
            stop();
            // Cancelling drops the work, which is foreign code, so nothing is borrowed meanwhile.
            let job = scope.scheduler.state_mut().take_job::<T>(kept);
            let Some(mut job) = job else {
                return Err(error);
            };
            let error = match Kept::new(error) {
                Ok(error) => error,
                Err(error) => {
                    let mut end = || {
                        while job.take().is_none() {
                            thread::sleep(UNWINDING_PAUSE);
                        }
                    };
                    blocking_call(&mut end).unwrap_or_else(end);
                    return Err(error);
                }
            };
            if job.cancel() {
                return Err(error.raise(scope));
            }
            raised = Some(error);
            kept = scope.scheduler.state_mut().keep_job(job);
        }
        let mut state = scope.scheduler.state_mut();
        let outcome = match state.job::<T>(kept) {
            Some(job) => job.take(),
            None => Some(Outcome::Dropped), // the scheduler was closed
        };
        if let Some(outcome) = outcome {
            break outcome;
        }
        drop(state);
        if is_elapsed {
            stop();
            raised = Some(Kept::Error(io_timeout_error()));
        }
        let mut state = scope.scheduler.state_mut();
        state.wait_on_job::<T>(scope.slot, io_number, kept);
    };
    let job = scope.scheduler.state_mut().take_job::<T>(kept);
    drop(job);
    raised.map_or(Ok(outcome), |kept| Err(kept.raise(scope)))
}

/// Parks until the file operation has ended. Returns its outcome, without the data read. If the driver does not support
/// it, returns `None` and does nothing. An interrupted fiber withdraws the operation if the kernel has not seen it yet,
/// and otherwise waits for it.
pub fn carry_out(
    scope: &HookScope,
    io: &IoInfo,
    operation: Operation<'_>,
) -> Result<Option<Result<usize, Errno>>, Error> {
    let (scheduler, io_number) = (scope.scheduler, io.io_number());
    let begun =
        scheduler
            .state_mut()
            .start_file_operation(scope.slot, io.polled(), io_number, operation);
    let Some(id) = begun else {
        return Ok(None);
    };
    let ended = wait_for_operation(scope, io_number, id);
    scheduler.end_use((io_number, scope.slot));
    ended.map(Some)
}

fn wait_for_operation(
    scope: &HookScope,
    io_number: u64,
    id: OperationId,
) -> Result<Result<usize, Errno>, Error> {
    let mut raised = None;
    loop {
        let parked = scope.scheduler.park(scope.slot);
        let mut state = scope.scheduler.state_mut();
        if let Err(error) = parked {
            if let Some(operations) = state.operations() {
                if operations.withdraw(id) {
                    operations.abandon(id);
                    return Err(error);
                }
            }
            drop(state);
            raised = match Kept::new(error) {
                Ok(error) => Some(error),
                Err(error) => {
                    let mut state = scope.scheduler.state_mut();
                    if let Some(operations) = state.operations() {
                        operations.abandon(id);
                    }
                    return Err(error);
                }
            };
            state = scope.scheduler.state_mut();
        }
        if !state.wait_on_operation(scope.slot, io_number, id) {
            let outcome = state.take_outcome(id);
            let outcome = outcome.map(|outcome| outcome.map_err(Errno::from));
            let outcome = outcome.unwrap_or(Err(Errno::CANCELED));
            drop(state);
            return raised.map_or(Ok(outcome), |kept| Err(kept.raise(scope)));
        }
    }
}

/// Parks until no worker or driver operation uses the descriptor of the IO with this number.
pub fn park_until_unused(scope: &HookScope, io_number: u64) -> Result<(), Error> {
    let scheduler = scope.scheduler;
    while scheduler
        .state_mut()
        .begin_wait_until_unused(scope.slot, io_number)
    {
        scheduler.park(scope.slot)?;
    }
    Ok(())
}
