//! Which timeout is raised, where, and how often.

use super::Timeouts;
use crate::state::{
    fiber::Slot,
    fiber_table::FiberTable,
    object_ref::ObjectRef,
    token_mark::is_of_fiber,
    wait::{WaitKind, WaitStatus},
};

const INNER: ObjectRef = ObjectRef::new(8);
const OUTER: ObjectRef = ObjectRef::new(16);
const MESSAGE: ObjectRef = ObjectRef::new(24);

fn fiber() -> (FiberTable, Slot) {
    let mut fibers = FiberTable::default();
    let slot = fibers.insert(ObjectRef::new(0x1000), true);
    (fibers, slot)
}

#[test]
fn a_fired_timeout_ends_the_wait_of_its_fiber() {
    let (mut fibers, slot) = fiber();
    let mut timeouts = Timeouts::default();
    let token = timeouts.insert(slot, (OUTER, MESSAGE), &fibers);
    assert!(!is_of_fiber(token));
    let wait = fibers.begin_wait(slot, WaitKind::Io);
    assert!(is_of_fiber(wait));
    assert_eq!(Some(wait), timeouts.fire(token, &mut fibers));
    assert_eq!(None, timeouts.next_indirect(&fibers));
    let record = fibers.get_mut(slot).unwrap();
    assert_eq!(WaitStatus::TimedOut, record.poll_wait());
    assert_eq!(
        Some((OUTER, MESSAGE)),
        timeouts.take_fired(slot, &mut fibers)
    );
    assert_eq!(None, timeouts.take_fired(slot, &mut fibers));
}

#[test]
fn a_timeout_fires_once() {
    let (mut fibers, slot) = fiber();
    let mut timeouts = Timeouts::default();
    let token = timeouts.insert(slot, (OUTER, MESSAGE), &fibers);
    fibers.begin_wait(slot, WaitKind::Io);
    assert!(timeouts.fire(token, &mut fibers).is_some());
    assert_eq!(None, timeouts.fire(token, &mut fibers));
    let raised = timeouts.take_fired(slot, &mut fibers);
    assert_eq!(Some((OUTER, MESSAGE)), raised);
    fibers.begin_wait(slot, WaitKind::Io);
    assert_eq!(None, timeouts.fire(token, &mut fibers));
    let record = fibers.get_mut(slot).unwrap();
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
}

#[test]
fn of_several_fired_timeouts_the_outermost_is_raised() {
    let (mut fibers, slot) = fiber();
    let mut timeouts = Timeouts::default();
    let outer = timeouts.insert(slot, (OUTER, MESSAGE), &fibers);
    let inner = timeouts.insert(slot, (INNER, MESSAGE), &fibers);
    fibers.begin_wait(slot, WaitKind::Io);
    timeouts.fire(inner, &mut fibers);
    timeouts.fire(outer, &mut fibers);
    assert_eq!(
        Some((OUTER, MESSAGE)),
        timeouts.take_fired(slot, &mut fibers)
    );
}

#[test]
fn the_outermost_is_raised_also_if_the_inner_one_took_the_lower_free_place() {
    let (mut fibers, slot) = fiber();
    let mut timeouts = Timeouts::default();
    for earlier in [(); 2].map(|()| timeouts.insert(slot, (INNER, MESSAGE), &fibers)) {
        timeouts.remove(earlier, &mut fibers);
    }
    let outer = timeouts.insert(slot, (OUTER, MESSAGE), &fibers);
    let inner = timeouts.insert(slot, (INNER, MESSAGE), &fibers);
    assert!(inner.index() < outer.index());
    fibers.begin_wait(slot, WaitKind::Io);
    timeouts.fire(inner, &mut fibers);
    timeouts.fire(outer, &mut fibers);
    for raised in [Some((OUTER, MESSAGE)), Some((INNER, MESSAGE)), None] {
        assert_eq!(raised, timeouts.take_fired(slot, &mut fibers));
    }
}

#[test]
fn a_block_that_ends_first_has_won() {
    let (mut fibers, slot) = fiber();
    let mut timeouts = Timeouts::default();
    let token = timeouts.insert(slot, (OUTER, MESSAGE), &fibers);
    fibers.begin_wait(slot, WaitKind::Io);
    timeouts.fire(token, &mut fibers);
    timeouts.remove(token, &mut fibers);
    let record = fibers.get_mut(slot).unwrap();
    assert_eq!(WaitStatus::Waiting, record.poll_wait());
    assert_eq!(None, timeouts.take_fired(slot, &mut fibers));
    assert_eq!(None, timeouts.next_indirect(&fibers));
}

