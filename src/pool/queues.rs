//! The queued jobs, by class.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use super::{
    job_state::Task,
    limits::{Limits, WorkClass},
};

/// A queued job. Job numbers increase, so each queue is sorted by them.
pub(super) struct Queued {
    pub(super) number: u64,
    pub(super) task: Arc<dyn Task>,
    pub(super) since: Instant,
}

/// One queue per class, and how many of its jobs are running.
#[derive(Default)]
pub(super) struct Queues {
    by_class: [ClassQueue; 3],
}

#[derive(Default)]
struct ClassQueue {
    jobs: VecDeque<Queued>,
    running: usize,
}

impl ClassQueue {
    fn place(&self, number: u64) -> Option<usize> {
        let place = self.jobs.binary_search_by_key(&number, |job| job.number);
        place.ok()
    }
}

impl Queues {
    pub(super) fn push(&mut self, class: WorkClass, job: Queued) {
        self.by_class[class as usize].jobs.push_back(job);
    }

    /// Removes the oldest job that may begin. It counts as running until [`Queues::end`].
    pub(super) fn begin(&mut self, limits: &Limits) -> Option<(Queued, WorkClass)> {
        let startable = WorkClass::ALL
            .into_iter()
            .filter(|class| self.startable_of(*class, limits) > 0);
        let class = startable.min_by_key(|class| self.first_number(*class))?;
        let queue = &mut self.by_class[class as usize];
        let job = queue.jobs.pop_front()?;
        queue.running += 1;
        Some((job, class))
    }

    /// A job of this class has ended.
    pub(super) fn end(&mut self, class: WorkClass) {
        self.by_class[class as usize].running -= 1;
    }

    /// Whether a job with this number is queued.
    pub(super) fn contains(&self, number: u64) -> bool {
        let mut queues = self.by_class.iter();
        queues.any(|queue| queue.place(number).is_some())
    }

    /// Removes a job that has not begun.
    pub(super) fn remove(&mut self, number: u64) -> Option<Queued> {
        let mut queues = self.by_class.iter_mut();
        queues.find_map(|queue| queue.jobs.remove(queue.place(number)?))
    }

    /// Removes all jobs that have not begun.
    pub(super) fn drain(&mut self) -> Vec<Queued> {
        let queues = self.by_class.iter_mut();
        queues.flat_map(|queue| queue.jobs.drain(..)).collect()
    }

    /// How many queued jobs may begin.
    pub(super) fn startable(&self, limits: &Limits) -> usize {
        let classes = WorkClass::ALL.into_iter();
        classes.map(|class| self.startable_of(class, limits)).sum()
    }

    /// How many jobs are queued.
    pub(super) fn queued(&self) -> usize {
        self.by_class.iter().map(|queue| queue.jobs.len()).sum()
    }

    /// How many jobs are running.
    pub(super) fn running(&self) -> usize {
        self.by_class.iter().map(|queue| queue.running).sum()
    }

    /// Whether as many jobs of this class are running or queued as may run at a time.
    pub(super) fn is_busy(&self, class: WorkClass, limits: &Limits) -> bool {
        let queue = &self.by_class[class as usize];
        queue.running + queue.jobs.len() >= limits.of_class(class)
    }

    fn startable_of(&self, class: WorkClass, limits: &Limits) -> usize {
        let queue = &self.by_class[class as usize];
        let free = limits.of_class(class).saturating_sub(queue.running);
        free.min(queue.jobs.len())
    }

    fn first_number(&self, class: WorkClass) -> Option<u64> {
        Some(self.by_class[class as usize].jobs.front()?.number)
    }
}
