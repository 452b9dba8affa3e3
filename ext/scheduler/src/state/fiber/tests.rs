//! One test per row of the tables in `state/fiber`.

use std::ops::{Deref, DerefMut};

use reactor::Token;

use super::{FiberRecord, Slot};
use crate::state::{
    fiber_table::FiberTable,
    object_ref::ObjectRef,
    wait::{Pending, Purpose, WaitHook, WaitState, WaitStatus, WakeCause},
};

const RAISE: Pending = Pending::Raise(ObjectRef::new(8));
const LATE: Pending = Pending::Late(ObjectRef::new(8));
const READINESS: Purpose = Purpose::Readiness {
    io_number: 5,
    events: 1,
};
const BLOCK: Purpose = Purpose::ANY_UNBLOCK;
const READY: WakeCause = WakeCause::READABLE;

/// A table with one fiber.
struct Fiber(FiberTable, Slot);

impl Deref for Fiber {
    type Target = FiberRecord;

    fn deref(&self) -> &FiberRecord {
        &self.0[self.1]
    }
}

impl DerefMut for Fiber {
    fn deref_mut(&mut self) -> &mut FiberRecord {
        &mut self.0[self.1]
    }
}

impl Fiber {
    fn begin_timeout(&mut self) -> Token {
        let nil = ObjectRef::new(4);
        let token = self.0.timeout_token(self.1);
        self.0.begin_timeout(token, (ObjectRef::new(8), nil), None);
        token
    }

    fn take_status(&mut self) -> WaitStatus {
        self.0.take_status(self.1)
    }

    fn may_run(&self) -> bool {
        self.0.may_run(self.1)
    }

    fn raise(&mut self, address: usize) {
        self.wait.exception = ObjectRef::new(address);
    }

    fn pending(&self) -> Vec<Pending> {
        self.all_pending().collect()
    }
}

fn running() -> Fiber {
    let mut fibers = FiberTable::default();
    let slot = fibers.insert(ObjectRef::new(0x1000), true);
    Fiber(fibers, slot)
}

fn parked(purpose: Purpose) -> Fiber {
    let mut record = running();
    record.begin_wait(purpose, WaitState::Parked);
    record
}

fn parked_in_timeout() -> (Fiber, Token) {
    let mut record = running();
    let timeout = record.begin_timeout();
    record.begin_wait(BLOCK, WaitState::Parked);
    (record, timeout)
}

fn woken(cause: WakeCause) -> Fiber {
    let mut record = parked(BLOCK);
    assert!(wake(&mut record, cause));
    record
}

fn wake(record: &mut Fiber, cause: WakeCause) -> bool {
    let number = record.wait.number;
    record.wake(number, cause)
}

/// Dequeues under a number `age` older than the wait's.
fn dequeue(record: &mut Fiber, age: u32) -> bool {
    let number = record.wait.number - age;
    record.dequeue(number)
}

// A wait

#[test]
fn a_wait_begins() {
    let mut record = running();
    record.spawner = Some(Token::new(3, 4));
    let queued_as = record.queue().unwrap();
    record.begin_wait(READINESS, WaitState::Parked);
    assert_eq!(WaitState::Parked, record.wait.state);
    assert_ne!(queued_as, record.wait.number);
    assert!(!record.is_queued_as(queued_as) && !record.queued);
    assert_eq!(None, record.spawner);
}

#[test]
fn a_parked_fiber_is_woken_under_its_number() {
    let mut record = parked(READINESS);
    assert!(wake(&mut record, READY));
    assert_eq!(WaitState::Woken(READY), record.wait.state);
    assert!(record.queued);
}

#[test]
fn an_older_number_wakes_no_parked_fiber() {
    let mut record = parked(READINESS);
    let old = record.wait.number;
    record.end_wait();
    record.begin_wait(READINESS, WaitState::Parked);
    assert!(!record.wake(old, READY));
    assert_eq!(WaitState::Parked, record.wait.state);
}

#[test]
fn a_fiber_that_does_not_wait_is_not_woken() {
    let mut record = running();
    assert!(!wake(&mut record, READY));
    assert_eq!(WaitState::Running, record.wait.state);
    let mut record = woken(WakeCause::Unblocked);
    assert!(!wake(&mut record, READY));
}

#[test]
fn an_answer_beats_a_limit_that_elapsed_before_the_fiber_ran() {
    let mut record = woken(WakeCause::Elapsed);
    assert!(!wake(&mut record, READY), "it is queued already");
    assert_eq!(WaitState::Woken(READY), record.wait.state);
}

