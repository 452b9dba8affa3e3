//! Fibers that the scheduler did not create, collected inside a timeout.

use std::time::Duration;

use reactor::Token;

use super::{ERROR, NIL, end_wait, fiber, open, order, scheduled};
use crate::state::{State, fiber::Slot, object_ref::ObjectRef};

/// An Enumerator's fiber with this number, suspended inside a timeout. It has yielded to the fiber in `resumer`.
fn suspended(state: &mut State, resumer: usize, number: usize) -> (Slot, Token) {
    let slot = state.enter(fiber(number)).unwrap().slot;
    let timeout = state.begin_timeout(slot, (ERROR, NIL), Some(Duration::from_secs(3600)));
    state.set_collectable(timeout, number as u64);
    continues(state, resumer);
    (slot, timeout)
}

/// Begins and ends a hook in this fiber.
fn continues(state: &mut State, number: usize) {
    let slot = state.enter(fiber(number)).unwrap().slot;
    state.leave(slot);
}

/// A running fiber created by the scheduler, and its number.
fn resumer(state: &mut State) -> usize {
    scheduled(state, 9);
    continues(state, 9);
    9
}

/// The fiber in which this timeout began was collected, and the scheduler was told.
fn collect(state: &mut State, token: Token) {
    let handle = state.event_loop.weak_handle().unwrap().upgrade().unwrap();
    handle.notify(token).unwrap();
    state.poll_once().unwrap();
}

fn keeps(state: &State, fiber: ObjectRef) -> bool {
    let mut is_kept = false;
    state.for_each_object(|object| is_kept |= object == fiber);
    is_kept
}

fn timers(state: &State) -> u64 {
    let mut rows = state.statistics().into_iter();
    rows.find(|(name, _)| *name == "timers").unwrap().1
}

// One test per row of `FiberRecord::collectable`

#[test]
fn a_fiber_suspended_inside_a_timeout_is_not_kept() {
    let (mut state, _script) = open();
    let resumer = resumer(&mut state);
    suspended(&mut state, resumer, 1);
    assert!(!keeps(&state, fiber(1)));
    assert!(keeps(&state, fiber(resumer)) && keeps(&state, ERROR));
    assert_eq!(1, state.fiber_rows().len(), "observers do not see it");
    assert_eq!(1, timers(&state));
}

#[test]
fn a_fiber_inside_a_timeout_is_kept_while_it_has_control() {
    let (mut state, _script) = open();
    let number = resumer(&mut state);
    let (slot, _) = suspended(&mut state, number, 1);
    state.before_switch(slot);
    assert!(keeps(&state, fiber(1)));
    assert_eq!(Some(fiber(1)), state.running_fiber());
}

#[test]
fn a_hook_in_the_fiber_itself_keeps_it_until_the_hook_ends() {
    let (mut state, _script) = open();
    let number = resumer(&mut state);
    let (slot, _) = suspended(&mut state, number, 1);
    let entered = state.enter(fiber(1)).unwrap();
    assert!(entered.is_new && entered.slot == slot);
    assert!(!keeps(&state, fiber(1)), "the hook has not begun yet");
    assert_eq!(Some(1), state.collectable(slot));
    assert_eq!(slot, state.enter_collectable(slot, fiber(1), true));
    assert_eq!(None, state.collectable(slot));
    state.begin_block(slot, true, None, None).unwrap();
    state.before_park(slot);
    continues(&mut state, number);
    assert!(keeps(&state, fiber(1)), "it is parked");
    end_wait(&mut state, slot);
    state.leave(slot);
    assert!(!keeps(&state, fiber(1)));
}

#[test]
fn another_fiber_at_the_address_of_a_collected_one_gets_a_record_of_its_own() {
    let (mut state, _script) = open();
    let number = resumer(&mut state);
    let (slot, timeout) = suspended(&mut state, number, 1);
    assert_eq!(slot, state.enter(fiber(1)).unwrap().slot);
    let later = state.enter_collectable(slot, fiber(1), false);
    assert_ne!(slot, later);
    assert!(keeps(&state, fiber(1)));
    collect(&mut state, timeout);
    assert_eq!(Some(later), state.fibers.find(fiber(1)));
    state.leave(later);
    assert_eq!(None, state.fibers.find(fiber(1)));
}

