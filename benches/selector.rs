//! What a wait costs, beside mio registering and deregistering for each one.
//!
//! ```text
//! cargo bench -p reactor-loop --bench selector
//! ```

use std::{
    hint::black_box,
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use reactor::{
    Attempt, Deadline, Events, Identity, Interest, Reactor, Selector, Timers, Token, Wait, WaitId,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const READ: Interest = Interest::READABLE;
const SIZES: [usize; 3] = [1, 100, 10_000];

/// So many connected pairs; fewer where the limit of open files is too low for them and for the rest of the process.
fn pairs(count: usize) -> Vec<(UnixStream, UnixStream)> {
    const REST: u64 = 100;
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let most = limit.maximum.unwrap_or(u64::MAX).saturating_sub(REST) / 2;
    let pair = || {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    };
    (0..count.min(most as usize)).map(|_| pair()).collect()
}

fn wait(selector: &mut Selector, index: usize, stream: &UnixStream, now: Instant) -> WaitId {
    let identity = Identity(index as u64 + 1);
    let token = Token::new(index as u32, 0);
    match selector.wait(stream.as_raw_fd(), identity, READ, token, now) {
        Ok(Wait::Pending(wait)) => wait,
        other => unreachable!("a socket can be polled: {other:?}"),
    }
}

fn drained(selector: &mut Selector, index: usize, stream: &UnixStream) {
    let identity = Identity(index as u64 + 1);
    selector.attempted(stream.as_raw_fd(), identity, READ, Attempt::WouldBlock);
}

/// One wait that is not answered, on each of many sources in turn.
fn waits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wait");
    for size in SIZES {
        let sources = pairs(size);
        let size = sources.len();
        let now = Instant::now();

        let mut selector = Selector::open(None).unwrap();
        let mut next = (0..size).cycle();
        group.bench_function(BenchmarkId::new("rearm", size), |bencher| {
            bencher.iter(|| {
                let index = next.next().unwrap_or(0);
                let wait = wait(&mut selector, index, &sources[index].0, now);
                black_box(selector.end(wait))
            });
        });

        for (index, (stream, _)) in sources.iter().enumerate() {
            let wait = wait(&mut selector, index, stream, now);
            selector.end(wait);
            drained(&mut selector, index, stream);
        }
        group.bench_function(BenchmarkId::new("skip", size), |bencher| {
            bencher.iter(|| {
                let index = next.next().unwrap_or(0);
                let wait = wait(&mut selector, index, &sources[index].0, now);
                black_box(selector.end(wait))
            });
        });

        let poll = mio::Poll::new().unwrap();
        group.bench_function(BenchmarkId::new("mio", size), |bencher| {
            bencher.iter(|| {
                let index = next.next().unwrap_or(0);
                let descriptor = sources[index].0.as_raw_fd();
                let mut source = mio::unix::SourceFd(&descriptor);
                let registry = poll.registry();
                registry
                    .register(&mut source, mio::Token(index), mio::Interest::READABLE)
                    .unwrap();
                registry.deregister(&mut source).unwrap();
            });
        });
    }
    group.finish();
}

/// A byte arrives, is announced and read: the same work with and without a memory.
fn answers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("answer");
    for size in SIZES {
        let mut sources = pairs(size);
        let size = sources.len();
        let now = Instant::now();
        let zero = Some(Duration::ZERO);
        let mut byte = [0; 16];

        let mut selector = Selector::open(None).unwrap();
        let mut events = Events::new();
        let mut next = (0..size).cycle();
        group.bench_function(BenchmarkId::new("selector", size), |bencher| {
            bencher.iter(|| {
                let index = next.next().unwrap_or(0);
                let (ours, theirs) = &mut sources[index];
                let wait = wait(&mut selector, index, ours, now);
                theirs.write_all(b"x").unwrap();
                events.clear();
                selector.poll(&mut events, zero, now).unwrap();
                selector.end(wait);
                let count = ours.read(&mut byte).unwrap();
                drained(&mut selector, index, ours);
                black_box(count)
            });
        });

        let mut poll = mio::Poll::new().unwrap();
        let mut events = mio::Events::with_capacity(1024);
        group.bench_function(BenchmarkId::new("mio", size), |bencher| {
            bencher.iter(|| {
                let index = next.next().unwrap_or(0);
                let (ours, theirs) = &mut sources[index];
                let descriptor = ours.as_raw_fd();
                let mut source = mio::unix::SourceFd(&descriptor);
                poll.registry()
                    .register(&mut source, mio::Token(index), mio::Interest::READABLE)
                    .unwrap();
                theirs.write_all(b"x").unwrap();
                poll.poll(&mut events, zero).unwrap();
                poll.registry().deregister(&mut source).unwrap();
                black_box(ours.read(&mut byte).unwrap())
            });
        });
    }
    group.finish();
}

fn turns(criterion: &mut Criterion) {
    let mut reactor = Reactor::open(None).unwrap();
    let mut events = Events::new();
    criterion.bench_function("turn/empty", |bencher| {
        bencher.iter(|| reactor.collect(&mut events).unwrap());
    });
    let handle = reactor.handle();
    criterion.bench_function("turn/notified", |bencher| {
        bencher.iter(|| {
            handle.notify(Token::new(0, 0)).unwrap();
            events.clear();
            reactor.collect(&mut events).unwrap();
            black_box(events.len())
        });
    });
    criterion.bench_function("turn/woken", |bencher| {
        bencher.iter(|| {
            handle.wake().unwrap();
            events.clear();
            reactor.collect(&mut events).unwrap();
        });
    });
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

criterion_group!(benches, waits, answers, turns, timers);
criterion_main!(benches);
