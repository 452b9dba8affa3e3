//! Sends through the driver (io_uring): the bytes that several fibers write to stream sockets in one turn reach the
//! kernel with one system call.
//!
//! A send is queued only if another fiber is ready to run, or other sends are already queued. A lone fiber makes its system
//! call itself, at once. The kernel is asked not to block, so it has answered by the end of the turn: no send is in
//! progress while a fiber unwinds. The bytes are copied into the driver's memory.
//!
//! Receives are always made directly. For measurements, including of other uses of the ring, see `bench/NOTES.md`, "What
//! io_uring does, and what it does not".

use magnus::Error;
use reactor::OperationId;
use reactor_scheduler::system::errno::Errno;

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::io_info::IoInfo,
    transfer::request::{Attempted, Direction, Transfer},
};

/// Larger writes are made directly: they would be copied once more, and one system call is cheaper than that copy
/// (`bench/NOTES.md`, "What io_uring does, and what it does not").
const MAX_QUEUED: usize = 8 << 10;

/// Sends the rest of the buffer if another fiber can share the system call. `None` if the caller must make it.
///
/// If the fiber is interrupted or killed meanwhile, that takes effect here if nothing was sent. Otherwise it does in the
/// fiber's next wait, because the caller must learn how much was sent: it would send the bytes again.
pub fn send(
    scope: &HookScope,
    io: &IoInfo,
    transfer: &Transfer,
    done: usize,
) -> Result<Option<Attempted>, Error> {
    let scheduler = scope.scheduler;
    if transfer.direction == Direction::Read || !scheduler.state_mut().should_batch() {
        return Ok(None);
    }
    let is_stream = io.is_ruby_socket && io.kind.is_stream_socket();
    let mut started = None;
    let start = |bytes: &[u8]| {
        if is_stream && bytes.len() <= MAX_QUEUED {
            let mut state = scheduler.state_mut();
            started = state.start_send(scope.slot, io.polled(), bytes);
        }
        Ok(0)
    };
    let (_, size) = transfer.call(done, |_| Ok(0), start)?;
    match started {
        Some(id) => finish(scope, id, size),
        None => {
            // Sends that were queued earlier go first.
            scheduler.state_mut().flush_sends();
            Ok(None)
        }
    }
}

/// Parks until the send has ended.
fn finish(scope: &HookScope, id: OperationId, size: usize) -> Result<Option<Attempted>, Error> {
    let scheduler = scope.scheduler;
    let parked = scheduler.park_through(scope.slot);
    let outcome = scheduler.state_mut().finish_send(id);
    match (parked, outcome) {
        (Ok(_), Some(answer)) => Ok(Some((answer.map_err(Errno::from), size))),
        // The send was withdrawn before the kernel saw it, because there is something to raise.
        (Ok(_), None) => scheduler.poll_wait(scope.slot).map(|_| None),
        (Err(error), Some(Ok(count))) if count > 0 => {
            Scheduler::keep_for_next_wait(scope, error)?;
            Ok(Some((Ok(count), size)))
        }
        (Err(error), _) => Err(error),
    }
}
