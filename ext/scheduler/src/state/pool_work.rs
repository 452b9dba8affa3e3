//! Work on the pool, and where large transfers are best made.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reactor::{
    Token,
    pool::{Job, Pool, Refused},
};

use crate::state::{State, fiber::Slot, wait::Purpose};

/// A small file write that takes longer than this is slow.
const SLOW_WRITE: Duration = Duration::from_millis(1);

/// After a slow write, small writes go to the pool for this many times the duration of that write.
const SLOW_WRITE_PENALTY: u32 = 100;

impl State {
    /// Gives work to the pool through `submit`, and begins a wait for its end.
    ///
    /// # Errors
    ///
    /// The errors of `submit`; in that case no wait has begun.
    pub fn begin_job<T: Send + 'static>(
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

    /// Keeps a job until it is taken or the scheduler is closed.
    pub fn keep_job<T: Send + 'static>(&mut self, job: Job<T>) -> Token {
        self.jobs.insert(Box::new(job))
    }

    /// `None` if the scheduler was closed meanwhile.
    pub fn job<T: Send + 'static>(&mut self, kept: Token) -> Option<&mut Job<T>> {
        self.jobs.get_mut(kept)?.downcast_mut()
    }

    /// Like [`State::job`], but removes the job.
    pub fn take_job<T: Send + 'static>(&mut self, kept: Token) -> Option<Job<T>> {
        let job = self.jobs.remove(kept)?.downcast();
        job.ok().map(|job| *job)
    }

    /// Begins another wait for the end of a job.
    pub fn wait_on_job<T: Send + 'static>(&mut self, slot: Slot, io_number: u64, kept: Token) {
        let token = self.fibers.begin_wait(slot, Purpose::Work { io_number });
        if let Some(job) = self.job::<T>(kept) {
            job.redirect(token);
        }
    }

    // --- files ---------------------------------------------------------------------------------------------------

    /// Records a small file write that was made directly. Most only copy to the page cache, but occasionally the kernel
    /// makes the writer wait for the disk. A slow write sends the following ones to the pool, so at most a hundredth of the
    /// time is lost to them.
    pub fn record_write(&mut self, start: Instant, took: Duration) {
        let penalty = (took > SLOW_WRITE).then_some(took * SLOW_WRITE_PENALTY);
        self.writes_are_slow_until = penalty.and_then(|penalty| start.checked_add(penalty));
    }

    /// Whether a small write is likely to finish at once.
    pub fn is_write_quick(&self, now: Instant) -> bool {
        self.writes_are_slow_until.is_none_or(|until| now >= until)
    }

    /// Whether a worker should read instead of the loop's thread: another fiber could use the loop meanwhile, and the
    /// worker would not wait long. As many fibers may read as there are workers, plus one that reads next, so that no
    /// worker waits for the loop either.
    pub fn should_read_on_pool(&mut self) -> bool {
        let Some(reactor) = &self.event_loop.reactor else {
            return false;
        };
        let has_worker = Arc::strong_count(&self.worker_buffers) <= 1 + reactor.pool().limits().cpu;
        has_worker && (reactor.has_notifications() || self.has_ready_fiber())
    }
}