#[test]
fn a_woken_fiber_may_run_once_it_has_left_the_queue() {
    let mut record = woken(READY);
    assert!(!record.may_run());
    assert!(dequeue(&mut record, 0));
    assert!(record.may_run());
    assert!(!dequeue(&mut record, 0));
}

#[test]
fn an_older_entry_takes_nothing_from_the_queue() {
    let mut record = woken(READY);
    assert!(!dequeue(&mut record, 1));
    assert!(record.queued);
}

#[test]
fn a_wait_ends() {
    let mut record = parked(READINESS);
    let number = record.wait.number;
    record.raise(8);
    record.end_wait();
    assert_eq!(WaitState::Running, record.wait.state);
    assert_ne!(number, record.wait.number);
    assert!(record.pending().is_empty());
    assert_eq!(0, record.wait.io_number());
    assert_eq!(WaitHook::Other, record.wait.hook());
    assert!(!record.queued && !record.take_permit());
}

#[test]
fn a_pending_kill_outlives_the_wait() {
    let mut record = woken(READY);
    record.cancel(Pending::Kill);
    record.end_wait();
    assert_eq!(vec![Pending::Kill], record.pending());
}

#[test]
fn a_running_fiber_is_queued_once() {
    let mut record = running();
    let number = record.wait.number;
    assert_eq!(Some(number), record.queue());
    assert_eq!(None, record.queue());
    assert_eq!(WaitState::Running, record.wait.state);
    assert!(!record.is_suspended());
}

// Interruptions. `State::interrupt` also checks the kind of wait; its tests are in `state/interruption`.

#[test]
fn a_parked_fiber_that_is_killed_ends_its_wait() {
    let mut record = parked(Purpose::Send);
    record.cancel(Pending::Kill);
    assert_eq!(vec![Pending::Kill], record.pending());
}

#[test]
fn a_queued_fiber_that_is_killed_keeps_its_place() {
    let mut without_wait = running();
    without_wait.queue();
    for mut record in [woken(READY), without_wait] {
        let state = record.wait.state;
        record.cancel(Pending::Kill);
        assert_eq!(state, record.wait.state);
        assert_eq!(vec![Pending::Kill], record.pending());
    }
}

#[test]
fn an_answer_beats_a_timeout_that_elapses_later_and_then_ends_the_next_wait() {
    for cause in [READY, WakeCause::Elapsed] {
        let (mut record, timeout) = parked_in_timeout();
        wake(&mut record, cause);
        assert_eq!(None, record.0.expire(timeout, false));
        assert_eq!(WaitStatus::Ended(cause), record.take_status());
        record.end_wait();
        let (fibers, slot) = (&mut record.0, record.1);
        let next = fibers.begin_wait(slot, BLOCK);
        fibers.wake(next, cause);
        assert_eq!(WaitStatus::TimedOut, record.take_status());
        assert!(record.0.end_timeout(timeout).is_some());
        assert_eq!(WaitStatus::Ended(cause), record.take_status());
    }
}

#[test]
fn a_timeout_that_elapses_first_or_is_asked_for_beats_an_answer() {
    for is_asked in [false, true] {
        let (mut record, timeout) = parked_in_timeout();
        if is_asked {
            wake(&mut record, READY);
        }
        record.0.expire(timeout, is_asked);
        wake(&mut record, READY);
        assert_eq!(WaitState::Woken(READY), record.wait.state);
        assert_eq!(WaitStatus::TimedOut, record.take_status());
    }
}

#[test]
fn a_timeout_queues_a_parked_fiber_whose_wait_goes_on() {
    let (mut record, timeout) = parked_in_timeout();
    let token = record.0.parked(record.1);
    assert_eq!(token, record.0.expire(timeout, false));
    assert!(record.0.has_timed_out(record.1) && !record.may_run());
    assert_eq!(None, record.queue());
    assert!(dequeue(&mut record, 0));
    assert!(record.may_run());
    assert_eq!(None, record.wake_cause());
    assert_eq!(WaitStatus::TimedOut, record.take_status());
}

#[test]
fn an_unblock_after_a_timeout_has_expired_is_not_lost() {
    let (mut record, timeout) = parked_in_timeout();
    record.0.expire(timeout, false);
    assert!(wake(&mut record, WakeCause::Unblocked));
    assert_eq!(
        WaitStatus::Ended(WakeCause::Unblocked),
        record.take_status()
    );
}

