//! One test for each row of the tables in `src/registry.rs`, on a scripted driver.

use std::{
    io,
    time::{Duration, Instant},
};

use reactor::{
    Attempt, CachedReadiness, Descriptor, Event, Events, Interest, OwnerId, Reactor, Ready,
    Registration, Reregistration, Selector, Token, Wait, WaitId,
    mock::{Call, Mock, Script},
};

const READ: Interest = Interest::READABLE;
const WRITE: Interest = Interest::WRITABLE;
const OURS: OwnerId = OwnerId(1);
const OTHER: OwnerId = OwnerId(2);
/// A number that cannot be a descriptor: -1, or `INVALID_SOCKET`.
const NONE: Descriptor = !0;
const IDLE: Duration = Duration::from_millis(100);

/// A selector on a scripted driver. The tests use descriptor 5.
struct Stage {
    selector: Selector,
    script: Script,
    start: Instant,
}

impl Stage {
    fn new() -> Self {
        let (driver, script) = Mock::new();
        Self {
            selector: Selector::with_driver(Box::new(driver)),
            script,
            start: Instant::now(),
        }
    }

    /// One wait by `OURS`. The call that registered it is removed from the script.
    fn registered(interest: Interest) -> (Self, WaitId) {
        let mut stage = Self::new();
        let wait = stage.wait(OURS, interest, 1);
        assert_eq!(stage.script.calls(), [Call::Register(5, interest)]);
        (stage, wait)
    }

    /// A registration without a wait.
    fn abandoned(interest: Interest) -> Self {
        let (mut stage, wait) = Self::registered(interest);
        stage.selector.end(wait);
        stage
    }

    fn try_wait(&mut self, owner: OwnerId, interest: Interest, token: u32) -> io::Result<Wait> {
        let token = Token::new(token, 0);
        self.selector.wait(5, owner, interest, token, self.start)
    }

    fn wait(&mut self, owner: OwnerId, interest: Interest, token: u32) -> WaitId {
        match self.try_wait(owner, interest, token) {
            Ok(Wait::Pending(wait)) => wait,
            other => panic!("expected a pending wait, got {other:?}"),
        }
    }

    /// A wait for reading another descriptor.
    fn wait_for(&mut self, number: Descriptor, token: u32) {
        let token = Token::new(token, 0);
        let wait = self.selector.wait(number, OURS, READ, token, self.start);
        assert!(matches!(wait, Ok(Wait::Pending(_))));
    }

    fn attempted(&mut self, interest: Interest, attempt: Attempt) {
        self.selector.attempted(5, OURS, interest, attempt);
    }

    /// Polls after the kernel has reported `ready`. Returns the answers.
    fn report(&mut self, ready: Ready) -> Vec<(u32, Ready)> {
        self.script.report(5, ready);
        self.poll()
    }

    fn poll(&mut self) -> Vec<(u32, Ready)> {
        let mut events = Events::new();
        self.selector
            .poll(&mut events, Some(Duration::ZERO), self.start)
            .unwrap();
        answers(&events)
    }

    fn rearm(&mut self, after: Duration) -> Vec<(u32, Ready)> {
        let mut events = Events::new();
        self.selector
            .rearm(self.start + after, &mut events)
            .unwrap();
        answers(&events)
    }

    fn readable(&self) -> CachedReadiness {
        self.selector.cached_readiness(5, OURS).readable
    }

    fn writable(&self) -> CachedReadiness {
        self.selector.cached_readiness(5, OURS).writable
    }
}

fn answers(events: &Events) -> Vec<(u32, Ready)> {
    let answer = |event: &Event| (event.token.index(), event.ready);
    events.iter().map(answer).collect()
}

fn error(kind: io::ErrorKind) -> io::Error {
    kind.into()
}

// --- a wait ----------------------------------------------------------------------------------------------------------

#[test]
fn wait_without_a_registration_registers_the_asked_directions() {
    let (stage, _) = Stage::registered(READ);
    assert_eq!(stage.readable(), CachedReadiness::Unknown);
    assert_eq!(stage.selector.statistics().registered, 1);
}

