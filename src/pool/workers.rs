//! The workers, and the state they share with the pool.

use std::{
    io,
    sync::{Arc, PoisonError},
    time::Instant,
};

use crate::{
    handle::Handle,
    histogram::Histogram,
    sync::{Builder, Condvar, Mutex, MutexGuard},
    token::Token,
};

use super::{
    job_state::{RunOutcome, Task},
    limits::{Limits, WorkClass},
    queues::{Queued, Queues},
    signal_mask,
    statistics::PoolStatistics,
};

/// The state that the pool, its jobs and its workers share.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Signalled when a job may begin, when the limits change, and when the pool is dropped.
    changed: Condvar,
    handle: Handle,
    process: u32,
}

struct State {
    queues: Queues,
    limits: Limits,
    /// The number of threads. A worker is counted before its thread starts.
    threads: usize,
    /// Threads without a job. A worker counts as idle even before its thread starts.
    idle: usize,
    closed: bool,
    statistics: PoolStatistics,
    /// How long jobs were queued before they began.
    queue_times: Histogram,
}

impl Shared {
    pub(super) fn new(handle: Handle, limits: Limits) -> Self {
        let state = State {
            queues: Queues::default(),
            limits,
            threads: 0,
            idle: 0,
            closed: false,
            statistics: PoolStatistics::default(),
            queue_times: Histogram::new(),
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            handle,
            process: std::process::id(),
        }
    }

    /// Whether this is the process that created the pool. A child of fork(2) has no workers, and its copy of the lock
    /// may be held forever, by a thread that held the lock during the fork.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    pub(super) fn set_limits(&self, limits: Limits) {
        self.state().limits = limits;
        self.changed.notify_all();
    }

    /// Queues a job. True if the caller must start a thread for it with [`Shared::start_worker`].
    pub(super) fn push(&self, number: u64, class: WorkClass, task: Arc<dyn Task>) -> bool {
        let mut state = self.state();
        state.statistics.jobs += 1;
        let since = Instant::now();
        state.queues.push(
            class,
            Queued {
                number,
                task,
                since,
            },
        );
        let start = state.startable() > state.idle && state.threads < state.limits.threads;
        state.threads += usize::from(start);
        state.idle += usize::from(start);
        self.wake_idle_worker(state);
        start
    }

    /// Starts the thread of a worker that is already counted, for the job with this number.
    ///
    /// # Errors
    ///
    /// The error of pthread_create(3), if the job is still queued and there is no other worker.
    pub(super) fn start_worker(self: &Arc<Self>, number: u64) -> io::Result<()> {
        let Err(error) = self.spawn_worker() else {
            return Ok(());
        };
        let state = self.state();
        // Another worker will take the job, or took it and has exited since.
        if state.threads > 0 || !state.queues.contains(number) {
            return Ok(());
        }
        Err(error)
    }

    /// Starts the thread of a worker that is already counted, and uncounts it on failure.
    fn spawn_worker(self: &Arc<Self>) -> io::Result<()> {
        let shared = Arc::clone(self);
        let thread = Builder::new().name("reactor-pool".to_owned());
        let started = signal_mask::without_signals(|| thread.spawn(move || shared.work()));
        let mut state = self.state();
        match started {
            Ok(_) => {
                state.statistics.started += 1;
                Ok(())
            }
            Err(error) => {
                state.threads -= 1;
                state.idle -= 1;
                Err(error)
            }
        }
    }

    pub(super) fn is_busy(&self, class: WorkClass) -> bool {
        let state = self.state();
        state.queues.is_busy(class, &state.limits)
    }

    pub(super) fn statistics(&self) -> PoolStatistics {
        let state = self.state();
        PoolStatistics {
            threads: state.threads as u64,
            queued: state.queues.queued() as u64,
            running: state.queues.running() as u64,
            ..state.statistics
        }
    }

    pub(super) fn queue_times(&self) -> Histogram {
        self.state().queue_times.clone()
    }

    /// Ends idle workers at once and the others after their current job. Jobs that have not begun are dropped.
    pub(super) fn close(&self) {
        let jobs = {
            let mut state = self.state();
            state.closed = true;
            state.queues.drain()
        };
        self.changed.notify_all();
        for job in jobs {
            if let Some(token) = job.task.discard() {
                self.notify(token);
            }
        }
    }

    /// Removes a job from its queue, because it was cancelled or the submitting thread will run it.
    pub(super) fn remove(&self, number: u64, is_cancelled: bool) {
        let mut state = self.state();
        state.statistics.cancelled += u64::from(is_cancelled);
        let removed = state.queues.remove(number);
        drop(state);
        drop(removed);
    }

    pub(super) fn notify(&self, token: Token) {
        // Even if waking the reactor fails, the token is in its inbox.
        _ = self.handle.notify(token);
    }

    /// A worker thread: runs jobs until it has been idle for the idle time or the pool is dropped.
    fn work(&self) {
        self.state().idle -= 1;
        while let Some((job, class)) = self.next() {
            let outcome = job.task.run();
            self.on_run(Some(class), outcome);
        }
    }

    /// Counts a job that was run, and notifies its token. `class` is Some for a worker's job, which no longer counts as
    /// running.
    pub(super) fn on_run(&self, class: Option<WorkClass>, outcome: RunOutcome) {
        {
            let mut state = self.state();
            if let Some(class) = class {
                state.queues.end(class);
            }
            state.count(outcome);
        }
        // After counting, so that the reactor finds the job counted when it is notified.
        if let RunOutcome::Ended {
            notify: Some(token),
            ..
        } = outcome
        {
            self.notify(token);
        }
    }

    /// The next job; None once the worker has been idle for the idle time, or the pool was dropped.
    fn next(&self) -> Option<(Queued, WorkClass)> {
        let mut state = self.state();
        loop {
            if let Some(found) = state.begin() {
                self.wake_idle_worker(state);
                return Some(found);
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let idle = state.limits.idle;
            let (woken, wait) = self
                .changed
                .wait_timeout(state, idle)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if wait.timed_out() && state.startable() == 0 {
                break;
            }
        }
        state.threads -= 1;
        None
    }

    /// Wakes an idle worker if a job may begin. Otherwise makes no wake-up call, because futex(2) costs a system call
    /// even when no thread waits.
    fn wake_idle_worker(&self, state: MutexGuard<'_, State>) {
        let needed = state.idle > 0 && state.startable() > 0;
        drop(state);
        if needed {
            self.changed.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is harmless: no foreign code runs under it, and no state change is ever half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.state().idle
    }
}

impl State {
    fn startable(&self) -> usize {
        self.queues.startable(&self.limits)
    }

    fn begin(&mut self) -> Option<(Queued, WorkClass)> {
        let begun = self.queues.begin(&self.limits)?;
        self.queue_times.record(begun.0.since.elapsed());
        Some(begun)
    }

    fn count(&mut self, outcome: RunOutcome) {
        if let RunOutcome::Ended { panicked, .. } = outcome {
            self.statistics.ended += 1;
            self.statistics.panicked += u64::from(panicked);
        }
    }
}
