//! One test per row of the tables in `state/strand.rs`, and random histories checked against a short model.

use reactor::Token;

use super::{BLOCK, FiberTable, READINESS};
use crate::state::{
    fiber::Slot,
    object_ref::ObjectRef,
    wait::{Pending, Purpose, WaitStatus, WakeCause},
};

mod enumerators;
mod histories;

const INNER: ObjectRef = ObjectRef::new(8);
const OUTER: ObjectRef = ObjectRef::new(16);
const MESSAGE: ObjectRef = ObjectRef::new(24);

fn fiber() -> (FiberTable, Slot) {
    let mut fibers = FiberTable::default();
    let slot = fibers.insert(ObjectRef::new(0x1000), true);
    (fibers, slot)
}

/// A fiber that waits, and waits again in a trap handler during that wait.
fn nested(purpose: Purpose) -> (FiberTable, Slot, Token, Token) {
    let (mut fibers, slot) = fiber();
    let outer = fibers.begin_wait(slot, purpose);
    let inner = fibers.begin_wait(slot, BLOCK);
    (fibers, slot, outer, inner)
}

fn begin_timeout(fibers: &mut FiberTable, slot: Slot, exception: ObjectRef) -> Token {
    let token = fibers.timeout_token(slot);
    fibers.begin_timeout(token, (exception, MESSAGE), None);
    token
}

fn wake(fibers: &mut FiberTable, token: Token, cause: WakeCause) -> bool {
    let wait = fibers.wait_mut(token);
    wait.is_some_and(|wait| wait.wake(cause))
}

fn raised(fibers: &mut FiberTable, slot: Slot) -> Option<ObjectRef> {
    let status = fibers.take_status(slot);
    (status == WaitStatus::TimedOut)
        .then(|| fibers.take_expired(slot))?
        .map(|raise| raise.0)
}

// Covered waits

#[test]
fn a_covered_wait_goes_on_when_the_one_in_it_has_ended() {
    let (mut fibers, slot, outer, inner) = nested(BLOCK);
    assert_eq!(Some(inner), fibers.parked(slot));
    fibers.end_wait(inner);
    assert_eq!(Some(outer), fibers.parked(slot));
    assert_eq!(WaitStatus::Waiting, fibers.take_status(slot));
    assert!(fibers.wake(outer, WakeCause::Elapsed));
}

/// `IO.select` ends its wait a second time after it has parked.
#[test]
fn a_wait_that_ends_twice_ends_none_around_it() {
    let (mut fibers, slot, outer, inner) = nested(BLOCK);
    fibers.end_wait(inner);
    fibers.end_wait(inner);
    assert_eq!(Some(outer), fibers.parked(slot));
}

#[test]
fn the_end_of_a_covered_wait_ends_none_in_it() {
    let (mut fibers, slot, outer, inner) = nested(BLOCK);
    fibers.end_wait(outer);
    assert_eq!(Some(inner), fibers.parked(slot));
}

#[test]
fn the_wait_after_a_covered_one_has_a_number_of_its_own() {
    let (mut fibers, slot, outer, inner) = nested(BLOCK);
    fibers.end_wait(inner);
    fibers.end_wait(outer);
    let next = fibers.begin_wait(slot, READINESS);
    assert!(next.generation() > inner.generation());
    assert!(!fibers.wake(inner, WakeCause::Elapsed));
}

#[test]
fn what_ends_a_covered_wait_is_noted() {
    let (mut fibers, slot, outer, inner) = nested(READINESS);
    assert!(!fibers.wake(outer, WakeCause::READABLE));
    assert!(wake(&mut fibers, outer, WakeCause::READABLE));
    assert!(!wake(&mut fibers, outer, WakeCause::Elapsed));
    assert_eq!(WaitStatus::Waiting, fibers.take_status(slot));
    fibers.end_wait(inner);
    assert!(fibers.may_run(slot));
    assert_eq!(
        WaitStatus::Ended(WakeCause::READABLE),
        fibers.take_status(slot)
    );
}

#[test]
fn a_block_of_a_timeout_covers_the_wait_in_whose_middle_it_begins() {
    let (mut fibers, slot) = fiber();
    let wait = fibers.begin_wait(slot, BLOCK);
    let timeout = begin_timeout(&mut fibers, slot, OUTER);
    assert_eq!(None, fibers.parked(slot));
    assert!(fibers.end_timeout(timeout).is_some());
    assert_eq!(Some(wait), fibers.parked(slot));
}

#[test]
fn a_turn_without_a_wait_covers_the_wait_in_whose_middle_it_begins() {
    let (mut fibers, slot) = fiber();
    let wait = fibers.begin_wait(slot, BLOCK);
    let turn = fibers.begin_turn(slot);
    assert!(fibers.queue(slot).is_some());
    fibers.end_wait(turn);
    assert_eq!(Some(wait), fibers.parked(slot));
    let queued = fibers[slot].queued;
    assert!(!queued);
}

#[test]
fn a_kill_or_late_raise_in_the_middle_of_a_wait_is_not_lost_with_it() {
    let exception = Pending::Raise(INNER);
    for (pending, raised) in [
        (exception, Pending::Late(INNER)),
        (Pending::Kill, Pending::Kill),
    ] {
        let (mut fibers, slot, outer, inner) = nested(READINESS);
        fibers[slot].put_back(pending);
        fibers.wait_mut(outer).unwrap().exception = OUTER;
        fibers.end_wait(inner);
        let own = WaitStatus::Raise(Pending::Raise(OUTER));
        assert_eq!(own, fibers.take_status(slot));
        assert_eq!(WaitStatus::Raise(raised), fibers.take_status(slot));
        assert_eq!(WaitStatus::Waiting, fibers.take_status(slot));
    }
}