#[test]
fn wait_by_another_owner_makes_a_new_registration() {
    let (mut stage, _) = Stage::registered(READ);
    stage.attempted(READ, Attempt::WouldBlock);
    let before = stage.script.token(5);
    stage.wait(OTHER, READ, 2);
    assert_eq!(stage.script.calls(), [Call::Reregister(5, READ)]);
    assert_ne!(stage.script.token(5), before);
    assert_eq!(stage.readable(), CachedReadiness::Unknown);
    assert_eq!(
        stage.selector.cached_readiness(5, OTHER).readable,
        CachedReadiness::Unknown
    );
}

#[test]
fn wait_by_another_owner_keeps_waits_and_drops_directions_without_one() {
    let (mut stage, reader) = Stage::registered(READ);
    let writer = stage.wait(OURS, WRITE, 2);
    stage.selector.end(reader);
    stage.script.calls();
    stage.wait(OTHER, Interest::PRIORITY, 3);
    let wanted = WRITE | Interest::PRIORITY;
    assert_eq!(stage.script.calls(), [Call::Reregister(5, wanted)]);
    assert_eq!(stage.report(Ready::WRITABLE), [(2, Ready::WRITABLE)]);
    assert_eq!(stage.selector.end(writer), Ready::WRITABLE);
}

#[test]
fn wait_by_the_unknown_owner_uses_no_cached_readiness() {
    let mut stage = Stage::new();
    let first = stage.wait(OwnerId::UNKNOWN, READ, 1);
    stage.selector.end(first);
    stage
        .selector
        .attempted(5, OwnerId::UNKNOWN, READ, Attempt::WouldBlock);
    let known = stage.selector.cached_readiness(5, OwnerId::UNKNOWN);
    assert_eq!(known.readable, CachedReadiness::Unknown);
    stage.wait(OwnerId::UNKNOWN, READ, 2);
    let calls = [Call::Register(5, READ), Call::Reregister(5, READ)];
    assert_eq!(stage.script.calls(), calls);
}

#[test]
fn wait_for_another_direction_widens_the_registration() {
    let (mut stage, _) = Stage::registered(READ);
    stage.wait(OURS, WRITE, 2);
    assert_eq!(stage.script.calls(), [Call::Reregister(5, READ | WRITE)]);
}

#[test]
fn wait_for_another_direction_keeps_cached_readiness() {
    let (mut stage, _) = Stage::registered(READ);
    stage.attempted(READ, Attempt::WouldBlock);
    stage.wait(OURS, WRITE, 2);
    assert_eq!(stage.readable(), CachedReadiness::Drained);
}

#[test]
fn wait_on_drained_needs_no_system_call() {
    let mut stage = Stage::abandoned(READ);
    stage.attempted(READ, Attempt::WouldBlock);
    stage.wait(OURS, READ, 2);
    assert_eq!(stage.script.calls(), []);
    assert_eq!(stage.selector.statistics().skipped, 1);
    assert_eq!(stage.report(Ready::READABLE), [(2, Ready::READABLE)]);
}

#[test]
fn wait_on_one_direction_drained_and_the_other_not_arms() {
    let mut stage = Stage::abandoned(READ | WRITE);
    stage.attempted(READ, Attempt::WouldBlock);
    stage.wait(OURS, READ | WRITE, 2);
    assert_eq!(stage.script.calls(), [Call::Reregister(5, READ | WRITE)]);
}

#[test]
fn wait_on_unknown_arms() {
    let mut stage = Stage::abandoned(READ);
    stage.wait(OURS, READ, 2);
    assert_eq!(stage.script.calls(), [Call::Reregister(5, READ)]);
    assert_eq!(stage.selector.statistics().rearmed, 1);
}

#[test]
fn wait_on_ready_arms() {
    let (mut stage, wait) = Stage::registered(READ);
    stage.report(Ready::READABLE);
    assert_eq!(stage.selector.end(wait), Ready::READABLE);
    assert_eq!(stage.readable(), CachedReadiness::Ready);
    stage.wait(OURS, READ, 2);
    assert_eq!(stage.script.calls(), [Call::Reregister(5, READ)]);
}

// --- the driver's answer ---------------------------------------------------------------------------------------------

