//! One test for each row of the tables in `state/fiber`.

use super::{FiberRecord, FiberState, KillStep};
use crate::state::{
    object_ref::ObjectRef,
    wait::{Pending, WaitHook, WaitKind, WaitStatus, WakeCause},
};

const RAISE: Pending = Pending::Raise(ObjectRef::new(8));
const LATE: Pending = Pending::Late(ObjectRef::new(8));

fn running() -> FiberRecord {
    FiberRecord::new(ObjectRef::new(0x1000), true, 0)
}

fn parked(kind: WaitKind) -> FiberRecord {
    let mut record = running();
    record.begin_wait(kind);
    record
}

fn woken(cause: WakeCause) -> FiberRecord {
    let mut record = parked(WaitKind::Block);
    assert!(record.wake(record.wait_number(), cause));
    record
}

// A wait

#[test]
fn a_wait_begins() {
    let mut record = running();
    record.set_spawner(Some(reactor::Token::new(3, 4)));
    let queued_as = record.queue().unwrap();
    record.begin_wait(WaitKind::Io);
    assert_eq!(FiberState::Parked(WaitKind::Io), record.state());
    assert_ne!(queued_as, record.wait_number());
    assert!(!record.is_queued_as(queued_as) && !record.is_queued());
    assert_eq!(None, record.spawner());
}

#[test]
fn a_parked_fiber_is_woken_under_its_number() {
    let mut record = parked(WaitKind::Io);
    assert!(record.wake(record.wait_number(), WakeCause::Ready));
    assert_eq!(FiberState::Woken(WakeCause::Ready), record.state());
    assert!(record.is_queued());
}

#[test]
fn an_older_number_wakes_no_parked_fiber() {
    let mut record = parked(WaitKind::Io);
    let old = record.wait_number();
    record.end_wait();
    record.begin_wait(WaitKind::Io);
    assert!(!record.wake(old, WakeCause::Ready));
    assert_eq!(FiberState::Parked(WaitKind::Io), record.state());
}

#[test]
fn a_fiber_that_does_not_wait_is_not_woken() {
    let mut record = running();
    assert!(!record.wake(record.wait_number(), WakeCause::Ready));
    assert_eq!(FiberState::Running, record.state());
    let mut record = woken(WakeCause::Elapsed);
    assert!(!record.wake(record.wait_number(), WakeCause::Ready));
    assert_eq!(FiberState::Woken(WakeCause::Elapsed), record.state());
}

#[test]
fn a_woken_fiber_may_run_once_it_has_left_the_queue() {
    let mut record = woken(WakeCause::Ready);
    assert!(!record.may_run());
    assert!(record.dequeue(record.wait_number()));
    assert!(record.may_run());
    assert!(!record.dequeue(record.wait_number()));
}

#[test]
fn an_older_entry_takes_nothing_from_the_queue() {
    let mut record = woken(WakeCause::Ready);
    assert!(!record.dequeue(record.wait_number().wrapping_sub(1)));
    assert!(record.is_queued());
}

#[test]
fn a_wait_ends() {
    let mut record = parked(WaitKind::Io);
    let number = record.wait_number();
    record.wait_for_readiness(5, 1);
    record.raise_later(ObjectRef::new(8));
    record.end_wait();
    assert_eq!(FiberState::Running, record.state());
    assert_ne!(number, record.wait_number());
    assert_eq!(None, record.pending());
    assert_eq!(0, record.io_number());
    assert_eq!(WaitHook::Other, record.hook());
    assert!(!record.is_queued() && !record.take_permit());
}

#[test]
fn a_pending_kill_outlives_the_wait() {
    let mut record = woken(WakeCause::Ready);
    record.kill();
    record.end_wait();
    assert_eq!(Some(Pending::Kill), record.pending());
}

#[test]
fn a_running_fiber_is_queued_once() {
    let mut record = running();
    assert_eq!(Some(record.wait_number()), record.queue());
    assert_eq!(None, record.queue());
    assert_eq!(FiberState::Running, record.state());
    assert!(!record.is_suspended_elsewhere());
}

// An interruption. `State::interrupt` asks for the kind of the wait; its tests are in `state/interruption`.

#[test]
fn a_parked_fiber_that_is_killed_ends_its_wait() {
    let mut record = parked(WaitKind::Send);
    assert_eq!(KillStep::Pending(Some(record.wait_number())), record.kill());
    assert_eq!(Some(Pending::Kill), record.pending());
}

#[test]
fn a_woken_fiber_that_is_killed_keeps_its_place() {
    let mut record = woken(WakeCause::Ready);
    assert_eq!(KillStep::Pending(None), record.kill());
    assert_eq!(FiberState::Woken(WakeCause::Ready), record.state());
    assert_eq!(Some(Pending::Kill), record.pending());
}

#[test]
fn a_fiber_queued_without_a_wait_that_is_killed_keeps_its_place() {
    let mut record = running();
    record.queue();
    assert_eq!(KillStep::Pending(None), record.kill());
    assert_eq!(FiberState::Running, record.state());
    assert_eq!(Some(Pending::Kill), record.pending());
}

#[test]
fn a_running_fiber_is_killed_through_the_vm() {
    let mut record = running();
    assert_eq!(KillStep::ThroughVm, record.kill());
    assert_eq!(None, record.pending());
    assert!(record.mark_killed());
}

#[test]
fn a_fired_timeout_changes_no_state() {
    let mut record = woken(WakeCause::Ready);
    record.count_fired_timeout(0);
    assert_eq!(FiberState::Woken(WakeCause::Ready), record.state());
    assert_eq!(WaitStatus::TimedOut, record.poll_wait());
    record.discount_fired_timeout(0);
    assert_eq!(WaitStatus::Over(WakeCause::Ready), record.poll_wait());
}

