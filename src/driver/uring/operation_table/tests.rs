use std::{
    io::{self, Read},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use super::{super::event_fd, OperationTable, Ring, Stage};
use crate::{driver::Operations, operation::Operation, token::Token};

/// None where io_uring is unavailable.
fn table() -> Option<(OperationTable, OwnedFd)> {
    let event_fd = event_fd().unwrap();
    let ring = Ring::open(event_fd.as_raw_fd()).ok()?;
    Some((OperationTable::new(ring), event_fd))
}

#[test]
fn an_operation_that_is_abandoned_twice_keeps_its_buffer_until_the_kernel_has_ended_it() {
    let Some((mut table, _event_fd)) = table() else {
        return;
    };
    let (mut near, far) = UnixStream::pair().unwrap();
    let token = Token::new(1, 1);
    let send = Operation::Send(b"kept");
    let id = table.start(far.as_raw_fd(), send, token).unwrap();
    // As if the kernel had accepted it and not completed it.
    table.fill();
    table.slots[id.slot() as usize].orphan();
    table.abandon(id);
    let stage = table.slots[id.slot() as usize].stage();
    assert_eq!((stage, table.in_flight), (Stage::Orphaned, 1));
    while table.in_flight > 0 {
        table.push_on(1).unwrap();
    }
    let mut bytes = [0; 4];
    near.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"kept");
    table.abandon(id);
    assert!(table.slots.is_empty());
}

#[test]
fn a_read_for_which_there_is_no_memory_is_refused_and_leaves_no_operation() {
    let Some((mut table, _event_fd)) = table() else {
        return;
    };
    let (near, _far) = UnixStream::pair().unwrap();
    let token = Token::new(1, 1);
    let read = Operation::Read(0, usize::MAX);
    let error = table.start(near.as_raw_fd(), read, token).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    assert!(table.is_quiet() && table.slots.is_empty());
    assert!(
        table
            .start(near.as_raw_fd(), Operation::Send(b"x"), token)
            .is_ok()
    );
}