// When the fiber runs again

#[test]
fn an_unblocked_fiber_goes_on_whatever_is_pending() {
    let (mut record, timeout) = parked_in_timeout();
    wake(&mut record, WakeCause::Unblocked);
    record.raise(8);
    record.0.expire(timeout, false);
    assert_eq!(
        WaitStatus::Ended(WakeCause::Unblocked),
        record.take_status()
    );
    assert_eq!(vec![RAISE], record.pending());
}

#[test]
fn what_is_pending_is_raised_once_and_before_a_timeout() {
    let (mut record, timeout) = parked_in_timeout();
    record.0.expire(timeout, false);
    wake(&mut record, READY);
    record.raise(8);
    assert_eq!(WaitStatus::Raise(RAISE), record.take_status());
    assert_eq!(WaitStatus::TimedOut, record.take_status());
}

#[test]
fn a_woken_fiber_goes_on_and_a_parked_one_waits() {
    assert_eq!(
        WaitStatus::Ended(WakeCause::Elapsed),
        woken(WakeCause::Elapsed).take_status()
    );
    assert_eq!(WaitStatus::Waiting, parked(READINESS).take_status());
}

#[test]
fn a_running_fiber_that_gets_control_was_interrupted() {
    assert_eq!(
        WaitStatus::Ended(WakeCause::Interrupted),
        running().take_status()
    );
}

#[test]
fn what_is_pending_may_be_left_for_later() {
    let mut record = woken(READY);
    record.raise(8);
    assert_eq!(Some(READY), record.wake_cause());
    assert_eq!(vec![RAISE], record.pending());
}

#[test]
fn a_raise_that_is_put_back_outlives_the_wait() {
    let mut record = parked(BLOCK);
    record.put_back(RAISE);
    record.end_wait();
    record.begin_wait(BLOCK, WaitState::Parked);
    assert_eq!(WaitStatus::Raise(LATE), record.take_status());
}

#[test]
fn an_exception_is_raised_before_a_kill_or_a_late_raise_that_was_pending() {
    let other = Pending::Raise(ObjectRef::new(16));
    for (pending, own) in [(RAISE, LATE), (Pending::Kill, Pending::Kill)] {
        let mut record = parked(READINESS);
        record.put_back(pending);
        record.raise(16);
        assert_eq!(vec![other, own], record.pending());
        assert_eq!(WaitStatus::Raise(other), record.take_status());
        assert_eq!(WaitStatus::Raise(own), record.take_status());
        assert_eq!(WaitStatus::Waiting, record.take_status());
    }
}

#[test]
fn an_exception_goes_with_its_wait_and_leaves_what_belongs_to_the_fiber() {
    let mut record = parked(READINESS);
    record.put_back(RAISE);
    record.raise(16);
    record.end_wait();
    record.begin_wait(READINESS, WaitState::Parked);
    assert_eq!(WaitStatus::Raise(LATE), record.take_status());
    assert_eq!(WaitStatus::Waiting, record.take_status());
}

#[test]
fn raises_that_are_put_back_are_all_raised_unless_a_kill_comes() {
    let other = Pending::Late(ObjectRef::new(16));
    let mut record = parked(BLOCK);
    record.put_back(RAISE);
    record.put_back(Pending::Raise(ObjectRef::new(16)));
    assert_eq!(vec![other, LATE], record.pending());
    record.cancel(Pending::Kill);
    assert_eq!(Some(Pending::Kill), record.take_pending());
    assert_eq!(None, record.take_pending());
}

// A permit

#[test]
fn a_running_fiber_keeps_a_permit_until_it_takes_it() {
    let mut record = running();
    record.grant_permit();
    assert!(record.take_permit());
    assert!(!record.take_permit());
}

#[test]
fn a_fiber_that_waits_gets_no_permit() {
    let mut record = parked(BLOCK);
    record.grant_permit();
    assert!(!record.take_permit());
    let mut record = woken(WakeCause::Elapsed);
    record.grant_permit();
    assert!(!record.take_permit());
}

// Hooks

#[test]
fn the_record_of_a_foreign_fiber_goes_with_its_last_hook() {
    let mut record = FiberRecord::new(ObjectRef::new(8), false, 0);
    record.active_hooks = 2;
    assert!(!record.leave_hook());
    assert!(record.leave_hook());
    let mut scheduled = running();
    scheduled.active_hooks = 1;
    assert!(!scheduled.leave_hook());
}
