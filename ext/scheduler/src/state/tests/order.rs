//! Which fiber runs next, and which fiber an error reaches.

use std::time::Duration;

use super::{ERROR, NIL, OTHER_ERROR, block, end_wait, fiber, open, order, scheduled};
use crate::state::{
    State,
    fiber::Slot,
    ready_queue::Next,
    wait::{Pending, WaitStatus, WakeCause},
};

// --- order -------------------------------------------------------------------------------------------------------

#[test]
fn an_expired_sleeper_runs_before_ready_fibers() {
    let (mut state, _script) = open();
    let [first, second, sleeper] = [1, 2, 3].map(|number| scheduled(&mut state, number));
    let limit = Some(Duration::ZERO);
    state.begin_block(sleeper, true, limit, None).unwrap();
    state.yield_now(first);
    state.yield_now(second);
    state.poll_once().unwrap();
    assert_eq!(vec![sleeper, first, second], order(&mut state));
    assert_eq!(
        WaitStatus::Ended(WakeCause::Elapsed),
        state.take_wait_status(sleeper)
    );
}

#[test]
fn a_fiber_of_low_priority_is_not_starved() {
    let (mut state, _script) = open();
    let (low, busy) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    state.yield_low_priority(low);
    assert!(state.is_idle());
    let mut polls = 0;
    while state.is_queued(low) {
        state.yield_now(busy);
        state.poll_once().unwrap();
        while let Next::Fiber(slot, _) = state.next_ready() {
            end_wait(&mut state, slot);
            if slot == busy {
                break;
            }
        }
        polls += 1;
        assert!(polls < 20);
    }
    assert!(polls > 1, "it ran ahead of a ready fiber");
}

#[test]
fn only_a_fiber_with_a_slice_for_itself_gets_low_priority() {
    let (mut state, _script) = open();
    let [light, heavy, other] = [1, 2, 3].map(|number| scheduled(&mut state, number));
    let resume = |state: &mut State, slot| {
        assert_eq!(
            Next::Fiber(slot, fiber(slot as usize + 1)),
            state.next_ready()
        );
        end_wait(state, slot);
    };
    state.yield_now(light);
    state.yield_now(heavy);
    state.poll_once().unwrap();
    resume(&mut state, light);
    resume(&mut state, heavy);
    state.yield_slice(heavy); // both spent the time
    state.yield_now(other);
    resume(&mut state, heavy);
    state.yield_now(light);
    state.poll_once().unwrap();
    resume(&mut state, other);
    state.yield_slice(other); // it was alone
    resume(&mut state, light);
    resume(&mut state, other);
    state.yield_slice(other); // it was not, but had low priority
    state.yield_now(light);
    assert_eq!(vec![light, other], order(&mut state));
}

/// Where no clock tells that the last poll was long ago.
#[test]
fn in_virtual_time_a_poll_is_due_after_a_number_of_resumes() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    assert!(state.event_loop.freeze_clock(Duration::ZERO));
    state.poll_once().unwrap();
    let mut resumes = 0;
    loop {
        state.yield_now(slot);
        match state.next_ready() {
            Next::Fiber(..) => resumes += 1,
            next => break assert_eq!(Next::Poll, next),
        }
    }
    assert!(resumes <= 64, "{resumes}");
    state.poll_once().unwrap();
    assert_eq!(Next::Fiber(slot, fiber(1)), state.next_ready());
}

#[test]
fn of_fibers_that_yield_to_one_another_one_polls_in_each_round() {
    let (mut state, _script) = open();
    let [first, second, third] = [1, 2, 3].map(|number| scheduled(&mut state, number));
    state.yield_now(second);
    state.yield_now(third);
    state.poll_once().unwrap();
    let mut running = first;
    let mut polled = Vec::new();
    for _ in 0..9 {
        let polls = state.yields_with_poll();
        state.yield_now(running);
        if polls {
            polled.push(running);
            state.poll_once().unwrap();
        }
        let Next::Fiber(next, _) = state.next_ready() else {
            panic!("none is ready");
        };
        end_wait(&mut state, next);
        running = next;
    }
    assert_eq!(vec![third; 3], polled);
}

#[test]
fn a_fiber_that_yields_polls_if_something_is_to_be_raised_and_in_virtual_time() {
    let (mut state, _script) = open();
    let ready = scheduled(&mut state, 1);
    assert!(state.yields_with_poll());
    state.yield_now(ready);
    state.poll_once().unwrap();
    assert!(!state.yields_with_poll());
    state.push_proxy_raise([NIL, ERROR]);
    assert!(state.yields_with_poll());
    state.pop_proxy_raise();
    assert!(!state.yields_with_poll());
    assert!(state.event_loop.freeze_clock(Duration::ZERO));
    assert!(state.yields_with_poll());
}

// --- control -----------------------------------------------------------------------------------------------------

#[test]
fn a_starter_runs_before_all_others_when_the_started_fiber_parks() {
    let (mut state, _script) = open();
    let root = state.enter(fiber(0)).unwrap().slot;
    let ready = scheduled(&mut state, 1);
    state.yield_now(ready);
    let started = scheduled(&mut state, 2);
    let start = state.begin_start(root, started);
    assert!(!start.is_nested);
    assert_eq!(Some(fiber(2)), state.running_fiber());
    block(&mut state, started);
    assert_eq!(vec![root, ready], order(&mut state));
    state.end_start(start);
    state.leave(root);
    assert_eq!(None, state.fibers.find(fiber(0)));
}

