//! The pool: each job is notified once, limits are kept, and dropping the pool does not block.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use reactor::{
    Events, Reactor, Ready, Token,
    pool::{Job, Limits, Outcome, Pool, WorkClass},
};

#[cfg(target_os = "linux")]
#[path = "support/refuse.rs"]
mod refuse;

/// A watchdog: longer than any step of these tests takes on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A reactor that keeps its idle threads, unless the limits set another idle time than the default.
fn reactor(limits: Limits) -> Reactor {
    let mut reactor = Reactor::open(None).unwrap();
    let idle = if limits.idle == Limits::default().idle {
        Duration::MAX
    } else {
        limits.idle
    };
    reactor.pool_mut().limit(Limits { idle, ..limits });
    reactor
}

/// A reactor with one worker.
fn single() -> Reactor {
    reactor(Limits {
        threads: 1,
        ..Limits::default()
    })
}

fn token(index: usize) -> Token {
    Token::new(index as u32, 0)
}

fn submit<T: Send + 'static>(
    reactor: &mut Reactor,
    index: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Job<T> {
    reactor
        .pool_mut()
        .submit(token(index), WorkClass::Disk, work)
        .unwrap()
}

/// Turns until there are `count` events, which must be notifications.
fn notified(reactor: &mut Reactor, count: usize) -> Vec<usize> {
    let (mut events, start) = (Events::new(), Instant::now());
    while events.len() < count {
        assert!(
            start.elapsed() < TEST_TIMEOUT,
            "{} of {count}",
            events.len()
        );
        reactor.turn(&mut events, Some(TEST_TIMEOUT)).unwrap();
    }
    assert!(events.iter().all(|event| event.ready == Ready::NOTIFIED));
    let indexes = events.iter().map(|event| event.token.index() as usize);
    indexes.collect()
}

/// Is there no event within 20 ms? On a slow machine this may miss an event, but never reports one that does not exist.
fn silent(reactor: &mut Reactor) -> bool {
    let mut events = Events::new();
    reactor
        .turn(&mut events, Some(Duration::from_millis(20)))
        .unwrap();
    events.is_empty()
}

fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < TEST_TIMEOUT, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Blocks jobs until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn pass(&self) {
        let (open, news) = &*self.0;
        let open = open.lock().unwrap();
        drop(
            news.wait_timeout_while(open, TEST_TIMEOUT, |open| !*open)
                .unwrap(),
        );
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

/// Counts the running jobs: how many there are now, and how many there were at most.
#[derive(Clone, Default)]
struct Census(Arc<(AtomicUsize, AtomicUsize)>);

impl Census {
    fn enter(&self) {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn now(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.0.1.load(Ordering::SeqCst)
    }
}

/// Counts its drops.
struct Owned(Arc<AtomicUsize>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_result_comes_as_an_event() {
    let mut reactor = reactor(Limits::default());
    assert_eq!(reactor.pool().statistics().threads, 0, "lazily started");
    let mut job = submit(&mut reactor, 7, || 6 * 7);
    assert_eq!(notified(&mut reactor, 1), [7]);
    assert_eq!(job.take(), Some(Outcome::Done(42)));
    assert_eq!(job.take(), None, "a result is taken once");
    let statistics = reactor.pool().statistics();
    assert_eq!((statistics.jobs, statistics.ended), (1, 1));
    assert_eq!((statistics.started, statistics.threads), (1, 1));
    assert!(silent(&mut reactor));
}

#[test]
fn an_idle_thread_ends_in_the_end() {
    let mut reactor = reactor(Limits {
        idle: Duration::from_millis(1),
        ..Limits::default()
    });
    let job = submit(&mut reactor, 1, || ());
    notified(&mut reactor, 1);
    drop(job);
    let pool = reactor.pool();
    eventually("the idle thread stays", || pool.statistics().threads == 0);
    let mut job = submit(&mut reactor, 11, || 1);
    notified(&mut reactor, 1);
    assert_eq!(job.take(), Some(Outcome::Done(1)));
}

#[test]
fn each_class_has_its_own_limit() {
    let Limits {
        threads,
        cpu,
        disk,
        network,
        ..
    } = Limits::default();
    assert!(disk < network && cpu + disk + network <= threads);
    let cpu = 2; // The default depends on the number of processors.
    let mut reactor = reactor(Limits {
        threads: cpu + disk + network,
        cpu,
        ..Limits::default()
    });
    let (gate, mut jobs) = (Gate::default(), Vec::new());
    let census = [(); 3].map(|()| Census::default());
    let classes = [WorkClass::Cpu, WorkClass::Disk, WorkClass::Network];
    for index in 0..200 {
        let (gate, census) = (gate.clone(), census[index % 3].clone());
        let class = classes[index % 3];
        let limit = [cpu, disk, network][index % 3];
        assert_eq!(reactor.pool().is_busy(class), index / 3 >= limit);
        let work = move || {
            census.enter();
            gate.pass();
            census.leave();
        };
        let pool = reactor.pool_mut();
        jobs.push(pool.submit(token(index), class, work).unwrap());
    }
    let all = cpu + disk + network;
    eventually("not all have begun", || {
        census.iter().map(Census::now).sum::<usize>() == all
    });
    assert_eq!(reactor.pool().statistics().threads, all as u64);
    gate.open();
    assert_eq!(notified(&mut reactor, 200).len(), jobs.len());
    assert_eq!(census.map(|census| census.most()), [cpu, disk, network]);
    assert!(
        !classes
            .map(|class| reactor.pool().is_busy(class))
            .contains(&true)
    );
}

#[test]
fn work_begins_in_the_order_it_came() {
    let mut reactor = reactor(Limits {
        threads: 1,
        network: 1,
        ..Limits::default()
    });
    let (gate, order) = (Gate::default(), Arc::new(Mutex::new(Vec::new())));
    let mut jobs = vec![submit(&mut reactor, 0, {
        let gate = gate.clone();
        move || gate.pass()
    })];
    for index in 1..20 {
        let order = Arc::clone(&order);
        let class = [WorkClass::Disk, WorkClass::Network][index % 2];
        let work = move || order.lock().unwrap().push(index);
        jobs.push(
            reactor
                .pool_mut()
                .submit(token(index), class, work)
                .unwrap(),
        );
    }
    gate.open();
    notified(&mut reactor, 20);
    assert!(order.lock().unwrap().iter().copied().eq(1..20));
}

#[test]
fn a_panic_ends_its_job_only() {
    let mut reactor = single();
    let mut static_message = submit(&mut reactor, 0, || -> u32 { panic!("on purpose") });
    let mut formatted = submit(&mut reactor, 1, || -> u32 { panic!("on {}", "purpose") });
    let mut other = submit(&mut reactor, 2, || -> u32 { std::panic::panic_any(5_u8) });
    let mut after = submit(&mut reactor, 3, || 3);
    notified(&mut reactor, 4);
    let purpose = || Some(Outcome::Panicked("on purpose".to_owned()));
    assert_eq!(static_message.take(), purpose());
    assert_eq!(formatted.take(), purpose());
    assert!(matches!(other.take(), Some(Outcome::Panicked(_))));
    assert_eq!(after.take(), Some(Outcome::Done(3)), "the worker goes on");
    let statistics = reactor.pool().statistics();
    assert_eq!((statistics.panicked, statistics.started), (3, 1));
}

/// Panics when it is dropped, and so does what it panics with.
struct Bomb(u8);

impl Drop for Bomb {
    fn drop(&mut self) {
        if let Some(left) = self.0.checked_sub(1) {
            std::panic::panic_any(Bomb(left));
        }
    }
}

#[test]
fn a_result_whose_drop_panics_ends_no_worker() {
    let mut reactor = single();
    let gate = Gate::default();
    let detached = submit(&mut reactor, 0, {
        let gate = gate.clone();
        move || {
            gate.pass();
            Bomb(2)
        }
    });
    let pool = reactor.pool();
    eventually("not begun", || pool.statistics().running == 1);
    drop(detached);
    gate.open();
    let mut after = submit(&mut reactor, 1, || 1);
    notified(&mut reactor, 1);
    assert_eq!(after.take(), Some(Outcome::Done(1)), "the worker goes on");
    let statistics = reactor.pool().statistics();
    assert_eq!((statistics.panicked, statistics.started), (1, 1));
}

#[test]
fn work_whose_drop_panics_does_not_keep_the_end_of_the_pool_from_later_jobs() {
    let mut reactor = single();
    let gate = Gate::default();
    let running = submit(&mut reactor, 0, {
        let gate = gate.clone();
        move || gate.pass()
    });
    let pool = reactor.pool();
    eventually("not begun", || pool.statistics().running == 1);
    let mut bombs = [1, 2].map(|index| {
        let bomb = Bomb(1);
        submit(&mut reactor, index, move || drop(bomb))
    });
    let mut last = submit(&mut reactor, 3, || ());
    *reactor.pool_mut() = Pool::new(reactor.handle());
    assert_eq!(notified(&mut reactor, 3), [1, 2, 3]);
    assert_eq!(last.take(), Some(Outcome::Dropped));
    for bomb in &mut bombs {
        assert_eq!(bomb.take(), Some(Outcome::Dropped));
    }
    gate.open();
    drop(running);
}

#[cfg(target_os = "linux")]
#[test]
fn a_job_that_runs_where_no_thread_starts_counts_as_ended_and_not_as_cancelled() {
    // A thread of its own, because the filter lasts as long as the thread.
    let counted = thread::spawn(|| {
        let mut reactor = single();
        for call in [libc::SYS_clone, libc::SYS_clone3] {
            refuse::refuse(call, libc::EAGAIN);
        }
        let pool = reactor.pool_mut();
        let mut job = pool.submit_or_run(token(1), WorkClass::Disk, || 7).unwrap();
        assert_eq!(job.take(), Some(Outcome::Done(7)));
        let refused = pool.submit(token(2), WorkClass::Disk, || 7);
        assert!(
            matches!(refused, Err(reactor::pool::Refused::NoThread(_))),
            "{refused:?}"
        );
        let found = reactor.pool().statistics();
        assert_eq!((found.jobs, found.ended, found.cancelled), (2, 1, 1));
        assert_eq!((found.started, found.queued, found.running), (0, 0, 0));
        notified(&mut reactor, 1)
    });
    assert_eq!(counted.join().unwrap(), [1]);
}

#[test]
fn a_job_that_has_not_begun_can_be_cancelled() {
    let mut reactor = single();
    let (gate, dropped) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let mut first = submit(&mut reactor, 0, {
        let gate = gate.clone();
        move || gate.pass()
    });
    let pool = reactor.pool();
    eventually("not begun", || pool.statistics().running == 1);
    let owned = Owned(Arc::clone(&dropped));
    let mut second = submit(&mut reactor, 1, move || drop(owned));
    let owned = Owned(Arc::clone(&dropped));
    let third = submit(&mut reactor, 2, move || drop(owned));
    assert!(second.cancel());
    assert_eq!(dropped.load(Ordering::SeqCst), 1, "of the cancelled job");
    assert_eq!(reactor.pool().statistics().queued, 1);
    drop(third); // This cancels it.
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
    assert_eq!(reactor.pool().statistics().queued, 0);
    assert!(!first.cancel(), "it has begun");
    gate.open();
    assert_eq!(notified(&mut reactor, 1), [0]);
    assert_eq!(first.take(), Some(Outcome::Done(())));
    assert!(silent(&mut reactor));
    assert_eq!(reactor.pool().statistics().cancelled, 2);
}

#[test]
fn dropping_the_reactor_does_not_wait_for_running_jobs() {
    let mut reactor = single();
    let (gate, dropped) = (Gate::default(), Arc::new(AtomicUsize::new(0)));
    let (sender, receiver) = mpsc::channel();
    let owned = Owned(Arc::clone(&dropped));
    let mut running = submit(&mut reactor, 0, {
        let gate = gate.clone();
        move || {
            gate.pass();
            sender.send("to its end").unwrap();
            drop(owned);
        }
    });
    let pool = reactor.pool();
    eventually("not begun", || pool.statistics().running == 1);
    let owned = Owned(Arc::clone(&dropped));
    let mut queued = submit(&mut reactor, 1, move || drop(owned));
    drop(reactor);
    let early = receiver.try_recv();
    assert!(early.is_err(), "the drop has waited for the running job");
    assert_eq!(queued.take(), Some(Outcome::Dropped));
    assert_eq!(dropped.load(Ordering::SeqCst), 1, "of the queued job");
    gate.open();
    assert_eq!(receiver.recv_timeout(TEST_TIMEOUT), Ok("to its end"));
    let running = Mutex::new(&mut running);
    eventually("no result", || {
        running.lock().unwrap().take() == Some(Outcome::Done(()))
    });
    eventually("the running job's memory is kept", || {
        dropped.load(Ordering::SeqCst) == 2
    });
    drop(queued);
}

#[test]
fn limits_are_at_least_one() {
    let mut reactor = reactor(Limits {
        threads: 0,
        cpu: 0,
        disk: 0,
        network: 0,
        idle: Duration::ZERO,
    });
    let limits = reactor.pool().limits();
    assert_eq!((limits.threads, limits.cpu, limits.disk), (1, 1, 1));
    assert_eq!(limits.network, 1);
    let mut job = reactor
        .pool_mut()
        .submit(token(1), WorkClass::Network, || 1)
        .unwrap();
    notified(&mut reactor, 1);
    assert_eq!(job.take(), Some(Outcome::Done(1)));
}

/// The mask of the signals that the calling thread blocks, from /proc/thread-self/status.
#[cfg(target_os = "linux")]
fn blocked() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    u64::from_str_radix(line.unwrap().trim(), 16).unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn workers_get_no_signals() {
    let (mut reactor, before) = (reactor(Limits::default()), blocked());
    let mut job = submit(&mut reactor, 0, blocked);
    notified(&mut reactor, 1);
    let Some(Outcome::Done(mask)) = job.take() else {
        panic!("no result");
    };
    for signal in (1..32).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
        let fault = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL].contains(&signal);
        assert_eq!(mask >> (signal - 1) & 1 == 1, !fault, "signal {signal}");
    }
    assert_eq!(blocked(), before, "the owner's mask is as it was");
}

#[cfg(unix)]
#[test]
fn the_pool_refuses_work_in_a_forked_child() {
    let mut reactor = single();
    let gate = Gate::default();
    let mut running = submit(&mut reactor, 0, {
        let gate = gate.clone();
        move || gate.pass()
    });
    let pool = reactor.pool();
    eventually("not begun", || pool.statistics().running == 1);
    let mut queued = submit(&mut reactor, 1, || 1);

    // SAFETY: the child runs the block below and exits by _exit(2). glibc allows allocation in it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no precondition. If the child hangs, SIGALRM ends it.
        unsafe { libc::alarm(TEST_TIMEOUT.as_secs() as libc::c_uint) };
        let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let refused = reactor.pool_mut().submit(token(2), WorkClass::Disk, || 2);
            assert!(matches!(refused, Err(reactor::pool::Refused::Foreign)));
            assert_eq!(queued.take(), Some(Outcome::Dropped));
            assert!(queued.cancel());
            drop((running, queued, reactor));
            let mut own = Reactor::open(None).unwrap();
            let mut job = submit(&mut own, 3, || 3);
            notified(&mut own, 1);
            assert_eq!(job.take(), Some(Outcome::Done(3)));
        }));
        // SAFETY: no precondition. The parent's exit handlers do not run.
        unsafe { libc::_exit(i32::from(fine.is_err())) };
    }
    let mut status = 0;
    // SAFETY: the status outlives the call.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child failed");

    gate.open();
    notified(&mut reactor, 2);
    assert_eq!(running.take(), Some(Outcome::Done(())));
    assert_eq!(
        queued.take(),
        Some(Outcome::Done(1)),
        "the parent's job is run"
    );
}