#[test]
fn answer_renewed_makes_a_new_registration() {
    let mut stage = Stage::abandoned(READ | WRITE);
    stage.attempted(READ, Attempt::WouldBlock);
    stage.script.on_reregister(Ok(Reregistration::Renewed));
    stage.wait(OURS, WRITE, 2);
    assert_eq!(stage.readable(), CachedReadiness::Unknown);
    assert_eq!(stage.selector.statistics().renewed, 1);
}

#[test]
fn answer_unpollable_to_register_is_ready_at_once() {
    let mut stage = Stage::new();
    stage.script.on_register(Ok(Registration::Unpollable));
    let wait = stage.try_wait(OURS, READ, 1).unwrap();
    assert_eq!(wait, Wait::Ready(READ));
    assert_eq!(stage.selector.next_rearm(), None);
    stage.wait(OURS, READ, 2);
    let calls = [Call::Register(5, READ), Call::Register(5, READ)];
    assert_eq!(stage.script.calls(), calls);
}

#[test]
fn answer_unpollable_to_reregister_answers_all_waits() {
    let (mut stage, reader) = Stage::registered(READ);
    stage.script.on_reregister(Ok(Reregistration::Unpollable));
    let wait = stage.try_wait(OURS, WRITE, 2).unwrap();
    assert_eq!(wait, Wait::Ready(WRITE));
    assert_eq!(stage.poll(), [(1, Ready::READABLE)]);
    assert_eq!(stage.selector.end(reader), Ready::READABLE);
    stage.script.calls();
    stage.wait(OURS, READ, 3);
    assert_eq!(stage.script.calls(), [Call::Register(5, READ)]);
}

#[test]
fn answer_error_to_register_leaves_nothing_behind() {
    let mut stage = Stage::new();
    stage
        .script
        .on_register(Err(error(io::ErrorKind::OutOfMemory)));
    let result = stage.try_wait(OURS, READ, 1);
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    assert_eq!(stage.selector.next_rearm(), None);
    stage.script.calls();
    stage.wait(OURS, READ, 2);
    assert_eq!(stage.script.calls(), [Call::Register(5, READ)]);
}

#[test]
fn answer_error_to_reregister_answers_all_waits_with_an_error() {
    let (mut stage, reader) = Stage::registered(READ);
    stage.script.on_reregister(Err(error(io::ErrorKind::Other)));
    let result = stage.try_wait(OURS, WRITE, 2);
    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::Other);
    assert_eq!(stage.poll(), [(1, Ready::ERROR)]);
    assert_eq!(stage.selector.end(reader), Ready::ERROR);
    stage.script.calls();
    stage.wait(OURS, READ, 3);
    assert_eq!(stage.script.calls(), [Call::Register(5, READ)]);
}

#[cfg(unix)]
#[test]
fn a_number_that_is_no_descriptor_reaches_no_driver() {
    let mut stage = Stage::new();
    let token = Token::new(1, 0);
    let result = stage.selector.wait(NONE, OURS, READ, token, stage.start);
    assert!(result.unwrap_err().raw_os_error().is_some());
    stage.selector.deregister(NONE);
    assert_eq!(stage.script.calls(), []);
}

// --- an event --------------------------------------------------------------------------------------------------------

#[test]
fn event_of_an_older_generation_is_dropped() {
    let (mut stage, _) = Stage::registered(READ);
    let old = stage.script.token(5);
    stage.wait(OTHER, READ, 2);
    stage.script.report_token(old, Ready::READABLE);
    assert_eq!(stage.poll(), []);
    assert_eq!(stage.selector.statistics().stale, 1);
}

#[test]
fn event_of_no_registration_is_dropped() {
    let mut stage = Stage::abandoned(READ);
    let old = stage.script.token(5);
    stage.selector.deregister(5);
    stage.script.report_token(old, Ready::READABLE);
    let unused = Token::new(Token::MAX_INDEX, 0);
    stage.script.report_token(unused, Ready::READABLE);
    assert_eq!(stage.poll(), []);
    assert_eq!(stage.selector.statistics().stale, 2);
}

