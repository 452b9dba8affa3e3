//! One operation: its stage, its memory, and its entry for the submission queue.
//!
//! | stage     | the memory belongs to | left by |
//! |-----------|-----------------------|---------|
//! | idle      | the slot              | `start`: queued |
//! | queued    | the caller            | `submitted`: in flight; `release`: idle |
//! | in flight | the caller and the kernel | `complete`: complete; `orphan`: orphaned |
//! | complete  | the caller            | `release`: idle |
//! | orphaned  | the kernel            | `release`, once the completion has arrived: idle |

use std::io;

use io_uring::{opcode, squeue, types};

use crate::{
    descriptor::Descriptor,
    operation::{Operation, OperationId},
    token::Token,
};

/// `release` frees buffers larger than this many bytes, and keeps smaller ones for the slot's next operation.
const KEPT_BUFFER_MAX: usize = 1 << 16;

/// The stage of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    Queued,
    InFlight,
    /// Holds the completion's result: a byte count, or a negative error number.
    Complete(i32),
    /// Abandoned while in flight.
    Orphaned,
}

/// Holds one operation at a time.
pub(super) struct OperationSlot {
    /// Counts the slot's operations, so that stale ids are detected.
    generation: u32,
    stage: Stage,
    token: Token,
    entry: squeue::Entry,
    /// The kernel reads from or writes to the buffer's heap allocation, which does not move when the slot does.
    buffer: Vec<u8>,
}

impl OperationSlot {
    pub(super) fn new() -> Self {
        Self {
            generation: 0,
            stage: Stage::Idle,
            token: Token::WAKE,
            entry: opcode::Nop::new().build(),
            buffer: Vec::new(),
        }
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    pub(super) fn set_token(&mut self, token: Token) {
        self.token = token;
    }

    pub(super) fn entry(&self) -> &squeue::Entry {
        &self.entry
    }

    /// The id of the current operation, or of the next one if the slot is idle. `index` is this slot's index.
    pub(super) fn id(&self, index: u32) -> OperationId {
        OperationId::new(index, self.generation)
    }

    /// Whether this id is that of the current operation.
    pub(super) fn has(&self, id: OperationId) -> bool {
        self.generation == id.generation() && self.stage != Stage::Idle
    }

    /// Starts an operation in this idle slot, whose index is `index`. The slot stays idle if the buffer cannot be
    /// allocated.
    pub(super) fn start(
        &mut self,
        index: u32,
        descriptor: Descriptor,
        operation: Operation<'_>,
        token: Token,
    ) -> io::Result<OperationId> {
        self.buffer.clear();
        self.buffer.try_reserve(operation.size())?;
        self.stage = Stage::Queued;
        self.token = token;
        self.prepare(descriptor, operation);
        let id = self.id(index);
        self.entry.set_user_data(id.into());
        Ok(id)
    }

    /// The entry was pushed to the submission queue.
    pub(super) fn submitted(&mut self) {
        self.stage = Stage::InFlight;
    }

    /// The operation was abandoned. The buffer is kept until its completion arrives.
    pub(super) fn orphan(&mut self) {
        self.stage = Stage::Orphaned;
    }

    /// The completion has arrived.
    pub(super) fn complete(&mut self, result: i32) {
        self.stage = Stage::Complete(result);
    }

    /// Ends the operation. The kernel must no longer have the buffer.
    pub(super) fn release(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.stage = Stage::Idle;
        self.buffer.clear();
        if self.buffer.capacity() > KEPT_BUFFER_MAX {
            self.buffer = Vec::new();
        }
    }

    fn prepare(&mut self, descriptor: Descriptor, operation: Operation<'_>) {
        let fd = types::Fd(descriptor);
        if let Operation::Send(bytes) = operation {
            self.buffer.extend_from_slice(bytes);
        }
        let size = operation.size().try_into().unwrap_or(i32::MAX as u32);
        let place = self.buffer.as_mut_ptr();
        self.entry = match operation {
            Operation::Send(_) => opcode::Send::new(fd, place, size)
                .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
                .build(),
            Operation::Read(offset, _) => opcode::Read::new(fd, place, size).offset(offset).build(),
            Operation::Sync => opcode::Fsync::new(fd).build(),
            Operation::SyncData => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        };
    }
}

/// The opcode of the operation, as in the kernel's probe.
pub(super) fn code_of(operation: &Operation<'_>) -> u8 {
    match operation {
        Operation::Send(_) => opcode::Send::CODE,
        Operation::Read(..) => opcode::Read::CODE,
        Operation::Sync | Operation::SyncData => opcode::Fsync::CODE,
    }
}
