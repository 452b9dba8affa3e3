//! What a reactor counts, how long it sleeps, and how many idle waits it arms again, on a scripted driver. tests/registry_model.rs tests
//! the tables of `src/reactor/waits/registration.rs`.

#[path = "support/mock_driver.rs"]
mod mock_driver;

use std::time::{Duration, Instant};

use reactor::{
    Attempt, Descriptor, Event, Events, Interest, OwnerId, Reactor, Ready, Registration, Token,
    Wait, WaitId,
};

use mock_driver::{Call, Mock, Script};

const READ: Interest = Interest::READABLE;
const WRITE: Interest = Interest::WRITABLE;
const OURS: OwnerId = OwnerId(1);
const OTHER: OwnerId = OwnerId(2);
const IDLE: Duration = Duration::from_millis(100);

/// A reactor on a scripted driver. The tests use descriptor 5.
struct Stage {
    reactor: Reactor,
    script: Script,
    start: Instant,
}

impl Stage {
    fn new() -> Self {
        let (driver, script) = Mock::new();
        let reactor = Reactor::with_driver(Box::new(driver));
        Self {
            start: reactor.clock(),
            reactor,
            script,
        }
    }

    /// One wait by `OURS`. The call that registered it is removed from the script.
    fn registered(interest: Interest) -> (Self, WaitId) {
        let mut stage = Self::new();
        let wait = stage.wait(OURS, interest, 1);
        assert_eq!(stage.script.calls(), [Call::Register(5, interest)]);
        (stage, wait)
    }

    fn wait(&mut self, owner: OwnerId, interest: Interest, token: u32) -> WaitId {
        let token = Token::new(token, 0);
        match self.reactor.wait(5, owner, interest, token) {
            Ok(Wait::Pending(wait)) => wait,
            other => panic!("expected a pending wait, got {other:?}"),
        }
    }

    /// A wait for reading another descriptor.
    fn wait_for(&mut self, number: Descriptor, token: u32) {
        let token = Token::new(token, 0);
        let wait = self.reactor.wait(number, OURS, READ, token);
        assert!(matches!(wait, Ok(Wait::Pending(_))));
    }

    fn attempted(&mut self, interest: Interest, attempt: Attempt) {
        self.reactor.attempted(5, OURS, interest, attempt);
    }

    /// Polls after the kernel has reported `ready`. Returns the answers.
    fn report(&mut self, ready: Ready) -> Vec<(u32, Ready)> {
        self.script.report(5, ready);
        self.poll()
    }

    fn poll(&mut self) -> Vec<(u32, Ready)> {
        self.collect(Duration::ZERO)
    }

    /// Collects when so much time has passed since the start.
    fn collect(&mut self, after: Duration) -> Vec<(u32, Ready)> {
        let mut events = Events::new();
        let now = self.start + after;
        self.reactor.collect_at(now, &mut events).unwrap();
        answers(&events)
    }
}

fn answers(events: &Events) -> Vec<(u32, Ready)> {
    let answer = |event: &Event| (event.token.index(), event.ready);
    events.iter().map(answer).collect()
}

// --- counters --------------------------------------------------------------------------------------------------------

#[test]
fn each_step_is_counted() {
    let (mut stage, _) = Stage::registered(READ);
    stage.report(Ready::READABLE);
    stage.attempted(READ, Attempt::WouldBlock);
    stage.wait(OURS, READ, 2);
    stage.wait(OURS, WRITE, 3);
    stage.script.on_reregister(Ok(Registration::New));
    stage.reactor.replaced(5);
    assert_eq!(stage.report(Ready::HANGUP).len(), 2);
    stage.report(Ready::READABLE);
    stage.reactor.deregister(5);
    let expected = [
        ("waits", 3),
        ("skipped", 1),
        ("registered", 1),
        ("rearmed", 1),
        ("renewed", 1),
        ("deregistered", 1),
        ("closed", 0),
        ("polls", 3),
        ("events", 3),
        ("stale", 0),
        ("spurious", 1),
    ];
    assert!(stage.reactor.statistics().rows().eq(expected));
}

#[test]
fn event_of_an_older_generation_is_dropped() {
    let (mut stage, _) = Stage::registered(READ);
    let old = stage.script.token(5);
    stage.wait(OTHER, READ, 2);
    stage.script.report_token(old, Ready::READABLE);
    assert_eq!(stage.poll(), []);
    assert_eq!(stage.reactor.statistics().stale, 1);
}

// --- a close ---------------------------------------------------------------------------------------------------------

#[test]
fn the_shutdown_of_the_reading_half_answers_the_waits_for_reading_only() {
    let (mut stage, _) = Stage::registered(READ);
    stage.wait(OURS, WRITE, 2);
    stage.reactor.note_read_shutdown(5);
    assert_eq!(stage.poll(), [(1, Ready::READ_CLOSED)]);
    assert_eq!(stage.report(Ready::WRITABLE), [(2, Ready::WRITABLE)]);
}

#[test]
fn what_answers_a_wait_ends_a_sleep_and_the_next_collect_reports_it() {
    let failure = || Err(std::io::ErrorKind::OutOfMemory.into());
    let acts: [&dyn Fn(&mut Stage); 5] = [
        &|stage| stage.reactor.deregister(5),
        &|stage| stage.reactor.note_read_shutdown(5),
        &|stage| {
            stage.script.on_reregister(failure());
            stage.reactor.replaced(5);
        },
        &|stage| {
            stage.script.on_reregister(failure());
            let wait = stage.reactor.wait(5, OTHER, WRITE, Token::new(2, 0));
            assert!(wait.is_err());
        },
        &|stage| {
            stage.script.on_reregister(Ok(Registration::Unpollable));
            let wait = stage.reactor.wait(5, OURS, WRITE, Token::new(2, 0));
            assert_eq!(wait.unwrap(), Wait::Ready(WRITE));
        },
    ];
    for (number, act) in acts.into_iter().enumerate() {
        let (mut stage, _) = Stage::registered(READ);
        let sleep = stage.reactor.sleep(None);
        stage.reactor.deregister(6);
        assert_eq!(stage.script.wakes(), 0, "nothing is answered");
        act(&mut stage);
        assert_eq!(stage.script.wakes(), 1, "of act {number}");
        drop(sleep);
        assert_eq!(stage.poll().len(), 1, "of act {number}");
    }
}

