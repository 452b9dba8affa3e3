//! The fiber table: numbers, resumers, waits.

use reactor::Token;

use super::FiberTable;
use crate::state::{
    fiber::FiberRecord,
    object_ref::ObjectRef,
    wait::{Purpose, WakeCause},
};

mod strands;

const READINESS: Purpose = Purpose::Readiness {
    io_number: 5,
    events: 1,
};
const BLOCK: Purpose = Purpose::ANY_UNBLOCK;
const UNLIMITED: Purpose = Purpose::Block {
    blocker: 40,
    sleeps: false,
    has_limit: false,
};

fn fiber(number: usize) -> ObjectRef {
    ObjectRef::new(0x1000 + 8 * number)
}

#[test]
fn a_fiber_is_found_by_its_address_until_it_is_removed() {
    let mut table = FiberTable::default();
    let (first, second) = (table.insert(fiber(1), true), table.insert(fiber(2), false));
    assert_eq!(Some(first), table.find(fiber(1)));
    assert_eq!(Some(first), table.find(fiber(1)));
    assert_eq!(Some(second), table.find(fiber(2)));
    assert_eq!(1, table.live());
    table.remove(second);
    assert_eq!(None, table.find(fiber(2)));
    table.remove(first);
    assert_eq!(0, table.live());
}

#[test]
fn a_token_of_an_earlier_fiber_in_the_slot_is_stale() {
    let mut table = FiberTable::default();
    let slot = table.insert(fiber(1), true);
    let token = table.begin_wait(slot, READINESS);
    table.remove(slot);
    assert_eq!(slot, table.insert(fiber(2), true));
    table.begin_wait(slot, READINESS);
    assert!(!table.wake(token, WakeCause::READABLE));
    assert!(!table.wake(Token::new(slot + 1, 0), WakeCause::READABLE));
}

#[test]
fn a_fiber_of_ruby_code_keeps_its_slot_while_it_is_inside_a_hook() {
    let mut table = FiberTable::default();
    let slot = table.insert(fiber(1), false);
    table.enter_hook(slot);
    table.enter_hook(slot);
    table.leave_hook(slot);
    assert!(table.get(slot).is_some());
    table.leave_hook(slot);
    assert!(table.get(slot).is_none());
}

#[test]
fn only_waits_without_a_limit_count_as_waits_for_an_unblock_only() {
    let mut table = FiberTable::default();
    let (first, second) = (table.insert(fiber(1), true), table.insert(fiber(2), true));
    let outer = table.begin_wait(first, UNLIMITED);
    assert!(!table.all_wait_for_unblock_only());
    table.begin_wait(second, UNLIMITED);
    assert!(table.all_wait_for_unblock_only());
    let handlers = table.begin_wait(second, READINESS); // during the other wait
    assert!(!table.all_wait_for_unblock_only());
    table.end_wait(handlers);
    assert!(table.all_wait_for_unblock_only());
    table.remove(second);
    assert!(table.all_wait_for_unblock_only());
    table.end_wait(outer);
    assert!(!table.all_wait_for_unblock_only());
}

#[test]
fn a_fiber_that_waits_for_what_a_trap_handler_has_resumed_gets_no_control() {
    let mut fibers = FiberTable::default();
    let slot = fibers.insert(ObjectRef::new(0x1000), true);
    let enumerator = fibers.insert(ObjectRef::new(0x2000), false);
    let wait = fibers.begin_wait(slot, BLOCK);
    fibers.set_resumer(enumerator, Some(fibers.id(slot)));
    let inner = fibers.begin_wait(enumerator, BLOCK);
    assert!(fibers.wake(wait, WakeCause::Elapsed));
    assert_eq!(None, fibers.take_queued(wait));
    assert!(fibers.waits_for_resumed(slot));
    fibers.end_wait(inner);
    assert!(!fibers.waits_for_resumed(slot));
    assert!(fibers.may_run(slot));
}

#[test]
fn a_fiber_gets_control_if_what_a_trap_handler_has_resumed_waits_no_more() {
    let mut fibers = FiberTable::default();
    let fiber = ObjectRef::new(0x1000);
    let slot = fibers.insert(fiber, true);
    let enumerator = fibers.insert(ObjectRef::new(0x2000), false);
    fibers.set_resumer(enumerator, Some(fibers.id(slot)));
    let wait = fibers.begin_wait(slot, BLOCK);
    fibers.set_resumer(enumerator, None);
    assert!(fibers.wake(wait, WakeCause::Elapsed));
    assert_eq!(Some(fiber), fibers.take_queued(wait));
}

#[test]
fn the_record_of_a_fiber_has_128_bytes() {
    assert_eq!(128, size_of::<FiberRecord>());
}
