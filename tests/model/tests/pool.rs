//! The pool: each job runs once and is notified once, no thread waits for ever, whatever the order of the threads.

mod support;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use loom::thread;
use reactor::{
    Handle, Token, control,
    pool::{Job, Limits, Outcome, Pool, Refused, WorkClass},
};

use support::{Loop, model};

/// The numbers of the jobs that have run. Its lock is no step of an interleaving.
#[derive(Clone, Default)]
struct Ran(Arc<Mutex<Vec<u32>>>);

impl Ran {
    fn submit(&self, pool: &mut Pool, number: u32) -> Result<Job<u32>, Refused> {
        let ran = self.clone();
        let work = move || {
            ran.0.lock().unwrap().push(number);
            number
        };
        pool.submit(Token::new(number, 0), WorkClass::Disk, work)
    }

    fn sorted(&self) -> Vec<u32> {
        let mut ran = self.0.lock().unwrap().clone();
        ran.sort_unstable();
        ran
    }
}

fn pool(handle: Handle, threads: usize) -> Pool {
    let mut pool = Pool::new(handle);
    pool.limit(limits(threads));
    pool
}

fn limits(threads: usize) -> Limits {
    Limits {
        threads,
        cpu: threads,
        disk: threads,
        network: threads,
        idle: Duration::from_secs(1),
    }
}

/// Lets the idle workers end, and waits until there is none.
fn end_of_workers(pool: &Pool) {
    while pool.statistics().threads > 0 {
        control::expire_waits();
        thread::yield_now();
    }
    let found = pool.statistics();
    assert_eq!((found.queued, found.running), (0, 0));
    assert_eq!(found.jobs, found.ended + found.cancelled);
}

#[test]
fn each_job_runs_once_and_is_notified_once() {
    for threads in 1..=2 {
        model("each_job_runs_once_and_is_notified_once", move || {
            let (mut owner, ran) = (Loop::new(), Ran::default());
            let mut pool = pool(owner.handle(), threads);
            let mut jobs = [1, 2].map(|number| ran.submit(&mut pool, number).unwrap());
            owner.turn_until(2);
            let outcomes = jobs.each_mut().map(Job::take);
            assert_eq!(outcomes, [1, 2].map(|number| Some(Outcome::Done(number))));
            end_of_workers(&pool);
            let mut reported = owner.events();
            reported.sort_unstable();
            assert_eq!((reported, ran.sorted()), (vec![1, 2], vec![1, 2]));
        });
    }
}

#[test]
fn a_worker_whose_idle_time_is_over_takes_a_job_that_comes_meanwhile() {
    let name = "a_worker_whose_idle_time_is_over_takes_a_job_that_comes_meanwhile";
    model(name, || {
        let (mut owner, ran) = (Loop::new(), Ran::default());
        let mut pool = pool(owner.handle(), 1);
        let mut first = ran.submit(&mut pool, 1).unwrap();
        owner.turn_until(1);
        let clock = thread::spawn(control::expire_waits);
        let mut second = ran.submit(&mut pool, 2).unwrap();
        owner.turn_until(2);
        clock.join().unwrap();
        let outcomes = [first.take(), second.take()];
        assert_eq!(outcomes, [1, 2].map(|number| Some(Outcome::Done(number))));
        end_of_workers(&pool);
        assert_eq!((owner.events(), ran.sorted()), (vec![1, 2], vec![1, 2]));
    });
}

#[test]
fn a_cancelled_job_does_not_run_and_every_other_one_is_notified() {
    let name = "a_cancelled_job_does_not_run_and_every_other_one_is_notified";
    model(name, || {
        let (mut owner, ran) = (Loop::new(), Ran::default());
        let mut pool = pool(owner.handle(), 1);
        let mut jobs = [1, 2].map(|number| ran.submit(&mut pool, number).unwrap());
        let cancelled = jobs[1].cancel();
        let expected = if cancelled { vec![1] } else { vec![1, 2] };
        owner.turn_until(expected.len());
        assert_eq!(jobs[0].take(), Some(Outcome::Done(1)));
        assert_eq!(jobs[1].take(), (!cancelled).then_some(Outcome::Done(2)));
        end_of_workers(&pool);
        assert_eq!(pool.statistics().cancelled, u64::from(cancelled));
        assert_eq!((owner.events(), ran.sorted()), (expected.clone(), expected));
    });
}

