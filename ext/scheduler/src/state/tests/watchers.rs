//! Waits without a fiber: what makes them due, what ends them, and the order in which their fibers start.

use std::{iter, time::Duration};

use reactor::{Descriptor, Interest, OwnerId, Ready, Token};

use super::{HOUR, block, end_wait, fiber, next_turn, open, park_on, scheduled};
use crate::state::{
    State,
    object_ref::ObjectRef,
    ready_queue::Next,
    wait::{WaitHook, WaitStatus},
    wait_registration::Watch,
    watchers::{DueWatcher, NewWatcher},
};

const READABLE: Option<Interest> = Some(Interest::READABLE);

fn object(number: usize) -> ObjectRef {
    ObjectRef::new(0x9000 + 8 * number)
}

fn io(number: usize) -> ObjectRef {
    ObjectRef::new(0xa000 + 8 * number)
}

/// A watcher for the readability of a descriptor.
fn new(number: usize, descriptor: Descriptor) -> NewWatcher {
    NewWatcher {
        object: object(number),
        io: io(number),
        watch: Watch {
            descriptor,
            owner_id: OwnerId(descriptor as u64),
            interest: Interest::READABLE,
        },
        limit: None,
        is_transient: false,
        is_buffered: false,
    }
}

fn due(number: usize, ready: Option<Interest>) -> DueWatcher {
    DueWatcher {
        object: object(number),
        io: io(number),
        ready,
    }
}

fn watch(state: &mut State, new: NewWatcher) -> Token {
    state.begin_watcher(new).unwrap().token
}

/// The objects of the watchers and fibers that run, in order.
fn turns(state: &mut State) -> Vec<ObjectRef> {
    iter::from_fn(|| match next_turn(state) {
        Next::Watcher(token) => Some(state.take_due_watcher(token).unwrap().object),
        Next::Fiber(_, fiber) => Some(fiber),
        Next::Poll | Next::Nothing => None,
    })
    .collect()
}

#[test]
fn readiness_makes_a_watcher_due_once() {
    let (mut state, script) = open();
    let token = watch(&mut state, new(1, 5));
    state.poll_once().unwrap();
    assert_eq!(Next::Nothing, state.next_ready());
    assert!(!state.is_drained());
    script.report(5, Ready::READABLE);
    state.poll_once().unwrap();
    assert!(state.has_ready_fiber());
    assert_eq!(Next::Watcher(token), state.next_ready());
    assert_eq!(Some(due(1, READABLE)), state.take_due_watcher(token));
    assert_eq!(None, state.take_due_watcher(token));
    script.report(5, Ready::READABLE);
    state.poll_once().unwrap();
    assert_eq!(Next::Nothing, state.next_ready());
    assert!(state.is_drained() && state.watcher_count() == 0);
}

#[test]
fn a_watcher_whose_io_is_closed_is_due_once() {
    let (mut state, script) = open();
    let token = watch(&mut state, new(1, 5));
    state.close_watcher(token);
    state.close_watcher(token);
    script.report(5, Ready::READABLE);
    state.poll_once().unwrap();
    assert_eq!([object(1)][..], turns(&mut state));
    assert!(state.is_drained());
}

#[test]
fn watchers_and_fibers_take_their_turns_in_the_order_of_their_events() {
    let (mut state, script) = open();
    let slot = scheduled(&mut state, 1);
    watch(&mut state, new(1, 5));
    park_on(&mut state, slot, 5);
    watch(&mut state, new(2, 5));
    watch(&mut state, new(3, 6));
    script.report(6, Ready::READABLE);
    script.report(5, Ready::READABLE);
    state.poll_once().unwrap();
    let expected = [object(3), object(1), fiber(1), object(2)];
    assert_eq!(expected[..], turns(&mut state));
}

/// A waiting fiber starts a watcher's fiber. Meanwhile a finalizer yields in the waiting fiber, and the wait ends.
#[test]
fn a_fiber_whose_wait_ends_while_it_starts_a_watcher_gets_control_again() {
    for is_yield in [false, true] {
        let (mut state, script) = open();
        let slot = scheduled(&mut state, 1);
        state.enter(fiber(1)).unwrap();
        match is_yield {
            true => drop(state.yield_low_priority(slot)),
            false => drop(park_on(&mut state, slot, 6)),
        }
        watch(&mut state, new(1, 5));
        script.report(5, Ready::READABLE);
        state.poll_once().unwrap();
        let Next::Watcher(token) = next_turn(&mut state) else {
            panic!("no watcher is due");
        };
        state.take_due_watcher(token).unwrap();
        state.enter(fiber(1)).unwrap();
        state.yield_now(slot);
        script.report(6, Ready::READABLE);
        state.poll_once().unwrap();
        assert_eq!(Next::Fiber(slot, fiber(1)), next_turn(&mut state));
        end_wait(&mut state, slot);
        state.leave(slot);
        state.add_fiber_of_watcher(slot, fiber(2), super::NIL);
        state.end_fiber(fiber(2));
        assert_eq!(Next::Fiber(slot, fiber(1)), next_turn(&mut state));
        assert!(matches!(state.take_wait_status(slot), WaitStatus::Ended(_)));
    }
}

