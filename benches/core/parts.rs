//! The cost of each part alone: registering, re-arming, waking, an empty turn, timers, the pool.

use std::{
    hint::black_box,
    os::fd::RawFd,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput};
use reactor::{
    Attempt, Deadline, Events, Interest, OwnerId, Reactor, Timers, Token, Wait, WaitId,
    pool::WorkClass,
};

use crate::loops::{SIZES, Sources};

const READ: Interest = Interest::READABLE;

fn wait(reactor: &mut Reactor, index: usize, descriptor: RawFd) -> WaitId {
    let owner = OwnerId(index as u64 + 1);
    let token = Token::new(index as u32, 0);
    match reactor.wait(descriptor, owner, READ, token) {
        Ok(Wait::Pending(wait)) => wait,
        other => unreachable!("a socket can be polled: {other:?}"),
    }
}

/// One unanswered wait on each of many sources in turn.
fn waits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wait");
    for size in SIZES {
        let sources = Sources::new(0, size);
        let descriptors = sources.descriptors();
        let mut next = (0..size).cycle();

        let mut reactor = Reactor::open(None).unwrap();
        group.bench_function(BenchmarkId::new("reactor, rearm", size), |bencher| {
            bencher.iter(|| {
                let index = next.next().unwrap_or(0);
                let wait = wait(&mut reactor, index, descriptors[index]);
                black_box(reactor.end(wait))
            });
        });

        for (index, descriptor) in descriptors.iter().enumerate() {
            let wait = wait(&mut reactor, index, *descriptor);
            reactor.end(wait);
            let owner = OwnerId(index as u64 + 1);
            reactor.attempted(*descriptor, owner, READ, Attempt::WouldBlock);
        }
        group.bench_function(BenchmarkId::new("reactor, drained", size), |bencher| {
            bencher.iter(|| {
                let index = next.next().unwrap_or(0);
                let wait = wait(&mut reactor, index, descriptors[index]);
                black_box(reactor.end(wait))
            });
        });

        group.bench_function(
            BenchmarkId::new("reactor, register and deregister", size),
            |bencher| {
                bencher.iter(|| {
                    let index = next.next().unwrap_or(0);
                    reactor.deregister(descriptors[index]);
                    let wait = wait(&mut reactor, index, descriptors[index]);
                    black_box(reactor.end(wait))
                });
            },
        );

        let poll = mio::Poll::new().unwrap();
        group.bench_function(
            BenchmarkId::new("mio, register and deregister", size),
            |bencher| {
                bencher.iter(|| {
                    let index = next.next().unwrap_or(0);
                    let mut source = mio::unix::SourceFd(&descriptors[index]);
                    let registry = poll.registry();
                    registry
                        .register(&mut source, mio::Token(index), mio::Interest::READABLE)
                        .unwrap();
                    registry.deregister(&mut source).unwrap();
                });
            },
        );
    }
    group.finish();
}

/// A turn without events, compared with the one system call in it.
fn turns(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("turn");
    for size in SIZES {
        let sources = Sources::new(1, size);
        let mut reactor = Reactor::open(None).unwrap();
        for (index, descriptor) in sources.descriptors().into_iter().enumerate() {
            let owner = OwnerId(index as u64 + 1);
            let wait = reactor.wait(descriptor, owner, READ, Token::new(index as u32, 0));
            assert!(matches!(wait, Ok(Wait::Pending(_))));
        }
        let mut events = Events::new();
        group.bench_function(BenchmarkId::new("reactor", size), |bencher| {
            bencher.iter(|| {
                events.clear();
                reactor.collect(&mut events).unwrap();
            });
        });
        let mut poll = mio::Poll::new().unwrap();
        let mut events = mio::Events::with_capacity(1024);
        group.bench_function(BenchmarkId::new("mio", size), |bencher| {
            bencher.iter(|| poll.poll(&mut events, Some(Duration::ZERO)).unwrap());
        });
    }
    group.finish();
}

