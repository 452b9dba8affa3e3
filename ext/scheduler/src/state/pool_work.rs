//! Work on the pool, and where large transfers are best made.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use reactor::{Job, Pool, Reactor, Refused, Token, WorkClass};

use crate::state::{State, fiber::Slot, wait::Purpose};

/// A small write to a file that takes longer than this is slow.
const SLOW_WRITE: Duration = Duration::from_millis(1);

/// For this many times as long as a slow write took, small writes go to the pool.
const SLOW_WRITE_PENALTY: u32 = 100;

impl State {
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

    /// Gives work to the pool by `submit`, and begins a wait for its end.
    ///
    /// # Errors
    ///
    /// Those of `submit`. No wait has begun then.
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

    /// Keeps a job until it is taken, or until the scheduler is closed.
    pub fn keep_job<T: Send + 'static>(&mut self, job: Job<T>) -> Token {
        self.jobs.insert(Box::new(job))
    }

    /// `None` if the scheduler was closed meanwhile.
    pub fn job<T: Send + 'static>(&mut self, kept: Token) -> Option<&mut Job<T>> {
        self.jobs.get_mut(kept)?.downcast_mut()
    }

    /// As [`State::job`]. The job is kept no longer.
    pub fn take_job<T: Send + 'static>(&mut self, kept: Token) -> Option<Job<T>> {
        let job = self.jobs.remove(kept)?.downcast();
        job.ok().map(|job| *job)
    }

    /// Begins a further wait for the end of a job.
    pub fn wait_on_job<T: Send + 'static>(&mut self, slot: Slot, io_number: u64, kept: Token) {
        let token = self.fibers.begin_wait(slot, Purpose::Work { io_number });
        if let Some(job) = self.job::<T>(kept) {
            job.redirect(token);
        }
    }

    // --- files ---------------------------------------------------------------------------------------------------

    /// A small write to a file was made directly. Most only copy into the page cache, but now and then the kernel makes a writer
    /// wait for the disk. A slow one sends those that follow to the pool, so at most a hundredth of the time is lost to them.
    pub fn record_write(&mut self, start: Instant, took: Duration) {
        let penalty = (took > SLOW_WRITE).then_some(took * SLOW_WRITE_PENALTY);
        self.writes_are_slow_until = penalty.and_then(|penalty| start.checked_add(penalty));
    }

    /// Whether a small write is likely to be done at once.
    pub fn is_write_quick(&self, now: Instant) -> bool {
        self.writes_are_slow_until.is_none_or(|until| now >= until)
    }

    /// Whether a worker reads better than the loop's thread: another fiber has a use for the loop meanwhile, and the worker
    /// would not have to wait long. As many as there are workers may read, and one more that is next, so that none of them
    /// waits for the loop either.
    pub fn should_read_on_pool(&mut self) -> bool {
        let Some(reactor) = &self.event_loop.reactor else {
            return false;
        };
        let has_worker = Arc::strong_count(&self.lent_buffers) <= 1 + reactor.pool().limits().cpu;
        has_worker && (reactor.has_notifications() || self.has_ready_fiber())
    }
}
