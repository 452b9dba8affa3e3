//! Notifications of other threads, and the pool.

use std::{sync::mpsc, thread, time::Duration};

use reactor::{
    Events, Reactor, Token,
    pool::{Limits, Outcome, Refused, WorkClass},
};
use reactor_faults::marks::{TEST, library, mark};

use super::{World, print, report, retry};

/// Another thread notifies while this one sleeps, or is about to.
pub fn notifications(world: &World) {
    let mut reactor = Reactor::open(Some(world.backend)).unwrap();
    let handle = reactor.handle();
    let (sender, receiver) = mpsc::channel::<u32>();
    thread::scope(|scope| {
        scope.spawn(move || {
            mark(TEST);
            for index in receiver {
                while !handle.is_sleeping() {
                    thread::yield_now();
                }
                if let Err(error) = library(|| handle.notify(Token::new(index, 0))) {
                    report(&error);
                    retry(|| handle.wake()); // The notification is in the inbox.
                }
            }
        });
        for index in 1..=3 {
            sender.send(index).unwrap();
            let mut events = Events::new();
            while events.is_empty() {
                retry(|| reactor.turn(&mut events, None));
            }
            let notified: Vec<u32> = events.iter().map(|event| event.token.index()).collect();
            print(&format!("notified {notified:?}"));
        }
        drop(sender);
    });
    library(|| drop(reactor));
}

/// Jobs of the pool: a turn reports the end of each. Nothing else would end its sleep.
pub fn jobs(world: &World) {
    let mut reactor = Reactor::open(Some(world.backend)).unwrap();
    for index in 1..=3 {
        let mut job = loop {
            let submitted = library(|| {
                let pool = reactor.pool_mut();
                pool.submit(Token::new(index, 0), WorkClass::Disk, move || 10 * index)
            });
            match submitted {
                Ok(job) => break job,
                Err(Refused::NoThread(error)) => report(&error),
                Err(refused) => panic!("{refused}"),
            }
        };
        let mut events = Events::new();
        while events.is_empty() {
            retry(|| reactor.turn(&mut events, None));
        }
        let Some(Outcome::Done(value)) = library(|| job.take()) else {
            panic!("it was reported")
        };
        print(&format!("job {value}"));
        library(|| drop(job));
    }
    library(|| drop(reactor));
}

/// Workers that end as soon as they are idle.
pub fn workers(world: &World) {
    let mut reactor = Reactor::open(Some(world.backend)).unwrap();
    library(|| {
        reactor.pool_mut().limit(Limits {
            threads: 2,
            idle: Duration::ZERO,
            ..Limits::default()
        });
    });
    for round in 0..2 {
        let mut jobs = Vec::new();
        while jobs.len() < 4 {
            let index = jobs.len() as u32;
            let submitted = library(|| {
                let pool = reactor.pool_mut();
                pool.submit(Token::new(index, round), WorkClass::Network, move || index)
            });
            match submitted {
                Ok(job) => jobs.push(job),
                Err(Refused::NoThread(error)) => report(&error),
                Err(refused) => panic!("{refused}"),
            }
        }
        let mut events = Events::new();
        while events.len() < jobs.len() {
            retry(|| reactor.turn(&mut events, None));
        }
        let outcomes: Vec<String> = jobs
            .iter_mut()
            .map(|job| format!("{:?}", library(|| job.take())))
            .collect();
        print(&outcomes.join(" "));
        library(|| drop(jobs));
    }
    library(|| drop(reactor));
}
