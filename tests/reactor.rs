//! Turns: which events they report, in which order, and that each event ends a sleep.

#[cfg(unix)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

use reactor::{
    AsDescriptor, Backend, Deadline, Events, Interest, OwnerId, Reactor, Ready, Token, Wait,
};

use sockets::tcp;

#[path = "support/sockets.rs"]
mod sockets;

const HOUR: Duration = Duration::from_secs(3600);

/// Makes each function a test that runs on each available backend.
macro_rules! turns {
    ($($(#[$condition:meta])* $test:ident)*) => {
        mod on_every_backend {
            $(
                $(#[$condition])*
                #[test]
                fn $test() {
                    super::sockets::backends().for_each(super::$test);
                }
            )*
        }
    };
}

turns! {
    a_limit_ends_a_turn_and_not_before_its_time
    timers_elapse_in_order_and_never_early
    a_frozen_clock_moves_only_when_it_is_advanced
    readiness_comes_before_the_timeout_of_the_same_turn
    the_kernel_ends_a_sleep
    a_wake_ends_one_turn_and_shows_nothing
    another_thread_can_block_in_a_sleep
    each_notification_ends_the_sleep
    a_notification_that_ends_a_sleep_needs_no_poll_and_hides_no_event
    a_timer_that_is_due_is_reported_with_the_notification_that_ends_a_sleep
    #[cfg(unix)]
    a_signal_is_an_empty_turn
}

fn reactor(backend: Backend) -> (Reactor, Events) {
    (Reactor::open(Some(backend)).unwrap(), Events::new())
}

/// Turns until there is an event.
fn turn(reactor: &mut Reactor, events: &mut Events) {
    events.clear();
    while events.is_empty() {
        reactor.turn(events, Some(HOUR)).unwrap();
    }
}

fn indexes(events: &Events) -> Vec<u32> {
    events.iter().map(|event| event.token.index()).collect()
}

fn a_limit_ends_a_turn_and_not_before_its_time(backend: Backend) {
    let (mut reactor, mut events) = reactor(backend);
    for limit in [Duration::ZERO, Duration::from_micros(300)] {
        let started = Instant::now();
        reactor.turn(&mut events, Some(limit)).unwrap();
        assert!(events.is_empty() && started.elapsed() >= limit);
    }
}

fn timers_elapse_in_order_and_never_early(backend: Backend) {
    let (mut reactor, mut events) = reactor(backend);
    let start = Instant::now();
    for (token, microseconds) in [(3, 3000), (1, 1000), (2, 2000)] {
        let deadline = Deadline::after_from(start, Duration::from_micros(microseconds));
        reactor.timer(deadline, Token::new(token, 0));
    }
    let mut found = Vec::new();
    while found.len() < 3 {
        turn(&mut reactor, &mut events);
        for event in &events {
            assert_eq!(event.ready, Ready::ELAPSED);
            let due = Duration::from_millis(u64::from(event.token.index()));
            assert!(reactor.clock() >= start + due);
            found.push(event.token.index());
        }
    }
    assert_eq!(found, [1, 2, 3]);
}

fn a_frozen_clock_moves_only_when_it_is_advanced(backend: Backend) {
    let (mut reactor, mut events) = reactor(backend);
    assert!(!reactor.is_clock_frozen() && !reactor.advance_to_next_timer());
    reactor.freeze_clock();
    let start = reactor.now();
    for (token, hours) in [(2, 2), (1, 1), (3, 2)] {
        let deadline = reactor.deadline(HOUR * hours);
        reactor.timer(deadline, Token::new(token, 0));
    }
    // A timer of a frozen clock ends no sleep, but a due one is reported.
    reactor.timer(reactor.deadline(Duration::ZERO), Token::new(0, 0));
    let soon = reactor.deadline(Duration::from_micros(10));
    reactor.timer(soon, Token::new(4, 0));
    let (started, limit) = (Instant::now(), Duration::from_millis(5));
    reactor.turn(&mut events, Some(Duration::ZERO)).unwrap();
    reactor.turn(&mut events, Some(limit)).unwrap();
    assert_eq!(indexes(&events), [0]);
    assert!(started.elapsed() >= limit);
    let mut found = Vec::new();
    while reactor.advance_to_next_timer() {
        events.clear();
        reactor.collect(&mut events).unwrap();
        let hours = (reactor.now() - start).as_secs() / 3600;
        found.push((hours, indexes(&events)));
    }
    assert_eq!(found, [(0, vec![4]), (1, vec![1]), (2, vec![2, 3])]);
    assert!(reactor.clock() - start < HOUR, "the turns' clock goes on");
}

fn readiness_comes_before_the_timeout_of_the_same_turn(backend: Backend) {
    let (mut reactor, mut events) = reactor(backend);
    let (ours, mut theirs) = tcp();
    reactor.timer(Deadline::now(), Token::new(2, 0));
    let token = Token::new(1, 0);
    let wait = reactor.wait(ours.as_descriptor(), OwnerId(1), Interest::READABLE, token);
    let Ok(Wait::Pending(wait)) = wait else {
        panic!("expected a pending wait, got {wait:?}");
    };
    theirs.write_all(b"x").unwrap();
    ours.set_nonblocking(false).unwrap();
    ours.peek(&mut [0]).unwrap(); // Blocks until the byte has arrived.
    reactor.handle().notify(Token::new(3, 0)).unwrap();
    reactor.collect(&mut events).unwrap();
    assert_eq!(indexes(&events), [1, 3, 2]);
    assert_eq!(events[0].ready, Ready::READABLE);
    assert!(!reactor.end(wait), "its event has ended it");
}

fn the_kernel_ends_a_sleep(backend: Backend) {
    let (mut reactor, mut events) = reactor(backend);
    let (ours, mut theirs) = tcp();
    let token = Token::new(1, 0);
    let wait = reactor.wait(ours.as_descriptor(), OwnerId(1), Interest::READABLE, token);
    let handle = reactor.handle();
    let writer = thread::spawn(move || {
        while !handle.is_sleeping() {
            thread::yield_now();
        }
        theirs.write_all(b"x").unwrap();
        theirs
    });
    turn(&mut reactor, &mut events);
    assert_eq!(events[0].token, token);
    assert!(wait.is_ok());
    drop(writer.join());
}

fn a_wake_ends_one_turn_and_shows_nothing(backend: Backend) {
    let (mut reactor, mut events) = reactor(backend);
    let handle = reactor.handle();
    // A wake before the turn: the half that collects must not consume it.
    handle.wake().unwrap();
    reactor.turn(&mut events, None).unwrap();
    // A wake during the turn.
    let waker = thread::spawn(move || {
        while !handle.is_sleeping() {
            thread::yield_now();
        }
        handle.wake().unwrap();
    });
    reactor.turn(&mut events, None).unwrap();
    waker.join().unwrap();
    assert!(events.is_empty());

    let limit = Duration::from_millis(3);
    reactor.turn(&mut events, Some(limit)).unwrap(); // It may end early: the kernel may report the last wake once more.
    let started = Instant::now();
    reactor.turn(&mut events, Some(limit)).unwrap();
    assert!(started.elapsed() >= limit, "one wake ended two turns");
}

fn another_thread_can_block_in_a_sleep(backend: Backend) {
    let (mut reactor, mut events) = reactor(backend);
    let sleep = reactor.sleep(None);
    let handle = reactor.handle();
    assert!(handle.is_sleeping());
    let sleeper = thread::spawn(move || sleep.block().map(|()| drop(sleep)));
    handle.notify(Token::new(7, 0)).unwrap();
    sleeper.join().unwrap().unwrap();
    assert!(!handle.is_sleeping());
    reactor.collect(&mut events).unwrap();
    assert_eq!(indexes(&events), [7]);
}

fn each_notification_ends_the_sleep(backend: Backend) {
    const THREADS: u32 = 4;
    const EACH: u32 = 1000;
    let (mut reactor, mut events) = reactor(backend);
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let handle = reactor.handle();
            thread::spawn(move || {
                for number in 0..EACH {
                    handle.notify(Token::new(number, thread)).unwrap();
                    if number % 7 == thread {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut next = [0; THREADS as usize];
    while next != [EACH; THREADS as usize] {
        events.clear();
        reactor.turn(&mut events, None).unwrap();
        for event in &events {
            assert_eq!(event.ready, Ready::NOTIFIED);
            let thread = event.token.generation() as usize;
            assert_eq!(event.token.index(), next[thread], "in order, and once");
            next[thread] += 1;
        }
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
}

fn a_notification_that_ends_a_sleep_needs_no_poll_and_hides_no_event(backend: Backend) {
    let (mut reactor, mut events) = reactor(backend);
    let (ours, mut theirs) = tcp();
    let token = Token::new(1, 0);
    let wait = reactor.wait(ours.as_descriptor(), OwnerId(1), Interest::READABLE, token);
    assert!(matches!(wait, Ok(Wait::Pending(_))));
    reactor.collect(&mut events).unwrap();
    assert!(events.is_empty());

    let sleep = reactor.sleep(None);
    theirs.write_all(b"x").unwrap();
    reactor.handle().notify(Token::new(7, 0)).unwrap();
    drop(sleep);
    let polls = reactor.statistics().polls;
    reactor.collect(&mut events).unwrap();
    assert_eq!(indexes(&events), [7]);
    assert_eq!(reactor.statistics().polls, polls);

    // No sleep blocks before the kernel has been asked.
    events.clear();
    assert_eq!(reactor.sleep(None).timeout(), Some(Duration::ZERO));
    turn(&mut reactor, &mut events);
    assert_eq!(indexes(&events), [1]);

    let sleep = reactor.sleep(None);
    reactor.handle().wake().unwrap();
    drop(sleep);
    let polls = reactor.statistics().polls;
    reactor.collect(&mut events).unwrap();
    assert_eq!(reactor.statistics().polls, polls);
}

fn a_timer_that_is_due_is_reported_with_the_notification_that_ends_a_sleep(backend: Backend) {
    let (mut reactor, mut events) = reactor(backend);
    reactor.collect(&mut events).unwrap();
    let sleep = reactor.sleep(None);
    reactor.handle().notify(Token::new(7, 0)).unwrap();
    drop(sleep);
    reactor.timer(Deadline::now(), Token::new(8, 0));
    reactor.collect(&mut events).unwrap();
    assert_eq!(indexes(&events), [7, 8]);
}

#[cfg(unix)]
fn a_signal_is_an_empty_turn(backend: Backend) {
    extern "C" fn ignore(_signal: libc::c_int) {}
    let handler = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing, so it is async-signal-safe.
    unsafe { libc::signal(libc::SIGURG, handler) };
    let (mut reactor, mut events) = reactor(backend);
    // SAFETY: no precondition.
    let sleeper = unsafe { libc::pthread_self() } as usize; // With musl it is a pointer.
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                // SAFETY: the sleeper's thread outlives the scope.
                unsafe { libc::pthread_kill(sleeper as libc::pthread_t, libc::SIGURG) };
                thread::sleep(Duration::from_millis(1));
            }
        });
        reactor.turn(&mut events, None).unwrap();
        done.store(true, Ordering::SeqCst);
    });
    assert!(events.is_empty());
}
