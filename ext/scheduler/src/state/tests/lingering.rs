//! Waits for a next request, which end by themselves after a while.

use std::{iter, time::Duration};

use reactor::{Interest, OwnerId};

use super::{ERROR, NIL, open, order, scheduled};
use crate::state::{
    State,
    fiber::Slot,
    wait_registration::{Registered, Watch},
};

const HOUR: Duration = Duration::from_secs(3600);

fn linger(state: &mut State, slot: Slot, limit: Duration) -> Registered {
    let descriptor = slot as i32 + 5;
    let watch = Watch {
        descriptor,
        owner_id: OwnerId(descriptor as u64),
        interest: Interest::READABLE,
    };
    let begun = state.begin_lingering(slot, watch, limit);
    let registered = begun.unwrap().unwrap();
    state.before_park(slot);
    registered
}

fn timers(state: &State) -> u64 {
    let rows = state.statistics();
    let timers = rows.iter().find(|(name, _)| *name == "timers");
    timers.unwrap().1
}

#[test]
fn any_number_of_lingering_fibers_have_one_timer() {
    let (mut state, _) = open();
    let slots: Vec<_> = (1..4).map(|number| scheduled(&mut state, number)).collect();
    let waits: Vec<_> = slots
        .iter()
        .map(|slot| linger(&mut state, *slot, HOUR))
        .collect();
    assert_eq!(1, timers(&state));
    for (slot, wait) in iter::zip(slots, waits) {
        state.end_readiness(wait);
        state.after_park(slot);
    }
    assert_eq!(1, timers(&state));
}

#[test]
fn a_fiber_that_lingers_in_vain_goes_on_and_no_other_one() {
    let (mut state, _) = open();
    let (first, second) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    linger(&mut state, first, Duration::ZERO);
    linger(&mut state, second, HOUR);
    state.poll_once().unwrap();
    assert_eq!(vec![first], order(&mut state));
    assert_eq!(1, timers(&state));
}

#[test]
fn a_short_limit_does_not_wait_for_a_long_one() {
    let (mut state, _) = open();
    let (long, short) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    linger(&mut state, long, HOUR);
    linger(&mut state, short, Duration::ZERO);
    state.poll_once().unwrap();
    assert_eq!(vec![short], order(&mut state));
    assert_eq!(1, timers(&state));
}

#[test]
fn a_later_wait_of_the_fiber_is_left_alone() {
    let (mut state, _) = open();
    let slot = scheduled(&mut state, 1);
    let wait = linger(&mut state, slot, Duration::ZERO);
    state.end_readiness(wait);
    state.after_park(slot);
    super::park_on(&mut state, slot, 9);
    state.poll_once().unwrap();
    assert!(order(&mut state).is_empty());
    assert_eq!(0, timers(&state));
}

#[test]
fn the_size_counts_lingering_waits_timeouts_and_a_trace() {
    let (mut state, _) = open();
    let slot = scheduled(&mut state, 1);
    let mut sizes = vec![state.size()];
    linger(&mut state, slot, HOUR);
    sizes.push(state.size());
    state.begin_timeout(slot, (ERROR, NIL), Some(HOUR));
    sizes.push(state.size());
    state.start_trace(1000);
    state.before_park(slot);
    sizes.push(state.size());
    assert!(sizes.is_sorted_by(|one, next| one < next), "{sizes:?}");
}