#[test]
fn event_answers_all_waits_for_it_in_order() {
    let (mut stage, first) = Stage::registered(READ);
    let second = stage.wait(OURS, READ, 2);
    let writer = stage.wait(OURS, WRITE, 3);
    let both = [(1, Ready::READABLE), (2, Ready::READABLE)];
    assert_eq!(stage.report(Ready::READABLE), both);
    assert_eq!(stage.readable(), CachedReadiness::Ready);
    assert_eq!(stage.writable(), CachedReadiness::Unknown);
    assert_eq!(stage.selector.end(first), Ready::READABLE);
    assert_eq!(stage.selector.end(second), Ready::READABLE);
    assert_eq!(stage.selector.end(writer), Ready::EMPTY);
}

#[test]
fn event_answers_a_wait_once() {
    let (mut stage, wait) = Stage::registered(READ);
    assert_eq!(stage.report(Ready::READABLE).len(), 1);
    assert_eq!(stage.report(Ready::READABLE), []);
    assert_eq!(stage.selector.end(wait), Ready::READABLE);
    assert_eq!(stage.selector.end(wait), Ready::EMPTY);
}

#[test]
fn event_makes_a_drained_direction_ready() {
    let mut stage = Stage::abandoned(READ);
    stage.attempted(READ, Attempt::WouldBlock);
    stage.report(Ready::READABLE);
    assert_eq!(stage.readable(), CachedReadiness::Ready);
}

#[test]
fn event_closed_reading_half_answers_readers_only() {
    let (mut stage, _) = Stage::registered(READ);
    stage.wait(OURS, WRITE, 2);
    let answered = stage.report(Ready::READ_CLOSED);
    assert_eq!(answered, [(1, Ready::READ_CLOSED)]);
    assert!(stage.selector.cached_readiness(5, OURS).hung_up);
}

#[test]
fn event_hangup_and_error_answer_all_waits() {
    for ready in [Ready::HANGUP, Ready::ERROR] {
        let (mut stage, _) = Stage::registered(READ);
        stage.wait(OURS, WRITE, 2);
        assert_eq!(stage.report(ready), [(1, ready), (2, ready)]);
        let known = stage.selector.cached_readiness(5, OURS);
        assert!(known.hung_up);
        assert_eq!(known.readable, CachedReadiness::Ready);
        assert_eq!(known.writable, CachedReadiness::Ready);
    }
}

#[test]
fn event_hangup_alone_without_a_wait_clears_the_record() {
    for ready in [Ready::HANGUP | Ready::READ_CLOSED, Ready::ERROR] {
        let mut stage = Stage::abandoned(READ);
        stage.report(ready);
        assert_eq!(stage.script.calls(), [Call::Deregister(5)]);
        assert_eq!(stage.readable(), CachedReadiness::Unknown);
    }
}

#[test]
fn event_spurious_for_the_first_time_is_noted() {
    let mut stage = Stage::abandoned(READ);
    assert_eq!(stage.report(Ready::READABLE), []);
    assert_eq!(stage.script.calls(), []);
    assert_eq!(stage.readable(), CachedReadiness::Ready);
    assert_eq!(stage.selector.statistics().spurious, 1);
}

#[test]
fn event_spurious_for_the_second_time_narrows_the_registration() {
    let mut stage = Stage::abandoned(READ | WRITE);
    stage.attempted(WRITE, Attempt::WouldBlock);
    let reader = stage.wait(OURS, READ, 2);
    stage.script.calls();
    assert_eq!(stage.report(Ready::WRITABLE), []);
    assert_eq!(stage.script.calls(), []);
    assert_eq!(stage.report(Ready::WRITABLE), []);
    assert_eq!(stage.script.calls(), [Call::Reregister(5, READ)]);
    assert_eq!(stage.writable(), CachedReadiness::Unknown);
    assert_eq!(stage.report(Ready::READABLE).len(), 1);
    stage.selector.end(reader);
}

#[test]
fn event_spurious_along_with_a_wanted_direction_is_not_counted() {
    let mut stage = Stage::abandoned(READ | WRITE);
    stage.attempted(WRITE, Attempt::WouldBlock);
    for token in 2..5 {
        let reader = stage.wait(OURS, READ, token);
        stage.script.calls();
        assert_eq!(stage.report(Ready::READABLE | Ready::WRITABLE).len(), 1);
        assert_eq!(stage.script.calls(), []);
        stage.selector.end(reader);
    }
    assert_eq!(stage.selector.statistics().spurious, 0);
}

