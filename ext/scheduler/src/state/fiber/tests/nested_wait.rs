//! One test for each row of the tables in `state/fiber/nested_wait`.

use super::{LATE, RAISE, running};
use crate::state::{
    fiber::{FiberRecord, FiberState},
    object_ref::ObjectRef,
    wait::{Pending, WaitKind, WaitStatus, WakeCause},
};

// A hook in the middle of a wait

/// A record whose wait of this kind a hook has interrupted, and the number of that wait.
fn with_outer_wait(kind: WaitKind) -> (FiberRecord, u32) {
    let mut record = running();
    record.enter_hook();
    record.begin_wait(kind);
    let outer = record.wait_number();
    record.enter_hook();
    record.set_wait_aside();
    record.begin_wait(WaitKind::Block);
    (record, outer)
}

fn leave(record: &mut FiberRecord) {
    record.end_wait();
    record.resume_wait();
    record.leave_hook();
}

#[test]
fn a_wait_that_was_set_aside_goes_on_when_the_hook_ends() {
    let (mut record, outer) = with_outer_wait(WaitKind::Block);
    assert_ne!(outer, record.wait_number());
    leave(&mut record);
    assert_eq!(FiberState::Parked(WaitKind::Block), record.state());
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
    assert!(record.wake(outer, WakeCause::Elapsed));
}

#[test]
fn the_wait_after_one_that_was_set_aside_has_a_number_of_its_own() {
    let (mut record, _) = with_outer_wait(WaitKind::Block);
    let inner = record.wait_number();
    leave(&mut record);
    record.end_wait();
    record.begin_wait(WaitKind::Io);
    assert!(record.wait_number() > inner);
    assert!(!record.wake(inner, WakeCause::Elapsed));
}

#[test]
fn what_ends_a_wait_that_was_set_aside_is_noted() {
    let (mut record, outer) = with_outer_wait(WaitKind::Io);
    assert!(!record.wake(outer, WakeCause::Ready));
    assert!(record.wake_outer(outer, WakeCause::Ready));
    assert!(!record.wake_outer(outer, WakeCause::Elapsed));
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
    leave(&mut record);
    assert!(record.may_run());
    assert_eq!(WaitStatus::Over(WakeCause::Ready), record.poll_wait());
}

#[test]
fn an_exception_is_raised_in_the_wait_that_it_is_meant_for() {
    let (mut record, _) = with_outer_wait(WaitKind::Io);
    assert!(!record.raise_in_outer(7, ObjectRef::new(8)));
    assert!(record.raise_in_outer(0, ObjectRef::new(8)));
    let outer: Vec<_> = record.outer_exceptions().collect();
    assert_eq!(vec![ObjectRef::new(8)], outer);
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
    leave(&mut record);
    assert_eq!(WaitStatus::Raise(RAISE), record.poll_wait());
}

#[test]
fn a_timeout_that_fires_is_raised_in_the_wait_that_it_is_around() {
    let (mut record, _) = with_outer_wait(WaitKind::Io);
    record.count_fired_timeout(0);
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
    record.count_fired_timeout(1);
    assert_eq!(WaitStatus::TimedOut, record.poll_wait());
    record.discount_fired_timeout(1);
    leave(&mut record);
    assert!(record.may_run());
    assert_eq!(WaitStatus::TimedOut, record.poll_wait());
}

#[test]
fn a_kill_in_the_middle_of_a_wait_is_not_lost_with_it() {
    let (mut record, _) = with_outer_wait(WaitKind::Block);
    record.kill();
    leave(&mut record);
    assert_eq!(WaitStatus::Raise(Pending::Kill), record.poll_wait());
}

#[test]
fn a_late_raise_in_the_middle_of_a_wait_is_not_lost_with_it() {
    let (mut record, _) = with_outer_wait(WaitKind::Io);
    record.put_back(RAISE);
    leave(&mut record);
    assert_eq!(WaitStatus::Raise(LATE), record.poll_wait());
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
}

#[test]
fn a_late_raise_in_the_middle_of_a_wait_does_not_replace_the_exception_of_the_wait() {
    let (mut record, _) = with_outer_wait(WaitKind::Io);
    record.put_back(Pending::Raise(ObjectRef::new(16)));
    assert!(record.raise_in_outer(0, ObjectRef::new(8)));
    leave(&mut record);
    assert_eq!(WaitStatus::Raise(RAISE), record.poll_wait());
    let late = Pending::Late(ObjectRef::new(16));
    assert_eq!(WaitStatus::Raise(late), record.poll_wait());
}

#[test]
fn a_kill_or_late_raise_from_before_the_hook_is_raised_in_it() {
    for (pending, expected) in [(RAISE, LATE), (Pending::Kill, Pending::Kill)] {
        let mut record = running();
        record.begin_wait(WaitKind::Block);
        record.put_back(pending);
        record.enter_hook();
        record.set_wait_aside();
        record.begin_wait(WaitKind::Block);
        assert_eq!(WaitStatus::Raise(expected), record.poll_wait());
    }
}

// The fiber's own code

fn in_handler() -> FiberRecord {
    let mut record = running();
    record.enter_hook();
    record.enter_hook();
    record
}

#[test]
fn a_timeout_around_code_that_was_set_aside_is_raised_after_the_hook() {
    let mut record = in_handler();
    record.begin_wait(WaitKind::Block);
    record.count_fired_timeout(0);
    record.set_code_aside();
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
    record.count_fired_timeout(0);
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
    leave(&mut record);
    assert_eq!(FiberState::Running, record.state());
    record.begin_wait(WaitKind::Io);
    assert_eq!(WaitStatus::TimedOut, record.poll_wait());
    record.discount_fired_timeout(0);
    record.discount_fired_timeout(0);
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
}

#[test]
fn code_is_set_aside_until_its_hook_ends() {
    let mut record = in_handler();
    record.set_code_aside();
    record.enter_hook();
    record.begin_wait(WaitKind::Io);
    record.count_fired_timeout(1);
    assert_eq!(WaitStatus::TimedOut, record.poll_wait());
    record.discount_fired_timeout(1);
    leave(&mut record);
    assert_eq!(1, record.depth());
    leave(&mut record);
    assert_eq!(0, record.depth());
}

#[test]
fn what_is_pending_in_a_hook_that_has_interrupted_code_stays() {
    let mut record = in_handler();
    record.set_code_aside();
    record.put_back(RAISE);
    leave(&mut record);
    assert_eq!(Some(LATE), record.pending());
}
