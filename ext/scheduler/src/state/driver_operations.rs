//! Sends and file operations that the driver carries out itself (io_uring).

use std::io;

use reactor::{Descriptor, Operation, OperationId, Operations, Token};

use crate::state::{State, fiber::Slot, send_batching::MAX_READY, wait::Purpose};

impl State {
    /// `None` if the driver carries out no operations.
    pub fn operations(&mut self) -> Option<&mut dyn Operations> {
        self.event_loop.reactor.as_mut()?.operations()
    }

    /// `None` if the driver does not accept the operation; the wait that was begun for it is then ended.
    fn start(
        &mut self,
        token: Token,
        descriptor: Descriptor,
        operation: Operation<'_>,
    ) -> Option<OperationId> {
        let operations = self.operations();
        let id = operations.and_then(|it| it.start(descriptor, operation, token).ok());
        if id.is_none() {
            self.fibers.end_wait(token);
        }
        id
    }

    /// The outcome, if there is one.
    pub fn take_outcome(&mut self, id: OperationId) -> Option<io::Result<usize>> {
        self.operations()?.take(id)
    }

    // --- sends ---------------------------------------------------------------------------------------------------

    /// Whether to queue a send instead of making it directly: another fiber is ready, and its sends can share the system
    /// call. Always false if the driver carries out no operations.
    pub fn should_batch(&mut self) -> bool {
        match self.operations().map(|operations| operations.queued()) {
            Some(0) if self.batching.is_direct() => false,
            Some(0) => self.queue.len() <= MAX_READY && self.has_ready_fiber(),
            queued => queued.is_some(),
        }
    }

    /// Queues a send and begins a wait for its outcome. `None` if the driver does not accept it.
    pub fn start_send(
        &mut self,
        slot: Slot,
        descriptor: Descriptor,
        bytes: &[u8],
    ) -> Option<OperationId> {
        let token = self.fibers.begin_wait(slot, Purpose::Send);
        let id = self.start(token, descriptor, Operation::Send(bytes))?;
        self.counters.queued += 1;
        self.batching.on_queued();
        Some(id)
    }

    /// The outcome of a send; `None` if it was withdrawn before the kernel saw it.
    pub fn finish_send(&mut self, id: OperationId) -> Option<io::Result<usize>> {
        let outcome = self.take_outcome(id);
        if outcome.is_some() || self.operations()?.withdraw(id) {
            return outcome;
        }
        // The kernel has the send, and completes it without blocking.
        match self.operations()?.wait(id) {
            Ok(()) => self.take_outcome(id),
            Err(error) => Some(Err(error)),
        }
    }

    /// Submits the queued sends. Call this before closing a descriptor, because its number may be reused right afterwards.
    pub fn flush_sends(&mut self) {
        let operations = self.operations();
        if let Some(operations) = operations.filter(|operations| operations.queued() > 0) {
            // If it fails, so will the next turn, which reports it.
            _ = operations.submit();
        }
    }

    // --- files ---------------------------------------------------------------------------------------------------

    /// Begins a file operation and a wait for its outcome. The descriptor is in use until then. `None` if the driver does
    /// not accept it.
    pub fn start_file_operation(
        &mut self,
        slot: Slot,
        descriptor: Descriptor,
        io_number: u64,
        operation: Operation<'_>,
    ) -> Option<OperationId> {
        let token = self.fibers.begin_wait(slot, Purpose::Work { io_number });
        let id = self.start(token, descriptor, operation)?;
        self.counters.carried += 1;
        self.descriptors_in_use.begin((io_number, slot));
        Some(id)
    }

    /// Begins another wait for the operation. If it has completed, returns false and does nothing.
    pub fn wait_on_operation(&mut self, slot: Slot, io_number: u64, id: OperationId) -> bool {
        if self.operations().is_none_or(|it| it.is_complete(id)) {
            return false;
        }
        let token = self.fibers.begin_wait(slot, Purpose::Work { io_number });
        if let Some(operations) = self.operations() {
            operations.redirect(id, token);
        }
        true
    }
}