#[test]
fn event_spurious_for_the_second_time_with_no_other_direction_clears_the_record() {
    let mut stage = Stage::abandoned(READ);
    stage.report(Ready::READABLE);
    stage.report(Ready::READABLE);
    assert_eq!(stage.script.calls(), [Call::Deregister(5)]);
    assert_eq!(stage.selector.statistics().deregistered, 1);
    stage.wait(OURS, READ, 2);
    assert_eq!(stage.script.calls(), [Call::Register(5, READ)]);
}

#[test]
fn an_attempt_removes_the_note_spurious() {
    for attempt in [Attempt::WouldBlock, Attempt::Short, Attempt::Complete] {
        let mut stage = Stage::abandoned(READ);
        for _ in 0..3 {
            // The caller reads before it waits.
            assert_eq!(stage.report(Ready::READABLE), []);
            stage.attempted(READ, attempt);
        }
        assert_eq!(stage.script.calls(), []);
        assert_eq!(stage.report(Ready::READABLE), []);
        stage.selector.attempted(5, OTHER, READ, attempt);
        assert_eq!(stage.report(Ready::READABLE), []);
        assert_eq!(stage.script.calls(), [Call::Deregister(5)]);
    }
}

#[test]
fn a_wait_removes_the_note_spurious() {
    let mut stage = Stage::abandoned(READ);
    stage.report(Ready::READABLE);
    let wait = stage.wait(OURS, READ, 2);
    stage.selector.end(wait);
    stage.script.calls();
    stage.report(Ready::READABLE);
    assert_eq!(stage.script.calls(), []);
}

// --- an attempt ------------------------------------------------------------------------------------------------------

#[test]
fn attempt_would_block_is_drained_even_when_hung_up() {
    let (mut stage, _) = Stage::registered(READ);
    stage.report(Ready::READABLE | Ready::READ_CLOSED);
    stage.attempted(READ, Attempt::WouldBlock);
    assert_eq!(stage.readable(), CachedReadiness::Drained);
}

#[test]
fn attempt_short_is_drained() {
    let (mut stage, _) = Stage::registered(READ);
    stage.report(Ready::READABLE);
    stage.attempted(READ, Attempt::Short);
    assert_eq!(stage.readable(), CachedReadiness::Drained);
}

#[test]
fn attempt_short_is_not_drained_once_hung_up() {
    let (mut stage, _) = Stage::registered(READ);
    stage.report(Ready::READABLE | Ready::READ_CLOSED);
    stage.attempted(READ, Attempt::Short);
    assert_eq!(stage.readable(), CachedReadiness::Ready);
}

#[test]
fn attempt_complete_changes_nothing() {
    let (mut stage, _) = Stage::registered(READ);
    stage.attempted(READ, Attempt::Complete);
    assert_eq!(stage.readable(), CachedReadiness::Unknown);
    stage.report(Ready::READABLE);
    stage.attempted(READ, Attempt::Complete);
    assert_eq!(stage.readable(), CachedReadiness::Ready);
}

#[test]
fn attempt_in_a_direction_that_is_not_registered_changes_nothing() {
    let (mut stage, _) = Stage::registered(READ);
    stage.attempted(WRITE, Attempt::WouldBlock);
    assert_eq!(stage.writable(), CachedReadiness::Unknown);
}

#[test]
fn attempt_on_nothing_or_by_another_changes_nothing() {
    let mut stage = Stage::new();
    stage.attempted(READ, Attempt::WouldBlock);
    assert_eq!(stage.readable(), CachedReadiness::Unknown);
    stage.wait(OTHER, READ, 1);
    stage.attempted(READ, Attempt::WouldBlock);
    assert_eq!(
        stage.selector.cached_readiness(5, OTHER).readable,
        CachedReadiness::Unknown
    );
}

// --- a close ---------------------------------------------------------------------------------------------------------

#[test]
fn deregister_answers_every_waiter_with_the_next_poll() {
    let (mut stage, first) = Stage::registered(READ);
    let second = stage.wait(OURS, READ, 2);
    stage.script.calls();
    stage.selector.deregister(5);
    assert_eq!(stage.script.calls(), [Call::Deregister(5)]);
    assert_eq!(stage.selector.end(first), Ready::ERROR);

    let mut events = Events::new();
    stage.selector.poll(&mut events, None, stage.start).unwrap();
    assert_eq!(stage.script.timeouts(), [Some(Duration::ZERO)]);
    assert_eq!(answers(&events), [(2, Ready::ERROR)], "the first has ended");
    assert_eq!(stage.selector.end(second), Ready::ERROR);
}