#[test]
fn a_dropped_job_runs_to_its_end_or_not_at_all() {
    model("a_dropped_job_runs_to_its_end_or_not_at_all", || {
        let (mut owner, ran) = (Loop::new(), Ran::default());
        let mut pool = pool(owner.handle(), 1);
        let mut jobs = [1, 2].map(|number| Some(ran.submit(&mut pool, number).unwrap()));
        drop(jobs[0].take());
        owner.turn_until(1);
        end_of_workers(&pool);
        let found = pool.statistics();
        assert_eq!(found.ended, ran.sorted().len() as u64);
        // The first job is reported only if it ended before it was dropped.
        let reported = owner.events();
        assert!(reported == [2] || (reported == [1, 2] && ran.sorted() == [1, 2]));
        assert_eq!(jobs[1].as_mut().unwrap().take(), Some(Outcome::Done(2)));
    });
}

#[test]
fn a_dropped_pool_answers_each_job() {
    for threads in 1..=2 {
        model("a_dropped_pool_answers_each_job", move || {
            let (mut owner, ran) = (Loop::new(), Ran::default());
            let mut pool = pool(owner.handle(), threads);
            let mut jobs = [1, 2].map(|number| ran.submit(&mut pool, number).unwrap());
            drop(pool);
            owner.turn_until(2);
            for (number, job) in (1..).zip(&mut jobs) {
                let has_run = ran.sorted().contains(&number);
                let expected = if has_run {
                    Outcome::Done(number)
                } else {
                    Outcome::Dropped
                };
                assert_eq!(job.take(), Some(expected));
            }
            let mut reported = owner.events();
            reported.sort_unstable();
            assert_eq!(reported, [1, 2]);
        });
    }
}

#[test]
fn a_job_is_cancelled_while_its_pool_is_dropped() {
    model("a_job_is_cancelled_while_its_pool_is_dropped", || {
        let (mut owner, ran) = (Loop::new(), Ran::default());
        let mut pool = pool(owner.handle(), 1);
        let mut job = ran.submit(&mut pool, 1).unwrap();
        let cancelling = thread::spawn(move || (job.cancel(), job));
        drop(pool);
        let (cancelled, mut job) = cancelling.join().unwrap();
        if cancelled {
            assert_eq!((job.take(), ran.sorted()), (None, vec![]));
        } else {
            owner.turn_until(1);
            let has_run = !ran.sorted().is_empty();
            let expected = if has_run {
                Outcome::Done(1)
            } else {
                Outcome::Dropped
            };
            assert_eq!(job.take(), Some(expected));
            assert_eq!(owner.events(), [1]);
        }
    });
}

#[test]
fn limits_that_change_lose_no_job() {
    model("limits_that_change_lose_no_job", || {
        let (mut owner, ran) = (Loop::new(), Ran::default());
        let mut pool = pool(owner.handle(), 2);
        pool.limit(Limits {
            disk: 1,
            ..limits(2)
        });
        let jobs = [1, 2].map(|number| ran.submit(&mut pool, number).unwrap());
        pool.limit(limits(2));
        pool.limit(limits(1));
        owner.turn_until(2);
        end_of_workers(&pool);
        let mut reported = owner.events();
        reported.sort_unstable();
        assert_eq!((reported, ran.sorted()), (vec![1, 2], vec![1, 2]));
        drop(jobs);
    });
}

#[test]
fn a_redirected_job_is_notified_under_its_new_token() {
    model("a_redirected_job_is_notified_under_its_new_token", || {
        let (mut owner, ran) = (Loop::new(), Ran::default());
        let mut pool = pool(owner.handle(), 1);
        let mut job = ran.submit(&mut pool, 1).unwrap();
        job.redirect(Token::new(2, 0));
        owner.turn_until(1);
        end_of_workers(&pool);
        // Under the old one as well, if it had ended before.
        let mut reported = owner.events();
        reported.sort_unstable();
        assert!(reported == [2] || reported == [1, 2], "{reported:?}");
        assert_eq!(job.take(), Some(Outcome::Done(1)));
    });
}

#[test]
fn a_job_without_a_new_thread_runs_once_or_is_refused_without_having_run() {
    let name = "a_job_without_a_new_thread_runs_once_or_is_refused_without_having_run";
    for before in 0..=1 {
        model(name, move || {
            let (mut owner, ran) = (Loop::new(), Ran::default());
            let mut pool = pool(owner.handle(), 2);
            let jobs: Vec<_> = (0..before)
                .map(|_| ran.submit(&mut pool, 1).unwrap())
                .collect();
            let clock = thread::spawn(control::expire_waits);
            control::refuse_threads(1);
            let last = ran.submit(&mut pool, 2);
            control::refuse_threads(0);
            let accepted = jobs.len() + usize::from(last.is_ok());
            owner.turn_until(accepted);
            clock.join().unwrap();
            end_of_workers(&pool);
            assert_eq!(owner.events().len(), accepted);
            assert_eq!(ran.sorted().contains(&2), last.is_ok());
            // The thread that did not start is not counted.
            let third = ran.submit(&mut pool, 3).unwrap();
            owner.turn_until(accepted + 1);
            drop(third);
        });
    }
}
