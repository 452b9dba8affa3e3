//! Waits interrupted by a trap handler, and what ends them.

use std::time::Duration;

use super::{
    ERROR, HOUR, NIL, OTHER_ERROR, block, end_wait, fiber, open, order, park_on, scheduled,
};
use crate::state::{
    State,
    fiber::Slot,
    interruption::Unblocked,
    object_ref::ObjectRef,
    ready_queue::Next,
    wait::{Pending, WaitStatus, WakeCause},
};

/// A fiber that waits for one blocker and, in a trap handler during that wait, for another blocker.
fn nested() -> (State, Slot) {
    let (outer, inner) = (Some(ObjectRef::new(40)), Some(ObjectRef::new(48)));
    let (mut state, _) = open();
    let slot = state.enter(fiber(1)).unwrap().slot;
    state.begin_block(slot, false, None, outer);
    state.enter(fiber(1)).unwrap();
    state.begin_block(slot, false, None, inner);
    (state, slot)
}

fn leave(state: &mut State, slot: Slot) {
    end_wait(state, slot);
    state.leave(slot);
}

#[test]
fn an_unblock_ends_the_wait_for_its_blocker() {
    let (mut state, slot) = nested();
    assert_eq!(
        Unblocked::Woken,
        state.unblock(fiber(1), Some(ObjectRef::new(40)))
    );
    assert_eq!(WaitStatus::Waiting, state.take_wait_status(slot));
    leave(&mut state, slot);
    assert_eq!(
        WaitStatus::Ended(WakeCause::Unblocked),
        state.take_wait_status(slot)
    );

    let (mut state, slot) = nested();
    assert_eq!(
        Unblocked::Woken,
        state.unblock(fiber(1), Some(ObjectRef::new(48)))
    );
    assert_eq!(
        WaitStatus::Ended(WakeCause::Unblocked),
        state.take_wait_status(slot)
    );
    leave(&mut state, slot);
    assert_eq!(WaitStatus::Waiting, state.take_wait_status(slot));
}

/// The handler closes an IO that other fibers use. The handler's wait must continue, so the exception is put back.
#[test]
fn a_raise_that_the_close_of_a_trap_handler_puts_back_is_raised_after_the_handler() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    state.enter(fiber(1)).unwrap();
    park_on(&mut state, slot, 5);
    state.enter(fiber(1)).unwrap();
    block(&mut state, slot);
    state.fibers[slot].put_back(Pending::Raise(ERROR));
    assert!(state.interrupt_use(slot, 5, OTHER_ERROR));
    leave(&mut state, slot);
    assert_eq!(
        WaitStatus::Raise(Pending::Raise(OTHER_ERROR)),
        state.take_wait_status(slot)
    );
    assert_eq!(
        WaitStatus::Raise(Pending::Late(ERROR)),
        state.take_wait_status(slot)
    );
}

#[test]
fn an_unblock_that_names_no_blocker_ends_both_waits() {
    let (mut state, slot) = nested();
    assert_eq!(Unblocked::Woken, state.unblock(fiber(1), Some(NIL)));
    assert_eq!(
        WaitStatus::Ended(WakeCause::Unblocked),
        state.take_wait_status(slot)
    );
    leave(&mut state, slot);
    assert_eq!(
        WaitStatus::Ended(WakeCause::Unblocked),
        state.take_wait_status(slot)
    );
}

/// The VM names the fiber's thread when a thread that the fiber joins has ended.
#[test]
fn an_unblock_that_names_the_thread_ends_no_sleep_with_a_limit() {
    let thread = Some(ObjectRef::new(48));
    let waits = [(true, HOUR, None), (false, None, thread)];
    let (sleep, join) = (WaitStatus::Waiting, WaitStatus::Ended(WakeCause::Unblocked));
    for (order, status) in [([0, 1], [join, sleep]), ([1, 0], [sleep, join])] {
        let (mut state, _script) = open();
        let mut slot = 0;
        for (hook, limit, blocker) in order.map(|place: usize| waits[place]) {
            slot = state.enter(fiber(1)).unwrap().slot;
            state.begin_block(slot, hook, limit, blocker);
        }
        assert_eq!(Unblocked::Woken, state.unblock(fiber(1), None));
        assert_eq!(status[0], state.take_wait_status(slot));
        leave(&mut state, slot);
        assert_eq!(status[1], state.take_wait_status(slot));
    }
}

