//! One transfer as requested by the VM.

use magnus::{Error, Value};
use reactor::Interest;
use reactor_scheduler::system::{errno::Errno, kind::DescriptorKind};

use crate::ruby::{
    buffer::{Extent, SendableBuffer},
    error::argument_error,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Read,
    Write,
}

impl Direction {
    pub fn interest(self) -> Interest {
        match self {
            Self::Read => Interest::READABLE,
            Self::Write => Interest::WRITABLE,
        }
    }
}

/// The outcome of a system call, and the number of bytes it could have transferred.
pub type Attempted = (Result<usize, Errno>, usize);

/// An IO object, a buffer, and how much to transfer.
pub struct Transfer {
    pub io: Value,
    pub direction: Direction,
    /// The position in the file; `None` for the file's own offset, or no file.
    pub file_offset: Option<u64>,
    /// Return only after this many bytes; 0 means one attempt.
    pub minimum: usize,
    maximum: usize,
    extent: Extent,
}

impl Transfer {
    /// Up to version 3 of the interface, `numbers` are the length and the offset in the buffer, and the length is the
    /// minimum. From version 4 on (Ruby 4.1), they are the offset and the length, and the length is the maximum.
    pub fn new(
        direction: Direction,
        version: u8,
        [io, buffer]: [Value; 2],
        numbers: [i64; 2],
    ) -> Result<Self, Error> {
        let [Ok(first), Ok(second)] = numbers.map(usize::try_from) else {
            return Err(argument_error("offset and length can't be negative"));
        };
        let (length, offset, minimum, maximum) = match version {
            ..4 => (first, second, first, usize::MAX),
            _ => (second, first, 0, second),
        };
        Ok(Self {
            io,
            direction,
            file_offset: None,
            minimum,
            maximum,
            extent: Extent::new(buffer, offset, length),
        })
    }

    /// Whether only a call that may block can make the transfer, so that a worker must make it.
    pub fn is_for_worker(&self, kind: DescriptorKind) -> bool {
        kind.is_written_by_worker() && self.direction == Direction::Write
    }

    /// How many bytes of the buffer the transfer may use.
    ///
    /// ArgumentError if that is less than requested: Ruby checks this before it checks the IO.
    pub fn room(&self) -> Result<usize, Error> {
        Ok(self.extent.room()?.min(self.maximum))
    }

    /// Whether the buffer has room. The VM requests nothing from its own buffers beyond their size, so only others are
    /// checked.
    pub fn has_room(&self) -> Result<bool, Error> {
        Ok(self.extent.is_of_vm() || self.room()? > 0)
    }

    /// Makes one system call on the rest of the buffer after `done` bytes: a read or a write, depending on the direction.
    pub fn call(
        &self,
        done: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
        write: impl FnOnce(&[u8]) -> Result<usize, Errno>,
    ) -> Result<Attempted, Error> {
        let most = self.maximum.saturating_sub(done);
        match self.direction {
            Direction::Read => {
                let read = |bytes: &mut [u8]| (read(bytes), bytes.len());
                self.extent.with_writable(done, most, read)
            }
            Direction::Write => {
                let write = |bytes: &[u8]| (write(bytes), bytes.len());
                self.extent.with_readable(done, most, write)
            }
        }
    }

    /// Runs a transfer while the buffer is locked.
    pub fn locked<T>(&self, run: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let is_read = self.direction == Direction::Read;
        let is_ours = self.extent.lock(is_read)?;
        let result = run();
        if is_ours {
            self.extent.unlock();
        }
        result
    }

    /// The rest of the buffer, up to a size, for a worker to write to; see [`SendableBuffer`].
    pub fn sendable(&self, done: usize, size: usize) -> Result<Option<SendableBuffer>, Error> {
        let size = size.min(self.maximum.saturating_sub(done));
        self.extent.sendable(done, size)
    }
}