#[test]
fn note_close_by_the_owner_makes_no_system_call_and_the_next_wait_makes_one() {
    let (mut stage, wait) = Stage::registered(READ);
    stage.report(Ready::READABLE);
    stage.selector.end(wait);
    stage.script.calls();
    let old = stage.script.token(5);
    stage.selector.note_close(5, OURS);
    assert_eq!(stage.script.calls(), []);

    stage.wait(OTHER, READ, 2);
    assert_eq!(stage.script.calls(), [Call::Register(5, READ)]);
    stage.script.report_token(old, Ready::READABLE);
    let mut events = Events::new();
    stage.selector.poll(&mut events, None, stage.start).unwrap();
    assert!(
        events.is_empty(),
        "an event of the old generation is dropped"
    );
    assert_eq!(stage.report(Ready::READABLE), [(2, Ready::READABLE)]);
}

#[test]
fn note_close_by_another_owner_or_with_a_waiter_does_nothing() {
    let (mut stage, wait) = Stage::registered(READ);
    stage.script.calls();
    stage.selector.note_close(5, OURS);
    assert_eq!(stage.report(Ready::READABLE), [(1, Ready::READABLE)]);
    stage.selector.end(wait);
    stage.selector.note_close(5, OTHER);
    stage.selector.note_close(5, OwnerId::UNKNOWN);
    stage.selector.note_close(NONE, OURS);
    stage.selector.note_close(6, OURS);
    assert_eq!(stage.script.calls(), []);
    assert_eq!(stage.selector.statistics().closed, 0);
}

#[test]
fn deregister_of_nothing_does_nothing() {
    let mut stage = Stage::new();
    stage.selector.deregister(5);
    stage.wait(OURS, READ, 1);
    stage.selector.deregister(5);
    stage.selector.deregister(5);
    let calls = [Call::Register(5, READ), Call::Deregister(5)];
    assert_eq!(stage.script.calls(), calls);
}

// --- an idle wait ----------------------------------------------------------------------------------------------------

#[test]
fn idle_wait_is_armed_again_at_growing_intervals_for_ever() {
    let (mut stage, _) = Stage::registered(READ);
    let mut due = Duration::ZERO;
    for factor in [1, 4, 16, 64, 256, 256, 256] {
        due += IDLE * factor;
        assert_eq!(stage.selector.next_rearm(), Some(stage.start + due));
        assert_eq!(stage.rearm(due - Duration::from_nanos(1)), []);
        assert_eq!(stage.script.calls(), []);
        assert_eq!(stage.rearm(due), []);
        assert_eq!(stage.script.calls(), [Call::Reregister(5, READ)]);
        assert_eq!(stage.rearm(due), []);
        assert_eq!(stage.script.calls(), []);
    }
    assert_eq!(stage.report(Ready::READABLE), [(1, Ready::READABLE)]);
}

#[test]
fn idle_descriptors_that_are_nearly_due_share_a_later_look() {
    let (mut stage, _) = Stage::registered(READ);
    stage.rearm(IDLE);
    stage.start += IDLE;
    stage.wait_for(6, 2);
    stage.rearm(IDLE);
    stage.script.calls();
    stage.rearm(IDLE * 4);
    let both = [Call::Reregister(5, READ), Call::Reregister(6, READ)];
    assert_eq!(stage.script.calls(), both);
}

#[test]
fn all_waits_for_a_descriptor_share_its_looks() {
    let (mut stage, first) = Stage::registered(READ);
    stage.start += IDLE / 2;
    stage.wait(OURS, READ, 2);
    stage.script.calls();
    stage.rearm(IDLE / 2);
    stage.selector.end(first);
    stage.rearm(IDLE);
    assert_eq!(stage.script.calls(), [Call::Reregister(5, READ)]);
}

