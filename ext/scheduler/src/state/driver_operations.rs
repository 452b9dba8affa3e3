//! Sends and file operations that the driver carries out by itself (io_uring).

use reactor::{Operation, OperationId, Operations, Token};
use rustix::io::Errno;

use crate::state::{State, fiber::Slot, send_batching::MAX_READY, wait::Purpose};

/// The progress of an operation when its fiber gets control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is over, and its outcome can be taken.
    Completed,
    /// It goes on, and so does a further wait for it.
    Pending,
}

impl State {
    fn operations(&mut self) -> Option<&mut dyn Operations> {
        self.event_loop.reactor.as_mut()?.operations()
    }

    fn start(
        &mut self,
        descriptor: i32,
        operation: Operation<'_>,
        token: Token,
    ) -> Option<OperationId> {
        let operations = self.operations()?;
        operations.start(descriptor, operation, token).ok()
    }

    // --- sends ---------------------------------------------------------------------------------------------------

    /// Whether a send is better queued than made directly: another fiber is ready, and its sends can share the system call.
    /// Never where the driver carries out nothing.
    pub fn should_batch(&mut self) -> bool {
        match self.operations().map(|operations| operations.queued()) {
            Some(0) if self.batching.take_direct() => false,
            Some(0) => self.queue.len() <= MAX_READY && self.has_ready_fiber(),
            queued => queued.is_some(),
        }
    }

    /// Queues a send, and begins a wait for its outcome. `None` if the driver does not take it.
    pub fn start_send(&mut self, slot: Slot, descriptor: i32, bytes: &[u8]) -> Option<OperationId> {
        let token = self.fibers.begin_wait(slot, Purpose::Send);
        let id = self.start(descriptor, Operation::Send(bytes), token);
        match id {
            Some(_) => {
                self.counters.queued += 1;
                self.batching.on_queued();
            }
            None => self.fibers.end_wait(token),
        }
        id
    }

    /// The outcome of a send; `None` if it was taken back, because the kernel had not seen it.
    pub fn finish_send(&mut self, id: OperationId) -> Option<Result<usize, Errno>> {
        if let Some(outcome) = self.take_outcome(id, &mut []) {
            return Some(outcome);
        }
        if self.withdraw(id) {
            return None;
        }
        // The kernel has it, and does not let it wait.
        match self.operations()?.wait(id) {
            Ok(()) => self.take_outcome(id, &mut []),
            Err(error) => Some(Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))),
        }
    }

    /// Hands the queued sends to the kernel. Needed before a descriptor is closed, because its number may be reused a
    /// moment later.
    pub fn flush_sends(&mut self) {
        let operations = self.operations();
        if let Some(operations) = operations.filter(|operations| operations.queued() > 0) {
            // If it fails, the next turn fails likewise, and reports it.
            _ = operations.submit();
        }
    }

    // --- files ---------------------------------------------------------------------------------------------------

    /// Begins an operation on a file, and a wait for its outcome. The descriptor is pinned. `None` if the driver does not
    /// take it.
    pub fn start_file_operation(
        &mut self,
        slot: Slot,
        descriptor: i32,
        io_number: u64,
        operation: Operation<'_>,
    ) -> Option<OperationId> {
        let token = self.fibers.begin_wait(slot, Purpose::Work { io_number });
        let id = self.start(descriptor, operation, token);
        match id {
            Some(_) => {
                self.counters.carried += 1;
                self.pins.pin((io_number, slot));
            }
            None => self.fibers.end_wait(token),
        }
        id
    }

    /// Whether the operation is over. If not, a further wait for it begins.
    pub fn wait_on_operation(&mut self, slot: Slot, io_number: u64, id: OperationId) -> Progress {
        if !self.is_pending(id) {
            return Progress::Completed;
        }
        let token = self.fibers.begin_wait(slot, Purpose::Work { io_number });
        if let Some(operations) = self.operations() {
            operations.redirect(id, token);
        }
        Progress::Pending
    }

    /// The outcome, if there is one; `into` gets what was read.
    pub fn take_outcome(
        &mut self,
        id: OperationId,
        into: &mut [u8],
    ) -> Option<Result<usize, Errno>> {
        let outcome = self.operations()?.take(id, into)?;
        Some(outcome.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }

    /// Takes an operation back that the kernel has not seen; false if it has.
    pub fn withdraw(&mut self, id: OperationId) -> bool {
        let operations = self.operations();
        operations.is_some_and(|operations| operations.withdraw(id))
    }

    /// Gives an operation up, whatever becomes of it.
    pub fn abandon(&mut self, id: OperationId) {
        if let Some(operations) = self.operations() {
            operations.abandon(id);
        }
    }

    /// Blocks the thread until the operation is over.
    pub fn wait_blocking(&mut self, id: OperationId) {
        if let Some(operations) = self.operations() {
            _ = operations.wait(id);
        }
    }

    fn is_pending(&mut self, id: OperationId) -> bool {
        let operations = self.operations();
        operations.is_some_and(|operations| !operations.is_complete(id))
    }
}
