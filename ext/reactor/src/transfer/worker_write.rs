//! Writes that only a blocking call can make: to a Windows pipe or console. A worker makes them with a copy of the bytes.

use std::sync::Arc;

use magnus::Error;
use reactor_scheduler::system::{errno::Errno, unpolled::BlockingWrite};

use crate::{
    control::hook_scope::HookScope, ruby::io_info::IoInfo, transfer::request::Transfer,
    wait::work::on_own_thread,
};

/// The most that is copied for a worker.
const PIECE: usize = 256 << 10;

/// Writes what remains of the buffer, at most `PIECE` bytes. An interrupted fiber does not learn how much was written.
pub fn write(
    scope: &HookScope,
    io: &IoInfo,
    transfer: &Transfer,
    done: usize,
) -> Result<Result<usize, Errno>, Error> {
    scope.yield_if_slice_spent()?;
    let mut write = Err(Errno::INVAL);
    let copy = |bytes: &[u8]| {
        write = BlockingWrite::new(io.descriptor, &bytes[..bytes.len().min(PIECE)]);
        Ok(0)
    };
    let (_, size) = transfer.call(done, |_| Ok(0), copy)?;
    let write = match write {
        Ok(write) if size > 0 => Arc::new(write),
        write => return Ok(write.map(|_| 0)),
    };
    let work = Arc::clone(&write);
    on_own_thread(scope, io, move || work.block(), || write.end())
}