#[test]
fn waits_that_begin_one_after_the_other_are_searched_for_once_in_100_ms() {
    let mut stage = Stage::new();
    let start = stage.start;
    for number in 1..100 {
        stage.wait_for(number, 1);
        stage.start += IDLE / 100;
    }
    stage.script.calls();
    stage.start = start;
    stage.rearm(IDLE);
    assert_eq!(stage.selector.next_rearm(), Some(start + IDLE * 2));
    stage.rearm(IDLE * 2);
    assert_eq!(stage.script.calls().len(), 99);
}

#[test]
fn one_call_arms_a_limited_number_of_idle_descriptors() {
    let mut stage = Stage::new();
    for number in 1..1000 {
        stage.wait_for(number, 1);
    }
    stage.script.calls();
    let mut armed = Vec::new();
    while stage.selector.next_rearm() <= Some(stage.start + IDLE) {
        stage.rearm(IDLE);
        armed.push(stage.script.calls().len());
    }
    assert_eq!(armed.iter().sum::<usize>(), 999);
    assert!(armed.iter().all(|count| *count <= 256), "{armed:?}");
}

#[test]
fn looks_after_the_first_ones_are_spread_over_time() {
    let mut stage = Stage::new();
    for number in 1..=1000 {
        stage.wait_for(number, 1);
    }
    while stage.selector.next_rearm() <= Some(stage.start + IDLE) {
        stage.rearm(IDLE);
    }
    stage.script.calls();
    let (mut looks, mut seconds) = (0, 0.0);
    while looks < 3_000 {
        let due = stage.selector.next_rearm().unwrap() - stage.start;
        stage.rearm(due);
        looks += stage.script.calls().len();
        seconds = due.as_secs_f64();
        assert!(
            looks as f64 <= 256.0 + 250.0 * seconds,
            "{looks} in {due:?}"
        );
    }
    // They are not put off for longer than that, but the last queue's interval.
    assert!(seconds < 3_000.0 / 250.0 + 34.0, "{seconds}");
}

#[test]
fn data_found_by_the_look_after_a_short_count_makes_short_counts_say_nothing() {
    let (mut stage, _) = Stage::registered(READ);
    stage.attempted(READ, Attempt::Short);
    assert_eq!(stage.readable(), CachedReadiness::Drained);
    let next = stage.script.token(5).generation().wrapping_add(1);
    let token = Token::new(5, next);
    stage.script.report_token(token, Ready::READABLE);
    assert_eq!(stage.rearm(IDLE), [(1, Ready::READABLE)]);
    stage.attempted(READ, Attempt::Short);
    assert_eq!(stage.readable(), CachedReadiness::Ready);
    stage.attempted(READ, Attempt::WouldBlock);
    assert_eq!(stage.readable(), CachedReadiness::Drained);
}

/// Short counts of OURS have turned out to say nothing. Then a wait of another owner begins, and gets this answer.
fn short_count_of_the_next_owner(answer: Reregistration) -> CachedReadiness {
    let (mut stage, _) = Stage::registered(READ);
    stage.attempted(READ, Attempt::Short);
    let next = stage.script.token(5).generation().wrapping_add(1);
    stage
        .script
        .report_token(Token::new(5, next), Ready::READABLE);
    stage.rearm(IDLE);
    stage.script.on_reregister(Ok(answer));
    stage.wait(OTHER, READ, 2);
    stage.selector.attempted(5, OTHER, READ, Attempt::Short);
    stage.selector.cached_readiness(5, OTHER).readable
}

#[test]
fn short_counts_that_say_nothing_say_nothing_to_the_next_owner_of_the_same_file() {
    let readable = short_count_of_the_next_owner(Reregistration::Kept);
    assert_ne!(readable, CachedReadiness::Drained);
}

#[test]
fn short_counts_of_another_file_under_the_same_number_have_their_meaning() {
    let readable = short_count_of_the_next_owner(Reregistration::Renewed);
    assert_eq!(readable, CachedReadiness::Drained);
}

#[test]
fn data_after_the_look_leaves_short_counts_their_meaning() {
    let (mut stage, _) = Stage::registered(READ);
    stage.attempted(READ, Attempt::Short);
    assert_eq!(stage.rearm(IDLE), []);
    assert_eq!(stage.report(Ready::READABLE), [(1, Ready::READABLE)]);
    stage.attempted(READ, Attempt::Short);
    assert_eq!(stage.readable(), CachedReadiness::Drained);
}

