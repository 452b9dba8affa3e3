//! The jobs of the pool that fibers wait for.
//!
//! A job is kept here and not in the frame of its fiber, because a fiber that the end of the scheduler abandons does not return:
//! nothing would drop what its frame owns.

use std::{any::Any, collections::BTreeMap, marker::PhantomData};

use reactor::Job;

/// The jobs of one scheduler.
#[derive(Debug, Default)]
pub struct AwaitedJobs {
    jobs: BTreeMap<u64, Box<dyn Any + Send>>,
    next: u64,
}

/// A job that is kept until it is taken, or until the scheduler is closed.
#[derive(Debug)]
pub struct AwaitedJob<T> {
    number: u64,
    result: PhantomData<fn() -> T>,
}

impl AwaitedJobs {
    pub fn keep<T: Send + 'static>(&mut self, job: Job<T>) -> AwaitedJob<T> {
        let number = self.next;
        self.next += 1;
        self.jobs.insert(number, Box::new(job));
        AwaitedJob {
            number,
            result: PhantomData,
        }
    }

    /// `None` if the scheduler was closed meanwhile.
    pub fn get<T: Send + 'static>(&mut self, kept: &AwaitedJob<T>) -> Option<&mut Job<T>> {
        self.jobs.get_mut(&kept.number)?.downcast_mut()
    }

    /// As [`AwaitedJobs::get`]. The job is kept no longer.
    pub fn take<T: Send + 'static>(&mut self, kept: &AwaitedJob<T>) -> Option<Job<T>> {
        let job = self.jobs.remove(&kept.number)?;
        job.downcast().ok().map(|job| *job)
    }
}
