//! What ends a wait, and what does not.

use std::time::Duration;

use reactor::{Interest, OwnerId, Ready};

use super::{
    ERROR, HOUR, NIL, OTHER_ERROR, block, end_wait, fiber, open, order, park_on, scheduled,
};
use crate::state::{
    State,
    interruption::Unblocked,
    ready_queue::Next,
    wait::{Pending, WaitStatus, WakeCause},
    wait_registration::{BegunAny, Watch},
};

// --- readiness ---------------------------------------------------------------------------------------------------

#[test]
fn readiness_wakes_the_fiber_that_waits_for_it() {
    let (mut state, script) = open();
    let slot = scheduled(&mut state, 1);
    let registered = park_on(&mut state, slot, 5);
    state.poll_once().unwrap();
    assert_eq!(WaitStatus::Waiting, state.take_wait_status(slot));
    script.report(5, Ready::READABLE);
    state.poll_once().unwrap();
    assert_eq!(Next::Fiber(slot, fiber(1)), state.next_ready());
    assert_eq!(
        WaitStatus::Ended(WakeCause::READABLE),
        state.take_wait_status(slot)
    );
    end_wait(&mut state, slot);
    let answer = WakeCause::READABLE.answer();
    assert_eq!(Ready::READABLE, state.end_readiness(registered, answer));
}

#[test]
fn a_stale_token_wakes_no_later_wait() {
    let (mut state, script) = open();
    let slot = scheduled(&mut state, 1);
    let registered = park_on(&mut state, slot, 5);
    script.report(5, Ready::READABLE);
    // Something else ends the wait before the poll that reports the event.
    end_wait(&mut state, slot);
    block(&mut state, slot);
    state.poll_once().unwrap();
    assert_eq!(Next::Nothing, state.next_ready());
    assert_eq!(WaitStatus::Waiting, state.take_wait_status(slot));
    assert_eq!(Ready::EMPTY, state.end_readiness(registered, None));
}

#[test]
fn an_entry_of_the_ready_queue_is_stale_once_its_fiber_waits_again() {
    let (mut state, script) = open();
    let slot = scheduled(&mut state, 1);
    let registered = park_on(&mut state, slot, 5);
    script.report(5, Ready::READABLE);
    state.poll_once().unwrap();
    assert!(state.has_ready_fiber() && state.is_queued(slot));
    end_wait(&mut state, slot);
    block(&mut state, slot);
    assert!(!state.has_ready_fiber());
    assert_eq!(Next::Nothing, state.next_ready());
    assert_eq!(Ready::EMPTY, state.end_readiness(registered, None));
}

#[test]
fn one_of_several_descriptors_ends_the_wait_for_all() {
    let (mut state, script) = open();
    let slot = scheduled(&mut state, 1);
    let watches = [5, 6].map(|descriptor| Watch {
        descriptor,
        owner_id: OwnerId(9),
        interest: Interest::READABLE,
    });
    let (registered, begun) = state.begin_any(slot, watches.into_iter(), HOUR, false, |_| ());
    assert!(matches!(begun, BegunAny::Parked));
    assert_eq!(vec![slot], state.users_of(5, 77));
    script.report(6, Ready::READABLE);
    state.poll_once().unwrap();
    assert_eq!(vec![slot], order(&mut state));
    state.end_any(registered);
    assert!(state.users_of(5, 77).is_empty());
}

#[test]
fn a_close_concerns_the_fibers_that_wait_for_the_same_object() {
    let (mut state, _script) = open();
    let (first, second) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    park_on(&mut state, first, 5);
    block(&mut state, second);
    assert_eq!(vec![first], state.users_of(5, 5));
    assert!(state.users_of(5, 6).is_empty());
    state.descriptors_in_use.begin((6, second));
    assert_eq!(vec![second], state.users_of(5, 6));
}

#[test]
fn an_io_with_another_file_concerns_the_fibers_that_its_old_file_made_ready() {
    let (mut state, script) = open();
    let (first, second) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    for (slot, descriptor) in [(first, 5), (second, 6)] {
        park_on(&mut state, slot, descriptor);
        script.report(descriptor, Ready::READABLE);
    }
    state.poll_once().unwrap();
    assert!(state.users_of(5, 5).is_empty());
    state.raise_in_queued_waiters(5, ERROR);
    assert!(matches!(
        state.take_wait_status(first),
        WaitStatus::Raise(_)
    ));
    assert!(matches!(
        state.take_wait_status(second),
        WaitStatus::Ended(_)
    ));
}