#[test]
fn a_would_block_is_not_doubted_by_a_look() {
    let (mut stage, _) = Stage::registered(READ);
    stage.attempted(READ, Attempt::WouldBlock);
    stage.script.calls();
    stage.rearm(IDLE);
    assert_eq!(stage.script.timeouts(), []);
}

// --- a replaced file -------------------------------------------------------------------------------------------------

#[test]
fn replaced_makes_the_registration_again_and_keeps_the_waits() {
    let (mut stage, _) = Stage::registered(READ);
    stage.attempted(READ, Attempt::WouldBlock);
    stage.script.on_reregister(Ok(Reregistration::Renewed));
    stage.selector.replaced(5);
    assert_eq!(stage.script.calls(), [Call::Reregister(5, READ)]);
    assert_eq!(stage.readable(), CachedReadiness::Unknown);
    assert_eq!(stage.report(Ready::READABLE), [(1, Ready::READABLE)]);
}

#[test]
fn replaced_without_a_registration_does_nothing() {
    let mut stage = Stage::new();
    stage.selector.replaced(5);
    stage.selector.replaced(NONE);
    assert_eq!(stage.script.calls(), []);
}

#[test]
fn idle_wait_that_was_answered_or_ended_is_not_armed() {
    let (mut stage, _) = Stage::registered(READ);
    let ended = stage.wait(OURS, WRITE, 2);
    stage.report(Ready::READABLE);
    stage.selector.end(ended);
    stage.script.calls();
    stage.rearm(IDLE);
    assert_eq!(stage.script.calls(), []);
    assert_eq!(stage.selector.next_rearm(), None);
}

#[test]
fn idle_wait_on_a_lost_registration_makes_a_new_one() {
    let (mut stage, _) = Stage::registered(READ);
    stage.attempted(READ, Attempt::WouldBlock);
    stage.script.on_reregister(Ok(Reregistration::Renewed));
    stage.rearm(IDLE);
    assert_eq!(stage.readable(), CachedReadiness::Unknown);
    assert_eq!(stage.report(Ready::READABLE), [(1, Ready::READABLE)]);
}

#[test]
fn idle_wait_on_a_closed_descriptor_is_answered_with_an_error() {
    let (mut stage, wait) = Stage::registered(READ);
    stage.script.on_reregister(Err(error(io::ErrorKind::Other)));
    assert_eq!(stage.rearm(IDLE), [(1, Ready::ERROR)]);
    assert_eq!(stage.selector.end(wait), Ready::ERROR);
}

#[test]
fn idle_wait_on_a_descriptor_that_became_a_file_is_answered_as_asked() {
    let (mut stage, _) = Stage::registered(READ);
    stage.script.on_reregister(Ok(Reregistration::Unpollable));
    assert_eq!(stage.rearm(IDLE), [(1, Ready::READABLE)]);
}

#[test]
fn poll_returns_when_a_rearm_is_due() {
    let (mut stage, _) = Stage::registered(READ);
    let mut events = Events::new();
    let later = stage.start + Duration::from_millis(30);
    stage.selector.poll(&mut events, None, later).unwrap();
    let limit = Some(Duration::from_millis(10));
    stage.selector.poll(&mut events, limit, later).unwrap();
    let timeouts = [Some(Duration::from_millis(70)), limit];
    assert_eq!(stage.script.timeouts(), timeouts);
}

// --- a driver without a descriptor -----------------------------------------------------------------------------------

#[test]
fn a_turn_sleeps_in_the_poll_where_there_is_no_descriptor() {
    let (driver, script) = Mock::new();
    let mut reactor = Reactor::with_driver(Box::new(driver));
    let mut events = Events::new();
    assert!(reactor.sleep(None).block().is_err());

    reactor.turn(&mut events, None).unwrap();
    let asleep = [Some(Duration::ZERO), None, Some(Duration::ZERO)];
    assert_eq!(script.timeouts(), asleep);

    reactor.handle().wake().unwrap();
    reactor.turn(&mut events, None).unwrap();
    assert_eq!(script.timeouts(), [Some(Duration::ZERO); 3]);
    assert_eq!(script.wakes(), 1);
    assert!(events.is_empty());
}