#[test]
fn a_scheduled_fiber_at_the_address_of_a_collected_one_is_found() {
    let (mut state, _script) = open();
    let number = resumer(&mut state);
    let (slot, timeout) = suspended(&mut state, number, 1);
    assert_eq!(Some(slot), state.fibers.find(fiber(1)));
    let later = scheduled(&mut state, 1);
    assert_eq!(Some(later), state.fibers.find(fiber(1)));
    collect(&mut state, timeout);
    assert_eq!(Some(later), state.fibers.find(fiber(1)));
}

#[test]
fn a_collected_fiber_leaves_neither_record_nor_timer() {
    let (mut state, _script) = open();
    let number = resumer(&mut state);
    let (slot, outer) = suspended(&mut state, number, 1);
    assert_eq!(slot, state.enter(fiber(1)).unwrap().slot);
    state.enter_collectable(slot, fiber(1), true);
    let inner = state.begin_timeout(slot, (ERROR, NIL), Some(Duration::from_secs(7200)));
    state.set_collectable(inner, 1);
    continues(&mut state, number);
    assert!(!keeps(&state, fiber(1)));
    collect(&mut state, outer);
    assert_eq!(
        (1, Some(slot)),
        (timers(&state), state.fibers.find(fiber(1)))
    );
    collect(&mut state, inner);
    assert_eq!((0, None), (timers(&state), state.fibers.find(fiber(1))));
    collect(&mut state, inner);
    assert!(!keeps(&state, ERROR));
}

// The rest

#[test]
fn a_fiber_without_a_resumer_is_kept_because_it_raises_its_timeouts_itself() {
    let (mut state, _script) = open();
    let slot = state.enter(fiber(1)).unwrap().slot;
    let timeout = state.begin_timeout(slot, (ERROR, NIL), Some(Duration::ZERO));
    state.set_collectable(timeout, 1);
    let other = scheduled(&mut state, 2);
    state.before_switch(other);
    state.poll_once().unwrap();
    assert!(keeps(&state, fiber(1)));
    assert_eq!(Some((slot, fiber(1))), state.next_indirect_timeout(other));
}

#[test]
fn the_resumer_of_a_fiber_that_is_not_kept_raises_its_timeout() {
    let (mut state, _script) = open();
    let number = resumer(&mut state);
    let own = state.fibers.find(fiber(number)).unwrap();
    suspended(&mut state, number, 1);
    assert!(state.event_loop.freeze_clock(Duration::ZERO));
    state.begin_block(own, true, None, None).unwrap();
    state.advance_if_idle();
    state.poll_once().unwrap();
    assert_eq!(vec![own], order(&mut state));
    assert_eq!(Some((ERROR, NIL)), state.take_expired_timeout(own));
}

#[test]
fn a_timeout_whose_block_has_ended_does_not_end_with_the_fiber() {
    let (mut state, _script) = open();
    let number = resumer(&mut state);
    let (slot, timeout) = suspended(&mut state, number, 1);
    state.enter(fiber(1)).unwrap();
    state.enter_collectable(slot, fiber(1), true);
    state.end_timeout(timeout);
    assert!(keeps(&state, fiber(1)), "another hook is active");
    collect(&mut state, timeout);
    assert_eq!(Some(slot), state.fibers.find(fiber(1)));
    assert_eq!(0, timers(&state));
}

#[test]
fn a_closed_loop_is_told_of_no_fiber() {
    let (mut state, _script) = open();
    let handle = state.event_loop.weak_handle().unwrap();
    state.close()();
    assert!(
        handle.upgrade().is_none(),
        "it would keep a descriptor open"
    );
    assert!(state.event_loop.weak_handle().is_none());
}
