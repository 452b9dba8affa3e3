//! Operations on files that the driver carries out by itself (io_uring). They may take long, so the fiber is parked, as for
//! work of the pool.
//!
//! `docs/measured.md` says what else the ring could do, and why it does not.

use magnus::Error;
use reactor::{Operation, OperationId};
use rustix::io::Errno;

use crate::{control::hook_scope::HookScope, ruby::io_facts::IoFacts, wait::work::Interrupted};

/// An operation on a file that is over, and what was raised in the fiber meanwhile.
pub struct EndedOperation {
    id: OperationId,
    raised: Option<Error>,
}

impl EndedOperation {
    /// The outcome; `into` gets what was read. What was raised in the fiber is raised here.
    pub fn take(self, scope: &HookScope, into: &mut [u8]) -> Result<Result<usize, Errno>, Error> {
        let mut state = scope.scheduler.state_mut();
        let outcome = state.take_outcome(self.id, into);
        drop(state);
        let outcome = outcome.unwrap_or(Err(Errno::CANCELED));
        self.raised.map_or(Ok(outcome), Err)
    }

    /// The same into memory that may have gone meanwhile: `with_memory` passes it to its closure, or fails.
    pub fn take_with(
        self,
        scope: &HookScope,
        with_memory: impl FnOnce(&mut dyn FnMut(&mut [u8])) -> Result<(), Error>,
    ) -> Result<Result<usize, Errno>, Error> {
        let mut taken = None;
        let given = with_memory(&mut |bytes| {
            taken = scope.scheduler.state_mut().take_outcome(self.id, bytes);
        });
        if let Some(operations) = scope.scheduler.state_mut().operations() {
            operations.abandon(self.id);
        }
        given?;
        let outcome = taken.unwrap_or(Err(Errno::INVAL));
        self.raised.map_or(Ok(outcome), Err)
    }
}

/// Begins to have the driver carry out an operation on a file; [`wait_for_end`] follows. `None` if it does not do that.
pub fn begin(scope: &HookScope, io: &IoFacts, operation: Operation<'_>) -> Option<OperationId> {
    let mut state = scope.scheduler.state_mut();
    state.start_file_operation(scope.slot, io.descriptor, io.io_number(), operation)
}

/// Parks until the operation is over. An interrupted fiber leaves an operation that only reads, and waits for one that
/// changes something.
pub fn wait_for_end(
    scope: &HookScope,
    io: &IoFacts,
    id: OperationId,
    interrupted: Interrupted,
) -> Result<EndedOperation, Error> {
    let io_number = io.io_number();
    let ended = wait_for_completion(scope, io_number, id, interrupted);
    scope.scheduler.unpin((io_number, scope.slot));
    ended
}

fn wait_for_completion(
    scope: &HookScope,
    io_number: u64,
    id: OperationId,
    interrupted: Interrupted,
) -> Result<EndedOperation, Error> {
    let mut raised = None;
    loop {
        let parked = scope.scheduler.park(scope.slot);
        let mut state = scope.scheduler.state_mut();
        if let Err(error) = parked {
            if let Some(operations) = state.operations() {
                if interrupted == Interrupted::Leaves || operations.withdraw(id) {
                    operations.abandon(id);
                    return Err(error);
                }
                // An unwinding without an exception (a kill, a throw) cannot be kept while other Ruby code runs.
                if error.value().is_none() {
                    _ = operations.wait(id);
                }
            }
            raised = Some(error);
        }
        if !state.wait_on_operation(scope.slot, io_number, id) {
            return Ok(EndedOperation { id, raised });
        }
    }
}
