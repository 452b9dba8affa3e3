//! The whole state, on the core's scripted driver and without a VM.

use std::time::Duration;

use reactor::{Descriptor, Interest, OwnerId, Reactor};

use self::mock_driver::{Mock, Script};
use crate::state::{
    State,
    fiber::Slot,
    object_ref::ObjectRef,
    ready_queue::Next,
    wait_registration::{Registered, Watch},
};

mod collection;
#[path = "../../../../tests/support/mock_driver.rs"]
pub mod mock_driver;
mod nested_waits;
mod observation;
mod order;
mod unpolled;
mod waits;
mod watchers;

const ERROR: ObjectRef = ObjectRef::new(8);
const OTHER_ERROR: ObjectRef = ObjectRef::new(16);
const NIL: ObjectRef = ObjectRef::new(4);
const HOUR: Option<Duration> = Some(Duration::from_secs(3600));

fn open() -> (State, Script) {
    let (driver, script) = Mock::new();
    let mut state = State::default();
    assert!(
        state
            .event_loop
            .open(Reactor::with_driver(Box::new(driver)))
    );
    (state, script)
}

fn fiber(number: usize) -> ObjectRef {
    ObjectRef::new(0x1000 + 8 * number)
}

/// A running fiber created by the scheduler.
fn scheduled(state: &mut State, number: usize) -> Slot {
    state.add_fiber(fiber(number), NIL)
}

/// Parks the fiber until the descriptor is readable.
fn park_on(state: &mut State, slot: Slot, descriptor: Descriptor) -> Registered {
    let watch = Watch {
        descriptor,
        owner_id: OwnerId(descriptor as u64),
        interest: Interest::READABLE,
    };
    let registered = state.begin_readiness(slot, watch, None).unwrap().unwrap();
    state.before_park(slot);
    registered
}

/// Ends the fiber's innermost wait.
fn end_wait(state: &mut State, slot: Slot) {
    let wait = state.fibers.wait_token(slot);
    state.fibers.end_wait(wait);
}

/// Parks the fiber in `block` without a limit.
fn block(state: &mut State, slot: Slot) {
    assert_eq!(Some(None), state.begin_block(slot, false, None, None));
    state.before_park(slot);
}

/// The fiber or watcher that runs next. Makes polls that are due, because whether a poll is due depends on the machine.
fn next_turn(state: &mut State) -> Next {
    loop {
        match state.next_ready() {
            Next::Poll => state.poll_once().unwrap(),
            next => return next,
        }
    }
}

/// The numbers of the fibers, in the order in which they run.
fn order(state: &mut State) -> Vec<Slot> {
    let next = || match next_turn(state) {
        Next::Fiber(slot, _) => Some(slot),
        Next::Watcher(_) | Next::Poll | Next::Nothing => None,
    };
    std::iter::from_fn(next).collect()
}