/// The loop is woken or notified, then collects.
fn wakes(criterion: &mut Criterion) {
    let zero = Some(Duration::ZERO);
    let mut group = criterion.benchmark_group("wake");
    let mut reactor = Reactor::open(None).unwrap();
    let (handle, mut events) = (reactor.handle(), Events::new());
    group.bench_function("reactor, notified while awake", |bencher| {
        bencher.iter(|| {
            handle.notify(Token::new(0, 0)).unwrap();
            events.clear();
            reactor.collect(&mut events).unwrap();
            black_box(events.len())
        });
    });
    group.bench_function("reactor, notified while asleep", |bencher| {
        bencher.iter(|| {
            let sleep = reactor.sleep(zero);
            handle.notify(Token::new(0, 0)).unwrap();
            drop(sleep);
            events.clear();
            reactor.collect(&mut events).unwrap();
            black_box(events.len())
        });
    });
    group.bench_function("reactor, woken", |bencher| {
        bencher.iter(|| {
            handle.wake().unwrap();
            events.clear();
            reactor.collect(&mut events).unwrap();
        });
    });

    let mut poll = mio::Poll::new().unwrap();
    let waker = mio::Waker::new(poll.registry(), mio::Token(0)).unwrap();
    let mut events = mio::Events::with_capacity(1024);
    group.bench_function("mio", |bencher| {
        bencher.iter(|| {
            waker.wake().unwrap();
            poll.poll(&mut events, zero).unwrap();
            black_box(events.is_empty())
        });
    });

    let poller = polling::Poller::new().unwrap();
    let mut events = polling::Events::new();
    group.bench_function("polling", |bencher| {
        bencher.iter(|| {
            poller.notify().unwrap();
            events.clear();
            poller.wait(&mut events, zero).unwrap()
        });
    });
    group.finish();
}

/// Jobs that do nothing: submitted, run by other threads, reported and taken.
fn pool(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pool");
    let mut reactor = Reactor::open(None).unwrap();
    let mut events = Events::new();
    for size in SIZES {
        group.throughput(Throughput::Elements(size as u64));
        group.bench_function(BenchmarkId::new("jobs", size), |bencher| {
            bencher.iter(|| {
                let submit = |number| {
                    let token = Token::new(number as u32, 0);
                    let job = reactor
                        .pool_mut()
                        .submit(token, WorkClass::Disk, move || number);
                    job.expect("a thread")
                };
                let mut jobs: Vec<_> = (0..size).map(submit).collect();
                events.clear();
                while events.len() < size {
                    reactor.turn(&mut events, None).unwrap();
                }
                let results = jobs.iter_mut().filter_map(|job| job.take());
                assert_eq!(results.count(), size);
            });
        });
    }
    group.finish();
}

fn timers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("timer");
    let now = Instant::now();
    for size in SIZES {
        let mut timers = Timers::new();
        for number in 0..size {
            let spread = number as u64 * 7919 % size as u64;
            let deadline = Deadline::after_from(now, Duration::from_millis(1000 + spread));
            timers.insert(deadline, Token::new(number as u32, 0));
        }
        let deadline = Deadline::after_from(now, Duration::from_millis(1000 + size as u64 / 2));
        group.bench_function(BenchmarkId::new("set and cancel", size), |bencher| {
            bencher.iter(|| {
                let timer = timers.insert(deadline, Token::new(0, 1));
                black_box(timers.cancel(timer))
            });
        });
        let mut events = Events::new();
        group.bench_function(BenchmarkId::new("set and elapse", size), |bencher| {
            bencher.iter(|| {
                timers.insert(Deadline::from(now), Token::new(0, 1));
                events.clear();
                timers.expire(now, &mut events);
                black_box(events.len())
            });
        });
    }
    group.finish();
}

pub fn all(criterion: &mut Criterion) {
    waits(criterion);
    wakes(criterion);
    turns(criterion);
    timers(criterion);
    pool(criterion);
}