#[test]
fn an_old_token_fires_no_later_timeout() {
    let (mut fibers, slot) = fiber();
    let mut timeouts = Timeouts::default();
    let old = timeouts.insert(slot, (OUTER, MESSAGE), &fibers);
    timeouts.remove(old, &mut fibers);
    let new = timeouts.insert(slot, (INNER, MESSAGE), &fibers);
    assert_eq!(old.index(), new.index());
    fibers.begin_wait(slot, WaitKind::Io);
    assert_eq!(None, timeouts.fire(old, &mut fibers));
    assert!(fibers.parked(slot).is_some());
}

#[test]
fn the_owner_of_a_suspended_enumerator_raises_its_timeout() {
    let (mut fibers, owner) = fiber();
    let enumerator = fibers.insert(ObjectRef::new(0x2000), false);
    fibers.set_owner(enumerator, Some(fibers.life(owner)));
    let mut timeouts = Timeouts::default();
    let token = timeouts.insert(enumerator, (OUTER, MESSAGE), &fibers);
    let wait = fibers.begin_wait(owner, WaitKind::Block);
    assert_eq!(Some(wait), timeouts.fire(token, &mut fibers));
    assert_eq!(None, timeouts.next_indirect(&fibers));
    assert_eq!(
        Some((OUTER, MESSAGE)),
        timeouts.take_fired(owner, &mut fibers)
    );
}

#[test]
fn the_timeout_of_an_enumerator_whose_owner_has_ended_is_raised_nowhere() {
    let (mut fibers, owner) = fiber();
    let enumerator = fibers.insert(ObjectRef::new(0x2000), false);
    fibers.set_owner(enumerator, Some(fibers.life(owner)));
    let mut timeouts = Timeouts::default();
    let token = timeouts.insert(enumerator, (OUTER, MESSAGE), &fibers);
    fibers.remove(owner);
    assert_eq!(owner, fibers.insert(ObjectRef::new(0x3000), true));
    assert_eq!(None, timeouts.fire(token, &mut fibers));
    assert_eq!(None, timeouts.next_indirect(&fibers));
}

#[test]
fn a_fiber_that_is_suspended_elsewhere_is_raised_in_from_outside() {
    let (mut fibers, slot) = fiber();
    let mut timeouts = Timeouts::default();
    let token = timeouts.insert(slot, (OUTER, MESSAGE), &fibers);
    assert_eq!(None, timeouts.fire(token, &mut fibers));
    let queued = fibers.queue(slot).unwrap();
    assert_eq!(None, timeouts.next_indirect(&fibers));
    fibers.take_queued(queued);
    let fiber = fibers.get(slot).unwrap().fiber();
    assert_eq!(Some((slot, fiber)), timeouts.next_indirect(&fibers));
    assert_eq!(None, timeouts.next_indirect(&fibers));
}

#[test]
fn a_fired_timeout_of_a_fiber_that_has_ended_is_not_the_next_ones_in_its_slot() {
    let (mut fibers, owner) = fiber();
    let enumerator = fibers.insert(ObjectRef::new(0x2000), false);
    fibers.set_owner(enumerator, Some(fibers.life(owner)));
    let mut timeouts = Timeouts::default();
    let old = timeouts.insert(enumerator, (OUTER, MESSAGE), &fibers);
    fibers.begin_wait(owner, WaitKind::Block);
    timeouts.fire(old, &mut fibers); // in the owner, which ends before it can raise it
    fibers.remove(owner);
    let next = fibers.insert(ObjectRef::new(0x3000), true);
    assert_eq!(owner, next);
    assert_eq!(None, timeouts.next_indirect(&fibers));
    let own = timeouts.insert(next, (INNER, MESSAGE), &fibers);
    fibers.begin_wait(next, WaitKind::Block);
    timeouts.fire(own, &mut fibers);
    timeouts.remove(old, &mut fibers);
    assert_eq!(
        WaitStatus::TimedOut,
        fibers.get_mut(next).unwrap().poll_wait()
    );
    assert_eq!(
        Some((INNER, MESSAGE)),
        timeouts.take_fired(next, &mut fibers)
    );
}