#[test]
fn an_error_before_the_first_park_belongs_to_the_starter() {
    let (mut state, _script) = open();
    let root = state.enter(fiber(0)).unwrap().slot;
    let started = scheduled(&mut state, 1);
    state.begin_start(root, started);
    assert!(state.raise_in_spawner(fiber(1), ERROR));
    assert_eq!(Some(Pending::Raise(ERROR)), state.take_pending(root));
}

#[test]
fn an_error_before_the_first_park_does_not_replace_the_kill_of_the_starter() {
    let (mut state, _script) = open();
    let root = state.enter(fiber(0)).unwrap().slot;
    let started = scheduled(&mut state, 1);
    state.begin_start(root, started);
    assert_eq!(None, state.cancel(root, Pending::Kill));
    assert!(state.raise_in_spawner(fiber(1), ERROR));
    assert_eq!(Some(Pending::Raise(ERROR)), state.take_pending(root));
    assert_eq!(Some(Pending::Kill), state.take_pending(root));
}

#[test]
fn a_later_error_is_kept_and_a_fatal_one_raised_in_the_root_fiber() {
    let (mut state, _script) = open();
    let root = state.enter(fiber(0)).unwrap().slot;
    let (first, second) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    let outer = state.begin_drain(root);
    assert!(!state.raise_in_spawner(fiber(1), ERROR));
    state.keep_error(ERROR, true);
    state.keep_error(OTHER_ERROR, false);
    assert_eq!(None, state.take_pending(first));
    assert_eq!(None, state.take_pending(second));
    assert_eq!(Some(Pending::Raise(OTHER_ERROR)), state.take_pending(root));
    assert_eq!(None, state.end_drain(outer, false));
    assert_eq!(Some(ERROR), state.end_drain(outer, true));
}

#[test]
fn a_fiber_that_gave_control_away_without_parking_is_queued() {
    let (mut state, _script) = open();
    let (first, second) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    state.before_switch(second);
    state.on_resumed(first);
    assert_eq!(vec![second], order(&mut state));
    state.before_switch(second);
    state.end_fiber(fiber(2));
    state.on_resumed(first);
    assert_eq!(Next::Nothing, state.next_ready());
}

// --- sleep -------------------------------------------------------------------------------------------------------

#[test]
fn the_root_fiber_can_sleep_for_another_one_if_no_fiber_can_run() {
    let (mut state, _script) = open();
    let root = state.enter(fiber(0)).unwrap().slot;
    let (first, second) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    assert_eq!(None, state.root_during_sleep(first));
    state.begin_drain(root);
    block(&mut state, first);
    block(&mut state, second);
    assert_eq!(Some((root, fiber(0))), state.root_during_sleep(first));
    assert_eq!(None, state.root_during_sleep(root));
    state.unblock(fiber(2), Some(NIL));
    assert_eq!(None, state.root_during_sleep(first));
}

#[test]
fn a_fiber_is_known_to_run_trap_handlers_until_it_ends() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    assert!(!state.fibers[slot].runs_trap_handlers);
    state.fibers[slot].runs_trap_handlers = true;
    assert!(state.fibers[slot].runs_trap_handlers);
    state.end_fiber(fiber(1));
    assert_eq!(slot, scheduled(&mut state, 2));
    assert!(!state.fibers[slot].runs_trap_handlers);
}

#[test]
fn a_fiber_waits_for_a_parked_one_that_it_has_resumed() {
    let (mut state, _script) = open();
    let resumer = scheduled(&mut state, 1);
    state.enter(fiber(1)).unwrap();
    let resumed = state.enter(fiber(2)).unwrap().slot;
    assert!(!state.fibers.waits_for_parked(resumer));
    block(&mut state, resumed);
    assert!(state.fibers.waits_for_parked(resumer));
    assert!(!state.fibers.waits_for_parked(resumed));
}

/// A finalizer or trap handler waited in a polling fiber whose wait has ended by the time it gives up control: to raise in
/// the root fiber, to let the root fiber run pending interrupts, or because the VM switches to another fiber.
#[test]
fn a_fiber_that_gives_control_away_though_its_wait_is_over_gets_it_again() {
    let ways: [fn(&mut State, Slot, Slot); 3] = [
        |state, _, slot| assert!(state.raise_in_root(slot, ERROR).is_some()),
        |state, _, slot| assert!(state.leave_interrupts_to_root(slot).is_some()),
        |state, root, _| state.on_resumed(root),
    ];
    for give_control_away in ways {
        let (mut state, _script) = open();
        let root = state.enter(fiber(0)).unwrap().slot;
        state.begin_drain(root);
        let slot = scheduled(&mut state, 1);
        state.enter(fiber(1)).unwrap();
        state.yield_now(slot);
        let handlers = state.fibers.begin_turn(slot);
        state.fibers.end_wait(handlers);
        assert!(state.fibers.may_run(slot) && !state.is_queued(slot));
        give_control_away(&mut state, root, slot);
        assert_eq!(vec![slot], order(&mut state));
    }
}
