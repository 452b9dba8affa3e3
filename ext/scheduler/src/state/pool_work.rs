//! Work on the pool, and where large transfers are best made.

use std::time::{Duration, Instant};

use reactor::{Job, Outcome, Pool, Reactor, Refused, Token, WorkClass};

use crate::state::{
    State, awaited_jobs::AwaitedJob, fiber::Slot, lent_buffers::LentBufferGuard, wait::Purpose,
};

impl State {
    // --- jobs ----------------------------------------------------------------------------------------------------

    /// Begins a wait until the pool's queue of this class has room. False, and nothing done, if it has.
    pub fn begin_wait_for_capacity(
        &mut self,
        slot: Slot,
        io_number: u64,
        class: WorkClass,
    ) -> bool {
        let has_capacity = |reactor: &Reactor| reactor.pool().has_capacity(class);
        if self.event_loop.reactor.as_ref().is_none_or(has_capacity) {
            return false;
        }
        let token = self.fibers.begin_wait(slot, Purpose::Work { io_number });
        if let Some(reactor) = self.event_loop.reactor.as_ref() {
            reactor.pool().notify_when_capacity(token, class);
        }
        true
    }

    /// As [`Pool::is_busy`](reactor::Pool::is_busy).
    pub fn is_pool_busy(&self, class: WorkClass) -> bool {
        self.event_loop
            .reactor
            .as_ref()
            .is_some_and(|r| r.pool().is_busy(class))
    }

    /// Gives work to the pool, and begins a wait for its end.
    ///
    /// # Errors
    ///
    /// As [`Pool::submit`](reactor::Pool::submit). No wait has begun then.
    pub fn submit<T: Send + 'static>(
        &mut self,
        slot: Slot,
        class: WorkClass,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Job<T>, Refused> {
        self.begin_job(slot, 0, |pool, token| pool.submit(token, class, work))
    }

    /// The same for work on the descriptor of an IO object. If there is no thread, it runs at once, as without a scheduler.
    ///
    /// # Errors
    ///
    /// As [`Pool::submit_or_run`](reactor::Pool::submit_or_run). No wait has begun then.
    pub fn submit_or_run<T: Send + 'static>(
        &mut self,
        slot: Slot,
        io_number: u64,
        class: WorkClass,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Job<T>, Refused> {
        self.begin_job(slot, io_number, |pool, token| {
            pool.submit_or_run(token, class, work)
        })
    }

    fn begin_job<T: Send + 'static>(
        &mut self,
        slot: Slot,
        io_number: u64,
        submit: impl FnOnce(&mut Pool, Token) -> Result<Job<T>, Refused>,
    ) -> Result<Job<T>, Refused> {
        let token = self.fibers.begin_wait(slot, Purpose::Work { io_number });
        let job = match self.event_loop.reactor.as_mut() {
            Some(reactor) => submit(reactor.pool_mut(), token),
            None => Err(Refused::Foreign),
        };
        if job.is_err() {
            self.fibers.end_wait(token);
        }
        job
    }

    /// Keeps a job for the fiber that waits for its end.
    pub fn keep_job<T: Send + 'static>(&mut self, job: Job<T>) -> AwaitedJob<T> {
        self.jobs.keep(job)
    }

    /// Begins a further wait for the end of a job.
    pub fn wait_on_job<T: Send + 'static>(
        &mut self,
        slot: Slot,
        io_number: u64,
        job: &AwaitedJob<T>,
    ) {
        let token = self.fibers.begin_wait(slot, Purpose::Work { io_number });
        if let Some(job) = self.jobs.get(job) {
            job.redirect(token);
        }
    }

    /// The outcome; `None` if the work goes on.
    pub fn outcome_of_job<T: Send + 'static>(&mut self, job: &AwaitedJob<T>) -> Option<Outcome<T>> {
        match self.jobs.get(job) {
            Some(job) => job.take(),
            None => Some(Outcome::Dropped),
        }
    }

    /// The job itself, which the caller waits for or drops; `None` if the scheduler was closed meanwhile.
    pub fn take_job<T: Send + 'static>(&mut self, job: &AwaitedJob<T>) -> Option<Job<T>> {
        self.jobs.take(job)
    }

    // --- where to transfer ---------------------------------------------------------------------------------------

    /// A worker is about to read into memory of Ruby's, until the guard is dropped.
    pub fn begin_lent_buffer(&self) -> LentBufferGuard {
        self.buffers.begin()
    }

    /// Whether a worker reads better than the loop's thread: another fiber has a use for the loop meanwhile, and the worker
    /// would not have to wait long. As many as there are workers may read, and one more that is next, so that none of them
    /// waits for the loop either.
    pub fn should_read_on_pool(&mut self) -> bool {
        let Some(reactor) = self.event_loop.reactor.as_ref() else {
            return false;
        };
        let has_worker = self.buffers.count() <= reactor.pool().limits().cpu;
        has_worker && (reactor.has_notifications() || self.has_ready_fiber())
    }

    /// A small write to a file was made directly.
    pub fn record_write(&mut self, duration: Duration, now: Instant) {
        self.write_latency.record(duration, now);
    }

    /// Whether a small write to a file is likely to be done at once.
    pub fn writes_are_quick(&self, now: Instant) -> bool {
        self.write_latency.is_quick(now)
    }
}