// --- interruptions -----------------------------------------------------------------------------------------------

#[test]
fn an_exception_ends_any_wait_once_and_that_of_a_close_only_a_use_of_its_io() {
    let (mut state, _script) = open();
    let (reader, sleeper) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    for waiter in [reader, sleeper] {
        match waiter == reader {
            true => drop(park_on(&mut state, waiter, 5)),
            false => block(&mut state, waiter),
        }
        assert!(!state.interrupt_use(waiter, 7, ERROR));
        assert!(state.interrupt(waiter, ERROR));
        assert!(!state.interrupt(waiter, OTHER_ERROR));
        assert_eq!(
            WaitStatus::Raise(Pending::Raise(ERROR)),
            state.take_wait_status(waiter)
        );
        end_wait(&mut state, waiter);
        assert!(!state.interrupt(waiter, ERROR));
        assert_eq!(None, state.take_pending(waiter));
    }
}

/// The VM interrupts the fiber's use of an IO, and means no other wait.
#[test]
fn an_exception_ends_the_wait_for_an_io_and_not_that_of_a_trap_handler_in_it() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    state.enter(fiber(1)).unwrap();
    park_on(&mut state, slot, 5);
    state.enter(fiber(1)).unwrap();
    block(&mut state, slot);
    assert!(state.interrupt(slot, ERROR));
    assert!(!state.interrupt(slot, OTHER_ERROR), "its turn comes");
    assert_eq!(WaitStatus::Waiting, state.take_wait_status(slot));
    end_wait(&mut state, slot);
    assert_eq!(
        WaitStatus::Raise(Pending::Raise(ERROR)),
        state.take_wait_status(slot)
    );
}

#[test]
fn a_woken_fiber_that_is_killed_unwinds_when_its_turn_comes() {
    let (mut state, script) = open();
    let slot = scheduled(&mut state, 1);
    park_on(&mut state, slot, 5);
    script.report(5, Ready::READABLE);
    state.poll_once().unwrap();
    assert_eq!(None, state.cancel(slot, Pending::Kill));
    assert_eq!(vec![slot], order(&mut state));
    assert_eq!(
        WaitStatus::Raise(Pending::Kill),
        state.take_wait_status(slot)
    );
    assert!(!state.fibers[slot].mark_killed());
    assert!(state.fibers[slot].mark_killed());
}

#[test]
fn a_parked_fiber_that_is_killed_is_woken_and_a_running_one_left_to_the_vm() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    assert_eq!(Some(fiber(1)), state.cancel(slot, Pending::Kill));
    block(&mut state, slot);
    assert_eq!(None, state.cancel(slot, Pending::Kill));
    assert_eq!(vec![slot], order(&mut state));
    assert_eq!(
        WaitStatus::Raise(Pending::Kill),
        state.take_wait_status(slot)
    );
}

#[test]
fn an_unblock_ends_a_block_and_nothing_else() {
    let (mut state, _script) = open();
    let (reader, sleeper) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    park_on(&mut state, reader, 5);
    block(&mut state, sleeper);
    assert_eq!(Unblocked::Dropped, state.unblock(fiber(1), Some(NIL)));
    assert_eq!(Unblocked::Woken, state.unblock(fiber(2), Some(NIL)));
    assert_eq!(
        Unblocked::NotParked(sleeper),
        state.unblock(fiber(2), Some(NIL))
    );
    assert_eq!(Unblocked::Dropped, state.unblock(fiber(3), Some(NIL)));
    assert_eq!(vec![sleeper], order(&mut state));
}

#[test]
fn a_permit_ends_the_next_block() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    state.fibers[slot].grant_permit();
    assert_eq!(None, state.begin_block(slot, false, None, None));
    assert_eq!(Some(None), state.begin_block(slot, false, None, None));
}