#[test]
fn a_kill_from_before_the_handler_is_raised_in_it() {
    let (mut fibers, slot) = fiber();
    fibers.begin_wait(slot, BLOCK);
    fibers[slot].put_back(Pending::Kill);
    fibers.begin_wait(slot, BLOCK);
    let kill = WaitStatus::Raise(Pending::Kill);
    assert_eq!(kill, fibers.take_status(slot));
}

// Code

#[test]
fn a_timeout_around_code_is_raised_after_the_handler_that_has_interrupted_it() {
    let (mut fibers, slot) = fiber();
    let timeout = begin_timeout(&mut fibers, slot, OUTER);
    let handlers = fibers.begin_wait(slot, BLOCK);
    assert_eq!(Some(handlers), fibers.expire(timeout, false));
    fibers.cover_code(slot);
    assert_eq!(WaitStatus::Waiting, fibers.take_status(slot));
    fibers.end_wait(handlers);
    assert!(!fibers[slot].is_in_wait());
    fibers.begin_wait(slot, READINESS);
    assert_eq!(Some(OUTER), raised(&mut fibers, slot));
    assert_eq!(WaitStatus::Waiting, fibers.take_status(slot));
}

#[test]
fn code_is_covered_until_the_timeout_of_the_handler_has_ended() {
    let (mut fibers, slot) = fiber();
    let outer = begin_timeout(&mut fibers, slot, OUTER);
    fibers.cover_code(slot);
    let own = begin_timeout(&mut fibers, slot, INNER);
    let wait = fibers.begin_wait(slot, READINESS);
    assert_eq!(None, fibers.expire(outer, false));
    assert_eq!(Some(wait), fibers.expire(own, false));
    assert_eq!(Some(INNER), raised(&mut fibers, slot));
    fibers.end_wait(wait);
    assert!(fibers[slot].is_in_handler());
    fibers.end_timeout(own);
    assert!(!fibers[slot].is_in_handler());
    fibers.begin_wait(slot, READINESS);
    assert_eq!(Some(OUTER), raised(&mut fibers, slot));
}

// Timeouts

#[test]
fn an_expired_timeout_ends_the_wait_of_its_fiber_once() {
    let (mut fibers, slot) = fiber();
    let timeout = begin_timeout(&mut fibers, slot, OUTER);
    let wait = fibers.begin_wait(slot, READINESS);
    assert_eq!(Some(wait), fibers.expire(timeout, false));
    assert_eq!(None, fibers.expire(timeout, false));
    assert!(!fibers.has_indirect());
    assert_eq!(Some(OUTER), raised(&mut fibers, slot));
    assert_eq!(None, fibers.expire(timeout, false));
    assert_eq!(WaitStatus::Waiting, fibers.take_status(slot));
}

#[test]
fn of_several_expired_timeouts_the_outermost_is_raised_first() {
    let (mut fibers, slot) = fiber();
    let outer = begin_timeout(&mut fibers, slot, OUTER);
    let inner = begin_timeout(&mut fibers, slot, INNER);
    fibers.begin_wait(slot, READINESS);
    fibers.expire(inner, false);
    fibers.expire(outer, false);
    for exception in [Some(OUTER), Some(INNER), None] {
        assert_eq!(exception, raised(&mut fibers, slot));
    }
}

#[test]
fn a_block_that_ends_first_has_won() {
    let (mut fibers, slot) = fiber();
    let timeout = begin_timeout(&mut fibers, slot, OUTER);
    fibers.begin_wait(slot, READINESS);
    fibers.expire(timeout, false);
    fibers.end_timeout(timeout);
    assert_eq!(WaitStatus::Waiting, fibers.take_status(slot));
    assert_eq!(None, fibers.take_expired(slot));
}

#[test]
fn a_timeout_that_has_ended_makes_no_later_one_beat_an_answer() {
    let (mut fibers, slot) = fiber();
    let ended = begin_timeout(&mut fibers, slot, OUTER);
    let wait = fibers.begin_wait(slot, READINESS);
    fibers.expire(ended, false);
    fibers.end_wait(wait);
    fibers.end_timeout(ended);
    let timeout = begin_timeout(&mut fibers, slot, INNER);
    let wait = fibers.begin_wait(slot, READINESS);
    fibers.wake(wait, WakeCause::READABLE);
    fibers.expire(timeout, false);
    assert_eq!(
        WaitStatus::Ended(WakeCause::READABLE),
        fibers.take_status(slot)
    );
}

#[test]
fn an_old_token_expires_no_later_timeout() {
    let (mut fibers, slot) = fiber();
    let old = begin_timeout(&mut fibers, slot, OUTER);
    fibers.end_timeout(old);
    begin_timeout(&mut fibers, slot, INNER);
    let wait = fibers.begin_wait(slot, READINESS);
    assert_eq!(None, fibers.expire(old, false));
    assert_eq!(None, fibers.end_timeout(old));
    assert_eq!(Some(wait), fibers.parked(slot));
    assert_eq!(WaitStatus::Waiting, fibers.take_status(slot));
}

#[test]
fn a_close_outlasts_timeouts_until_it_is_over() {
    let (mut fibers, slot) = fiber();
    let timeout = begin_timeout(&mut fibers, slot, OUTER);
    let close = fibers.begin_wait(slot, BLOCK);
    fibers.expire(timeout, false);
    fibers.take_queued(close);
    assert!(fibers.may_run(slot));
    fibers.wait_mut(close).unwrap().ignores_timeouts = true;
    assert!(!fibers.may_run(slot));
    assert_eq!(WaitStatus::Waiting, fibers.take_status(slot));
    fibers.end_wait(close);
    fibers.begin_wait(slot, BLOCK);
    assert_eq!(Some(OUTER), raised(&mut fibers, slot));
}
