//! Calls that a driver may carry out itself.

/// One operation on a descriptor.
///
/// Bytes to send are copied when the operation starts, and bytes read are dropped. The kernel never has a pointer to
/// the caller's memory.
///
/// ```
/// use reactor::Operation;
///
/// assert_eq!(Operation::Send(b"hello").size(), 5);
/// assert_eq!(Operation::Read(4096, 100).size(), 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'bytes> {
    /// send(2) with `MSG_DONTWAIT` and `MSG_NOSIGNAL`: `EAGAIN` if nothing fits.
    Send(&'bytes [u8]),
    /// pread(2) of at most this many bytes at a byte offset, of a regular file only: from a pipe or a socket, it would
    /// take bytes and drop them. It brings that part of the file into the page cache; the caller then reads it.
    Read(u64, usize),
    /// fsync(2).
    Sync,
    /// fdatasync(2).
    SyncData,
}

impl Operation<'_> {
    /// The size in bytes of the buffer that the driver allocates for the bytes to send or read.
    pub const fn size(&self) -> usize {
        match self {
            Self::Send(bytes) => bytes.len(),
            Self::Read(_, length) => *length,
            Self::Sync | Self::SyncData => 0,
        }
    }
}

/// The id of an operation, valid from the operation's start until its outcome is taken, or the operation is withdrawn
/// or abandoned.
///
/// ```
/// use reactor::OperationId;
///
/// let id = OperationId::new(7, 2);
/// assert_eq!(OperationId::from(u64::from(id)), id);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperationId {
    slot: u32,
    generation: u32,
}

impl OperationId {
    /// Creates an id from the driver's slot and generation.
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// The driver's slot.
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// The generation of the slot.
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

impl From<u64> for OperationId {
    fn from(word: u64) -> Self {
        Self::new(word as u32, (word >> 32) as u32)
    }
}

impl From<OperationId> for u64 {
    fn from(id: OperationId) -> Self {
        Self::from(id.generation) << 32 | Self::from(id.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::{Operation, OperationId};

    #[test]
    fn an_id_is_converted_to_a_word_and_back() {
        let id = OperationId::new(7, u32::MAX);
        assert_eq!(OperationId::from(u64::from(id)), id);
        assert_eq!((id.slot(), id.generation()), (7, u32::MAX));
    }

    #[test]
    fn sizes() {
        assert_eq!(Operation::Send(b"abc").size(), 3);
        assert_eq!(Operation::Read(0, 9).size(), 9);
        assert_eq!(Operation::Sync.size(), 0);
    }
}
