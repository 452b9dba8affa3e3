//! Sends and file operations that the driver carries out by itself (io_uring).

use std::io;

use reactor::{Descriptor, Operation, OperationId, Operations, Token};

use crate::state::{State, fiber::Slot, send_batching::MAX_READY, wait::Purpose};

impl State {
    /// `None` where the driver carries out nothing.
    pub fn operations(&mut self) -> Option<&mut dyn Operations> {
        self.event_loop.reactor.as_mut()?.operations()
    }

    /// `None` if the driver does not take the operation: the wait that has begun for it is over.
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

    /// Whether a send is better queued than made directly: another fiber is ready, and its sends can share the system call.
    /// Never where the driver carries out nothing.
    pub fn should_batch(&mut self) -> bool {
        match self.operations().map(|operations| operations.queued()) {
            Some(0) if self.batching.is_direct() => false,
            Some(0) => self.queue.len() <= MAX_READY && self.has_ready_fiber(),
            queued => queued.is_some(),
        }
    }

    /// Queues a send, and begins a wait for its outcome. `None` if the driver does not take it.
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

    /// The outcome of a send; `None` if it was taken back, because the kernel had not seen it.
    pub fn finish_send(&mut self, id: OperationId) -> Option<io::Result<usize>> {
        let outcome = self.take_outcome(id);
        if outcome.is_some() || self.operations()?.withdraw(id) {
            return outcome;
        }
        // The kernel has it, and does not let it wait.
        match self.operations()?.wait(id) {
            Ok(()) => self.take_outcome(id),
            Err(error) => Some(Err(error)),
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
        descriptor: Descriptor,
        io_number: u64,
        operation: Operation<'_>,
    ) -> Option<OperationId> {
        let token = self.fibers.begin_wait(slot, Purpose::Work { io_number });
        let id = self.start(token, descriptor, operation)?;
        self.counters.carried += 1;
        self.pins.pin((io_number, slot));
        Some(id)
    }

    /// Begins a further wait for the operation. False, and nothing done, if it is over.
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
