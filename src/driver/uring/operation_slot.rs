//! One operation: its stage, its memory, and its entry for the submission queue.
//!
//! | stage     | the memory belongs to | left by |
//! |-----------|-----------------------|---------|
//! | queued    | the caller            | `submitted`: in flight; its end |
//! | in flight | the caller and the kernel | `complete`: complete; `orphan`: orphaned |
//! | complete  | the caller            | its end |
//! | orphaned  | the kernel            | its end, once the completion has arrived |

use std::io;

use io_uring::{opcode, squeue, types};

use crate::{
    descriptor::Descriptor,
    operation::{Operation, OperationId},
    token::Token,
};

/// The stage of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Queued,
    InFlight,
    /// Holds the completion's result: a byte count, or a negative error number.
    Complete(i32),
    /// Abandoned while in flight.
    Orphaned,
}

/// An operation that has not ended.
pub(super) struct OperationSlot {
    id: OperationId,
    stage: Stage,
    token: Token,
    entry: squeue::Entry,
    /// The kernel reads from or writes to the buffer's heap allocation, which does not move when the slot does.
    buffer: Vec<u8>,
}

impl OperationSlot {
    /// Starts an operation with this buffer.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::OutOfMemory`] if the buffer cannot be allocated.
    pub(super) fn start(
        id: OperationId,
        descriptor: Descriptor,
        operation: Operation<'_>,
        token: Token,
        mut buffer: Vec<u8>,
    ) -> io::Result<Self> {
        buffer.clear();
        buffer.try_reserve(operation.size())?;
        if let Operation::Send(bytes) = operation {
            buffer.extend_from_slice(bytes);
        }
        let entry = entry(descriptor, operation, buffer.as_mut_ptr());
        Ok(Self {
            id,
            stage: Stage::Queued,
            token,
            entry: entry.user_data(id.into()),
            buffer,
        })
    }

    /// The buffer of an operation that has ended.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.buffer
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

    pub(super) fn id(&self) -> OperationId {
        self.id
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
}

fn entry(descriptor: Descriptor, operation: Operation<'_>, place: *mut u8) -> squeue::Entry {
    let fd = types::Fd(descriptor);
    let size = operation.size().try_into().unwrap_or(i32::MAX as u32);
    match operation {
        Operation::Send(_) => opcode::Send::new(fd, place, size)
            .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
            .build(),
        // The ring takes u64::MAX for the file's own position. Any other negative offset is EINVAL, as in pread(2).
        Operation::Read(offset, _) => opcode::Read::new(fd, place, size)
            .offset(match i64::try_from(offset) {
                Ok(_) => offset,
                Err(_) => i64::MIN as u64,
            })
            .build(),
        Operation::Sync => opcode::Fsync::new(fd).build(),
        Operation::SyncData => opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
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
