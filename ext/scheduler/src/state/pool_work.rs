//! Work on the pool, and where large transfers are best made.

use reactor::{Job, Pool, Reactor, Refused, Token, WorkClass};

use crate::state::{State, awaited_jobs::AwaitedJob, fiber::Slot, wait::Purpose};

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

    /// Whether a worker reads better than the loop's thread: another fiber has a use for the loop meanwhile, and the worker
    /// would not have to wait long. As many as there are workers may read, and one more that is next, so that none of them
    /// waits for the loop either.
    pub fn should_read_on_pool(&mut self) -> bool {
        let Some(reactor) = &self.event_loop.reactor else {
            return false;
        };
        let has_worker = self.buffers.count() <= reactor.pool().limits().cpu;
        has_worker && (reactor.has_notifications() || self.has_ready_fiber())
    }
}
