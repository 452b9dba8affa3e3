//! Fibers that run for another one.

use super::{BLOCK, FiberTable, INNER, OUTER, begin_timeout, fiber, raised};
use crate::state::{
    fiber::Slot,
    object_ref::ObjectRef,
    wait::{WaitStatus, WakeCause},
};

/// A fiber, and another fiber that runs for it.
fn with_enumerator() -> (FiberTable, Slot, Slot) {
    let (mut fibers, resumer) = fiber();
    let enumerator = fibers.insert(ObjectRef::new(0x2000), false);
    fibers.set_resumer(enumerator, Some(fibers.id(resumer)));
    (fibers, resumer, enumerator)
}

#[test]
fn the_resumer_of_a_suspended_enumerator_raises_its_timeout() {
    let (mut fibers, resumer, enumerator) = with_enumerator();
    let timeout = begin_timeout(&mut fibers, enumerator, OUTER);
    let wait = fibers.begin_wait(resumer, BLOCK);
    assert_eq!(Some(wait), fibers.expire(timeout, false));
    assert!(!fibers.has_indirect());
    assert_eq!(Some(OUTER), raised(&mut fibers, resumer));
}

#[test]
fn the_timeout_of_a_suspended_enumerator_is_raised_in_the_wait_around_which_the_enumerator_is() {
    let (mut fibers, resumer, enumerator) = with_enumerator();
    let timeout = begin_timeout(&mut fibers, enumerator, OUTER);
    fibers.begin_wait(resumer, BLOCK);
    let handlers = fibers.begin_wait(resumer, BLOCK);
    assert_eq!(None, fibers.expire(timeout, false));
    assert_eq!(WaitStatus::Waiting, fibers.take_status(resumer));
    fibers.end_wait(handlers);
    assert_eq!(Some(OUTER), raised(&mut fibers, resumer));
}

#[test]
fn a_timeout_of_an_enumerator_that_has_control_is_raised_there() {
    let (mut fibers, _, enumerator) = with_enumerator();
    let timeout = begin_timeout(&mut fibers, enumerator, OUTER);
    fibers.expire(timeout, false);
    fibers.begin_wait(enumerator, BLOCK);
    assert_eq!(None, fibers.next_indirect());
    assert_eq!(Some(OUTER), raised(&mut fibers, enumerator));
}

#[test]
fn the_timeout_of_an_enumerator_whose_resumer_has_ended_is_raised_nowhere_else() {
    let (mut fibers, resumer, enumerator) = with_enumerator();
    let timeout = begin_timeout(&mut fibers, enumerator, OUTER);
    fibers.remove(resumer);
    assert_eq!(resumer, fibers.insert(ObjectRef::new(0x3000), true));
    fibers.begin_wait(resumer, BLOCK);
    assert_eq!(None, fibers.expire(timeout, false));
    assert_eq!(None, fibers.next_indirect());
    assert_eq!(WaitStatus::Waiting, fibers.take_status(resumer));
}

#[test]
fn an_enumerator_that_another_fiber_resumes_runs_on_behalf_of_that_one() {
    let (mut fibers, first, enumerator) = with_enumerator();
    let timeout = begin_timeout(&mut fibers, enumerator, OUTER);
    let second = fibers.insert(ObjectRef::new(0x3000), true);
    fibers.set_resumer(enumerator, Some(fibers.id(second)));
    fibers.begin_wait(first, BLOCK);
    let wait = fibers.begin_wait(second, BLOCK);
    assert_eq!(Some(wait), fibers.expire(timeout, false));
    assert_eq!(WaitStatus::Waiting, fibers.take_status(first));
    fibers.remove(enumerator);
    assert_eq!(WaitStatus::Waiting, fibers.take_status(second));
}

#[test]
fn a_fiber_that_waits_for_an_enumerator_is_raised_in_from_outside() {
    let (mut fibers, resumer, enumerator) = with_enumerator();
    let timeout = begin_timeout(&mut fibers, resumer, OUTER);
    fibers.begin_wait(enumerator, BLOCK);
    assert_eq!(None, fibers.expire(timeout, false));
    let found = Some((resumer, ObjectRef::new(0x1000)));
    assert_eq!(found, fibers.next_indirect());
    assert_eq!(None, fibers.next_indirect());
}

#[test]
fn an_answer_in_an_enumerator_beats_a_timeout_of_the_fiber_that_waits_for_it() {
    for is_asked in [false, true] {
        let (mut fibers, resumer, enumerator) = with_enumerator();
        let timeout = begin_timeout(&mut fibers, resumer, OUTER);
        let wait = fibers.begin_wait(enumerator, BLOCK);
        fibers.wake(wait, WakeCause::READABLE);
        fibers.expire(timeout, is_asked);
        assert_eq!(is_asked, fibers.next_indirect().is_some());
        fibers.end_wait(wait);
        fibers.begin_wait(enumerator, BLOCK);
        fibers.note_indirect_resumer(enumerator);
        assert!(fibers.next_indirect().is_some());
    }
}

/// The fiber was woken by an `unblock`, and continues into the Enumerator.
#[test]
fn a_fiber_that_has_not_raised_its_timeout_is_raised_in_when_the_enumerator_parks() {
    let (mut fibers, resumer, enumerator) = with_enumerator();
    let timeout = begin_timeout(&mut fibers, resumer, OUTER);
    let wait = fibers.begin_wait(resumer, BLOCK);
    fibers.expire(timeout, false);
    fibers.end_wait(wait);
    assert_eq!(None, fibers.next_indirect());
    fibers.begin_wait(enumerator, BLOCK);
    fibers.note_indirect_resumer(enumerator);
    let found = Some((resumer, ObjectRef::new(0x1000)));
    assert_eq!(found, fibers.next_indirect());
}

#[test]
fn a_fiber_that_waits_for_an_enumerator_is_raised_in_after_the_handler_there() {
    let (mut fibers, resumer, enumerator) = with_enumerator();
    let timeout = begin_timeout(&mut fibers, resumer, OUTER);
    fibers.begin_wait(enumerator, BLOCK);
    let handlers = fibers.begin_wait(enumerator, BLOCK);
    fibers.expire(timeout, false);
    assert_eq!(None, fibers.next_indirect());
    fibers.end_wait(handlers);
    assert!(fibers.next_indirect().is_some());
}

#[test]
fn an_expired_timeout_of_a_fiber_that_has_ended_is_not_the_next_ones_in_its_slot() {
    let (mut fibers, resumer, enumerator) = with_enumerator();
    let old = begin_timeout(&mut fibers, enumerator, OUTER);
    fibers.expire(old, false);
    fibers.remove(resumer);
    let next = fibers.insert(ObjectRef::new(0x3000), true);
    assert_eq!(resumer, next);
    assert_eq!(None, fibers.next_indirect());
    let own = begin_timeout(&mut fibers, next, INNER);
    fibers.begin_wait(next, BLOCK);
    fibers.expire(own, false);
    fibers.end_timeout(old);
    assert_eq!(Some(INNER), raised(&mut fibers, next));
}
