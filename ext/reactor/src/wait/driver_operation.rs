//! Operations on files that the driver carries out by itself (io_uring). They may take long, so the fiber is parked, as for
//! work of the pool.
//!
//! `docs/measured.md` says what else the ring could do, and why it does not.

use magnus::Error;
use reactor::{Operation, OperationId};
use rustix::io::Errno;

use crate::{
    control::hook_scope::HookScope,
    ruby::{error::is_unwinding, io_facts::IoFacts},
};

/// Parks until the operation on a file is over: its outcome, without what it has read. `None`, and nothing done, if the driver does not do that. An
/// interrupted fiber takes back an operation that the kernel has not seen, and waits for the end of any other.
pub fn carry_out(
    scope: &HookScope,
    io: &IoFacts,
    operation: Operation<'_>,
) -> Result<Option<Result<usize, Errno>>, Error> {
    let (scheduler, io_number) = (scope.scheduler, io.io_number());
    let begun =
        scheduler
            .state_mut()
            .start_file_operation(scope.slot, io.descriptor, io_number, operation);
    let Some(id) = begun else {
        return Ok(None);
    };
    let ended = wait_for_end(scope, io_number, id);
    scheduler.unpin((io_number, scope.slot));
    ended.map(Some)
}

fn wait_for_end(
    scope: &HookScope,
    io_number: u64,
    id: OperationId,
) -> Result<Result<usize, Errno>, Error> {
    let mut raised = None;
    loop {
        let parked = scope.scheduler.park(scope.slot);
        let mut state = scope.scheduler.state_mut();
        if let Err(error) = parked {
            if let Some(operations) = state.operations() {
                if operations.withdraw(id) {
                    operations.abandon(id);
                    return Err(error);
                }
                // An unwinding without an exception (a kill, a throw) cannot be kept while other Ruby code runs.
                if is_unwinding(&error) {
                    _ = operations.wait(id);
                }
            }
            raised = Some(error);
        }
        if !state.wait_on_operation(scope.slot, io_number, id) {
            let outcome = state.take_outcome(id, &mut []);
            let outcome = outcome.unwrap_or(Err(Errno::CANCELED));
            return raised.map_or(Ok(outcome), Err);
        }
    }
}