#[test]
fn buffered_bytes_make_a_watcher_due_without_the_kernel() {
    let (mut state, _) = open();
    let first = scheduled(&mut state, 1);
    state.yield_now(first);
    let is_buffered = true;
    watch(
        &mut state,
        NewWatcher {
            is_buffered,
            ..new(1, 5)
        },
    );
    assert_eq!([fiber(1), object(1)][..], turns(&mut state));
}

#[test]
fn a_watcher_whose_time_is_up_has_no_events() {
    let (mut state, _) = open();
    let limit = Some(Duration::ZERO);
    let token = watch(&mut state, NewWatcher { limit, ..new(1, 5) });
    let later = watch(
        &mut state,
        NewWatcher {
            limit: HOUR,
            ..new(2, 6)
        },
    );
    state.poll_once().unwrap();
    assert_eq!(Next::Watcher(token), state.next_ready());
    assert_eq!(Some(due(1, None)), state.take_due_watcher(token));
    assert_eq!(None, state.take_due_watcher(later));
    assert_eq!(Some(object(2)), state.end_watcher(later));
    assert_eq!(0, state.event_loop.reactor.as_ref().unwrap().timers());
}

#[test]
fn readiness_counts_even_if_the_time_is_up_as_well() {
    let (mut state, script) = open();
    let limit = Some(Duration::ZERO);
    let token = watch(&mut state, NewWatcher { limit, ..new(1, 5) });
    script.report(5, Ready::READABLE);
    state.poll_once().unwrap();
    assert_eq!(Some(due(1, READABLE)), state.take_due_watcher(token));
    assert_eq!(0, state.event_loop.reactor.as_ref().unwrap().timers());
}

#[test]
fn a_cancelled_watcher_has_no_turn() {
    let (mut state, script) = open();
    let waiting = watch(&mut state, new(1, 5));
    let due = watch(&mut state, new(2, 6));
    script.report(6, Ready::READABLE);
    state.poll_once().unwrap();
    assert_eq!(Some(object(2)), state.end_watcher(due));
    assert_eq!(Some(object(1)), state.end_watcher(waiting));
    assert_eq!(None, state.end_watcher(waiting));
    script.report(5, Ready::READABLE);
    state.poll_once().unwrap();
    assert!(turns(&mut state).is_empty());
    assert!(!state.has_ready_fiber());
}

#[test]
fn closing_an_io_object_ends_the_watchers_of_this_object_only() {
    let (mut state, script) = open();
    watch(&mut state, new(1, 5));
    let mut other = new(2, 5);
    other.watch.owner_id = OwnerId(77);
    watch(&mut state, other);
    watch(&mut state, new(3, 5));
    let of_it = state.watchers_of(5, 5).into_iter();
    let ended = of_it.map(|token| state.end_watcher(token));
    assert_eq!(
        [Some(object(1)), Some(object(3))][..],
        ended.collect::<Vec<_>>()
    );
    script.report(5, Ready::READABLE);
    state.poll_once().unwrap();
    assert!(state.watchers_of(5, 77).is_empty(), "it waits no more");
    let due = state.watchers_that(|watcher| watcher.io_number == 77);
    assert_eq!(1, due.len());
    assert_eq!(Some(object(2)), state.end_watcher(due[0]));
    assert!(turns(&mut state).is_empty());
}

#[test]
fn a_transient_watcher_keeps_nothing_going() {
    let (mut state, _) = open();
    let is_transient = true;
    let token = watch(
        &mut state,
        NewWatcher {
            is_transient,
            ..new(1, 5)
        },
    );
    assert!(state.is_drained());
    assert_eq!(1, state.watcher_count());
    assert_eq!(vec![token], state.watchers_that(|_| true));
    assert_eq!(Some(object(1)), state.end_watcher(token));
    assert_eq!(None, state.end_watcher(token));
}

#[test]
fn a_watcher_and_its_io_are_marked_while_it_waits_and_it_counts_as_a_wait_for_readiness() {
    let (mut state, _) = open();
    let token = watch(&mut state, new(1, 5));
    let marked = |state: &State| {
        let mut others = Vec::new();
        state.for_each_object(|kept| others.push(kept));
        (state.watchers().collect::<Vec<_>>(), others)
    };
    assert_eq!((vec![object(1)], vec![io(1)]), marked(&state));
    assert_eq!(vec![WaitHook::Io], state.wait_hooks().collect::<Vec<_>>());
    assert!(state.statistics().contains(&("watchers", 1)));
    state.end_watcher(token);
    assert_eq!((vec![], vec![]), marked(&state));
    assert_eq!(0, state.wait_hooks().count());
}

#[test]
fn there_is_no_deadlock_while_a_watcher_waits() {
    let (mut state, _) = open();
    let slot = scheduled(&mut state, 1);
    block(&mut state, slot);
    let token = watch(&mut state, new(1, 5));
    drop(state.begin_sleep(slot, None).unwrap());
    state.end_sleep();
    assert!(!state.may_be_deadlocked());
    state.end_watcher(token);
    drop(state.begin_sleep(slot, None).unwrap());
    state.end_sleep();
    assert!(state.may_be_deadlocked());
}