#[test]
fn a_timeout_around_a_wait_that_a_trap_handler_interrupts_is_raised_after_the_handler() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    state.enter(fiber(1)).unwrap();
    state.begin_timeout(slot, (ERROR, NIL), Some(Duration::ZERO));
    block(&mut state, slot);
    state.enter(fiber(1)).unwrap();
    let own = state.begin_timeout(slot, (OTHER_ERROR, NIL), HOUR);
    block(&mut state, slot);
    state.poll_once().unwrap();
    assert_eq!(Next::Nothing, state.next_ready());
    assert_eq!(WaitStatus::Waiting, state.take_wait_status(slot));
    assert_eq!(None, state.next_indirect_timeout(slot));
    state.end_timeout(own);
    leave(&mut state, slot);
    assert_eq!(WaitStatus::TimedOut, state.take_wait_status(slot));
    assert_eq!(Some((ERROR, NIL)), state.take_expired_timeout(slot));
}

#[test]
fn a_trap_handler_raises_its_own_timeout_even_if_one_around_its_wait_has_fired() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    state.enter(fiber(1)).unwrap();
    state.begin_timeout(slot, (ERROR, NIL), Some(Duration::ZERO));
    block(&mut state, slot);
    state.enter(fiber(1)).unwrap();
    let own = state.begin_timeout(slot, (OTHER_ERROR, NIL), Some(Duration::ZERO));
    block(&mut state, slot);
    state.poll_once().unwrap();
    assert_eq!(vec![slot], order(&mut state));
    assert_eq!(WaitStatus::TimedOut, state.take_wait_status(slot));
    assert_eq!(Some((OTHER_ERROR, NIL)), state.take_expired_timeout(slot));
    state.end_timeout(own);
    leave(&mut state, slot);
    assert_eq!(Some((ERROR, NIL)), state.take_expired_timeout(slot));
}

#[test]
fn a_timeout_of_a_suspended_enumerator_is_raised_after_the_trap_handler_of_its_resumer() {
    let (mut state, _script) = open();
    let resumer = scheduled(&mut state, 1);
    state.enter(fiber(1)).unwrap();
    let enumerator = state.enter(fiber(2)).unwrap().slot;
    state.begin_timeout(enumerator, (ERROR, NIL), Some(Duration::ZERO));
    state.enter(fiber(1)).unwrap(); // the fiber continues, and waits
    block(&mut state, resumer);
    state.enter(fiber(1)).unwrap();
    block(&mut state, resumer);
    state.poll_once().unwrap();
    assert_eq!(WaitStatus::Waiting, state.take_wait_status(resumer));
    leave(&mut state, resumer);
    assert_eq!(WaitStatus::TimedOut, state.take_wait_status(resumer));
    assert_eq!(Some((ERROR, NIL)), state.take_expired_timeout(resumer));
}

#[test]
fn a_timeout_of_a_fiber_that_waits_for_an_enumerator_is_raised_after_the_trap_handler_there() {
    let (mut state, _script) = open();
    let (resumer, polling) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    state.enter(fiber(1)).unwrap();
    state.begin_timeout(resumer, (ERROR, NIL), Some(Duration::ZERO));
    let enumerator = state.enter(fiber(3)).unwrap().slot;
    block(&mut state, enumerator);
    state.enter(fiber(3)).unwrap();
    block(&mut state, enumerator);
    state.poll_once().unwrap();
    assert_eq!(None, state.next_indirect_timeout(polling));
    leave(&mut state, enumerator);
    assert_eq!(
        Some((resumer, fiber(1))),
        state.next_indirect_timeout(polling)
    );
    assert_eq!(Some((ERROR, NIL)), state.take_expired_timeout(resumer));
}