#[test]
fn a_block_that_ends_without_a_park_tells_of_its_unblock() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    block(&mut state, slot);
    assert!(!state.end_block(slot));
    block(&mut state, slot);
    assert_eq!(Unblocked::Woken, state.unblock(fiber(1), Some(NIL)));
    assert!(state.end_block(slot));
    assert!(order(&mut state).is_empty());
}

// --- timeouts ----------------------------------------------------------------------------------------------------

#[test]
fn of_several_expired_timeouts_the_outermost_wins() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    let outer = state.begin_timeout(slot, (ERROR, NIL), Some(Duration::ZERO));
    let inner = state.begin_timeout(slot, (OTHER_ERROR, NIL), Some(Duration::ZERO));
    block(&mut state, slot);
    state.poll_once().unwrap();
    assert_eq!(vec![slot], order(&mut state));
    assert_eq!(WaitStatus::TimedOut, state.take_wait_status(slot));
    assert_eq!(Some((ERROR, NIL)), state.take_expired_timeout(slot));
    end_wait(&mut state, slot);
    state.end_timeout(inner);
    state.end_timeout(outer);
    block(&mut state, slot);
    assert_eq!(WaitStatus::Waiting, state.take_wait_status(slot));
}

#[test]
fn a_timeout_whose_block_has_ended_raises_nothing() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    let timeout = state.begin_timeout(slot, (ERROR, NIL), Some(Duration::ZERO));
    state.end_timeout(timeout);
    block(&mut state, slot);
    state.poll_once().unwrap();
    assert_eq!(Next::Nothing, state.next_ready());
    assert_eq!(WaitStatus::Waiting, state.take_wait_status(slot));
}

#[test]
fn an_interruption_without_a_limit_is_fired_by_hand_and_not_after_its_block() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    let interruption = state.begin_timeout(slot, (ERROR, NIL), None);
    assert!(state.event_loop.reactor.as_ref().unwrap().timers() == 0);
    block(&mut state, slot);
    state.poll_once().unwrap();
    assert_eq!(Next::Nothing, state.next_ready());
    state.expire_timeout(interruption, true);
    assert_eq!(vec![slot], order(&mut state));
    assert_eq!(WaitStatus::TimedOut, state.take_wait_status(slot));
    assert_eq!(Some((ERROR, NIL)), state.take_expired_timeout(slot));
    end_wait(&mut state, slot);
    state.end_timeout(interruption);
    block(&mut state, slot);
    state.expire_timeout(interruption, true);
    assert_eq!(WaitStatus::Waiting, state.take_wait_status(slot));
}

#[test]
fn a_limit_is_taken_away_and_set_anew_until_it_has_expired() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    let timers = |state: &State| state.event_loop.reactor.as_ref().unwrap().timers();
    let timeout = state.begin_timeout(slot, (ERROR, NIL), Some(Duration::ZERO));
    state.limit_timeout(timeout, None);
    assert_eq!(0, timers(&state));
    block(&mut state, slot);
    state.poll_once().unwrap();
    assert_eq!(Next::Nothing, state.next_ready());
    state.limit_timeout(timeout, Some(Duration::ZERO));
    state.poll_once().unwrap();
    assert_eq!(vec![slot], order(&mut state));
    state.limit_timeout(timeout, Some(Duration::ZERO));
    assert_eq!(Some((ERROR, NIL)), state.take_expired_timeout(slot));
    end_wait(&mut state, slot);
    state.end_timeout(timeout);
    state.limit_timeout(timeout, Some(Duration::ZERO));
    assert_eq!(0, timers(&state));
}

#[test]
fn a_fiber_that_is_being_killed_may_not_be_killed_again() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    assert!(state.fibers[slot].may_be_killed());
    state.fibers[slot].mark_killed();
    assert!(!state.fibers[slot].may_be_killed());
}

#[test]
fn a_timeout_of_a_fiber_that_waits_for_an_enumerator_is_raised_from_outside() {
    let (mut state, _script) = open();
    let (slot, polling) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    state.begin_timeout(slot, (ERROR, NIL), Some(Duration::ZERO));
    state.poll_once().unwrap();
    assert_eq!(Some((slot, fiber(1))), state.next_indirect_timeout(polling));
    assert_eq!(None, state.next_indirect_timeout(polling));
    assert_eq!(Some((ERROR, NIL)), state.take_expired_timeout(slot));
}