#[test]
fn a_timeout_queues_a_parked_fiber_whose_wait_goes_on() {
    let mut record = parked(WaitKind::Block);
    record.count_fired_timeout(0);
    assert!(record.has_timed_out());
    assert_eq!(Some(record.wait_number()), record.queue());
    assert!(!record.may_run());
    assert!(record.dequeue(record.wait_number()));
    assert!(record.may_run());
    assert_eq!(WaitStatus::Waiting, record.poll_wake());
    assert_eq!(WaitStatus::TimedOut, record.poll_wait());
}

#[test]
fn an_unblock_after_a_timeout_has_fired_is_not_lost() {
    let mut record = parked(WaitKind::Block);
    record.count_fired_timeout(0);
    record.queue();
    assert!(record.wake(record.wait_number(), WakeCause::Unblocked));
    assert_eq!(WaitStatus::Over(WakeCause::Unblocked), record.poll_wait());
}

// What the fiber does when it has control

#[test]
fn an_unblocked_fiber_goes_on_whatever_is_pending() {
    let mut record = woken(WakeCause::Unblocked);
    record.raise_later(ObjectRef::new(8));
    record.count_fired_timeout(0);
    assert_eq!(WaitStatus::Over(WakeCause::Unblocked), record.poll_wait());
    assert_eq!(Some(RAISE), record.pending());
}

#[test]
fn what_is_pending_is_raised_once_and_before_a_timeout() {
    let mut record = woken(WakeCause::Ready);
    record.raise_later(ObjectRef::new(8));
    record.count_fired_timeout(0);
    assert_eq!(WaitStatus::Raise(RAISE), record.poll_wait());
    assert_eq!(WaitStatus::TimedOut, record.poll_wait());
}

#[test]
fn a_woken_fiber_goes_on_and_a_parked_one_waits() {
    assert_eq!(
        WaitStatus::Over(WakeCause::Elapsed),
        woken(WakeCause::Elapsed).poll_wait()
    );
    assert_eq!(WaitStatus::Waiting, parked(WaitKind::Io).poll_wait());
}

#[test]
fn a_running_fiber_that_gets_control_was_interrupted() {
    assert_eq!(
        WaitStatus::Over(WakeCause::Interrupted),
        running().poll_wait()
    );
}

#[test]
fn what_is_pending_may_be_left_for_later() {
    let mut record = woken(WakeCause::Ready);
    record.raise_later(ObjectRef::new(8));
    assert_eq!(WaitStatus::Over(WakeCause::Ready), record.poll_wake());
    assert_eq!(Some(RAISE), record.pending());
}

#[test]
fn a_raise_that_is_put_back_outlives_the_wait() {
    let mut record = parked(WaitKind::Block);
    record.put_back(RAISE);
    record.end_wait();
    record.begin_wait(WaitKind::Block);
    assert_eq!(WaitStatus::Raise(LATE), record.poll_wait());
}

#[test]
fn an_exception_is_raised_before_a_kill_or_a_late_raise_that_was_pending() {
    let other = Pending::Raise(ObjectRef::new(16));
    for (pending, own) in [(RAISE, LATE), (Pending::Kill, Pending::Kill)] {
        let mut record = parked(WaitKind::Io);
        record.put_back(pending);
        record.raise_later(ObjectRef::new(16));
        assert_eq!(vec![other, own], record.all_pending().collect::<Vec<_>>());
        assert_eq!(WaitStatus::Raise(other), record.poll_wait());
        assert_eq!(WaitStatus::Raise(own), record.poll_wait());
        assert_eq!(WaitStatus::Waiting, record.poll_wait());
    }
}

#[test]
fn an_exception_goes_with_its_wait_and_leaves_what_belongs_to_the_fiber() {
    let mut record = parked(WaitKind::Io);
    record.put_back(RAISE);
    record.raise_later(ObjectRef::new(16));
    record.end_wait();
    record.begin_wait(WaitKind::Io);
    assert_eq!(WaitStatus::Raise(LATE), record.poll_wait());
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
}

#[test]
fn raises_that_are_put_back_are_all_raised_unless_a_kill_comes() {
    let other = Pending::Late(ObjectRef::new(16));
    let mut record = parked(WaitKind::Block);
    record.put_back(RAISE);
    record.put_back(Pending::Raise(ObjectRef::new(16)));
    assert_eq!(vec![other, LATE], record.all_pending().collect::<Vec<_>>());
    record.kill();
    assert_eq!(Some(Pending::Kill), record.take_pending());
    assert_eq!(None, record.take_pending());
}

#[test]
fn a_close_outlasts_timeouts_until_it_is_over() {
    let mut record = parked(WaitKind::Block);
    record.count_fired_timeout(0);
    assert!(record.may_run());
    record.outlast_timeouts();
    assert!(!record.may_run());
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
    record.end_wait();
    assert!(record.has_outlasted_timeouts());
    record.begin_wait(WaitKind::Block);
    assert_eq!(WaitStatus::TimedOut, record.poll_wait());
    record.discount_fired_timeout(0);
    assert!(!record.has_outlasted_timeouts());
}

#[test]
fn a_record_has_128_bytes() {
    assert_eq!(128, size_of::<Option<FiberRecord>>());
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
    let mut record = parked(WaitKind::Block);
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
    record.enter_hook();
    record.enter_hook();
    assert!(!record.leave_hook());
    assert!(record.leave_hook());
    let mut scheduled = running();
    scheduled.enter_hook();
    assert!(!scheduled.leave_hook());
}

mod nested_wait;