// --- many waits for one descriptor -----------------------------------------------------------------------------------

/// If each end cost as much as there are waits, the tests would take minutes.
const MANY: usize = if cfg!(miri) { 100 } else { 200_000 };
/// A watchdog: longer than the tests take on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Ends the waits in an order that looks random.
fn end_all(stage: &mut Stage, waits: &[WaitId]) {
    let started = Instant::now();
    for number in 0..waits.len() {
        assert!(stage.reactor.end(waits[number * 7919 % waits.len()]));
        assert!(started.elapsed() < TEST_TIMEOUT, "only {number} have ended");
    }
    assert_eq!(stage.poll(), []);
}

#[test]
fn waits_that_were_answered_outside_an_event_end_in_any_order() {
    let mut stage = Stage::new();
    let waits: Vec<_> = (0..MANY).map(|_| stage.wait(OURS, READ, 1)).collect();
    stage.reactor.deregister(5);
    end_all(&mut stage, &waits);
}

#[test]
fn the_waits_of_one_descriptor_end_in_any_order() {
    let mut stage = Stage::new();
    let waits: Vec<_> = (0..MANY * 2).map(|_| stage.wait(OURS, READ, 1)).collect();
    end_all(&mut stage, &waits);
}

// --- an idle wait ----------------------------------------------------------------------------------------------------

#[test]
fn waits_that_begin_one_after_the_other_are_searched_for_once_in_100_ms() {
    let mut stage = Stage::new();
    for number in 1..100 {
        stage.wait_for(number, 1);
        stage.collect(IDLE / 100 * number as u32);
    }
    stage.script.calls();
    stage.collect(IDLE);
    assert_eq!(stage.script.calls().len(), 1);
    stage.collect(IDLE * 2 - Duration::from_nanos(1));
    assert_eq!(stage.script.calls().len(), 0);
    stage.collect(IDLE * 2);
    assert_eq!(stage.script.calls().len(), 98);
}

#[test]
fn one_call_arms_a_limited_number_of_idle_descriptors() {
    let mut stage = Stage::new();
    for number in 1..1000 {
        stage.wait_for(number, 1);
    }
    stage.script.calls();
    let mut armed = Vec::new();
    while stage.reactor.statistics().rearmed < 999 {
        stage.collect(IDLE);
        armed.push(stage.script.calls().len());
    }
    assert_eq!(armed.iter().sum::<usize>(), 999);
    assert!(armed.iter().all(|count| *count <= 256), "{armed:?}");
}

#[test]
fn a_sleep_ends_when_a_rearm_is_due() {
    let (mut stage, _) = Stage::registered(READ);
    let timeout = stage.reactor.sleep(None).timeout();
    assert!(timeout.is_some_and(|timeout| timeout <= IDLE));
    let limit = IDLE / 10;
    let timeout = stage.reactor.sleep(Some(limit)).timeout();
    assert!(timeout.is_some_and(|timeout| timeout <= limit));
}

#[test]
fn a_wait_that_begins_during_a_sleep_is_rearmed_in_time() {
    let (mut stage, first) = Stage::registered(READ);
    stage.reactor.end(first);
    stage.collect(IDLE);
    let sleep = stage.reactor.sleep(None);
    assert_eq!(sleep.timeout(), None);
    stage.attempted(READ, Attempt::Short);
    stage.wait(OURS, READ, 2);
    stage.wait_for(6, 3);
    assert_eq!(stage.script.wakes(), 1);
    drop(sleep);
    let timeout = stage.reactor.sleep(None).timeout();
    assert!(timeout.is_some_and(|timeout| timeout <= IDLE * 2));
}

#[test]
fn a_sleep_after_a_large_batch_does_not_block_because_the_kernel_may_have_more() {
    let mut stage = Stage::new();
    for number in 1..=256 {
        stage.wait_for(number, 1);
        stage.script.report(number, Ready::READABLE);
    }
    assert_eq!(stage.poll().len(), 256);
    let timeout = |stage: &mut Stage| stage.reactor.sleep(Some(IDLE)).timeout();
    assert_eq!(timeout(&mut stage), Some(Duration::ZERO));
    assert_eq!(stage.poll(), []);
    assert_ne!(timeout(&mut stage), Some(Duration::ZERO));
}

// --- a driver without a descriptor -----------------------------------------------------------------------------------

#[test]
fn a_turn_blocks_in_the_waker_where_there_is_no_descriptor() {
    let (driver, script) = Mock::new();
    let mut reactor = Reactor::with_driver(Box::new(driver));
    let mut events = Events::new();
    reactor.turn(&mut events, None).unwrap();
    let asleep = [Some(Duration::ZERO), None, Some(Duration::ZERO)];
    assert_eq!(script.timeouts(), asleep);

    reactor.handle().wake().unwrap();
    reactor.turn(&mut events, None).unwrap();
    assert_eq!(script.timeouts(), [Some(Duration::ZERO); 3]);
    assert_eq!(script.wakes(), 1);
    assert!(events.is_empty());
}
