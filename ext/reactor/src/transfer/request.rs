//! One transfer as the VM asks for it.

use magnus::{Error, Value};
use reactor::Interest;
use rustix::io::Errno;

use crate::ruby::{
    buffer::{self, Extent, SendableBuffer},
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

/// A buffer, and how much is to be transferred.
pub struct Request {
    buffer: Value,
    extent: Extent,
    /// Return only when this many bytes are transferred; 0 is one attempt (interface version 3).
    minimum: usize,
    /// Never transfer more than this (interface version 4).
    maximum: usize,
}

/// The outcome of a system call, and how many bytes there was room for.
pub type Attempted = (Result<usize, Errno>, usize);

impl Request {
    /// Interface versions 2 and 3 (Ruby 3.3 to 4.0).
    pub fn at_least(buffer: Value, length: i64, offset: i64) -> Result<Self, Error> {
        let (minimum, offset) = sizes(length, offset)?;
        let maximum = usize::MAX;
        Ok(Self {
            buffer,
            extent: Extent::new(offset, minimum),
            minimum,
            maximum,
        })
    }

    /// Interface version 4 (Ruby 4.1).
    pub fn at_most(buffer: Value, length: i64, offset: i64) -> Result<Self, Error> {
        let (maximum, offset) = sizes(length, offset)?;
        Ok(Self {
            buffer,
            extent: Extent::new(offset, maximum),
            minimum: 0,
            maximum,
        })
    }

    pub fn minimum(&self) -> usize {
        self.minimum
    }

    /// How many bytes there is room for.
    ///
    /// ArgumentError if less than what is asked for: Ruby looks at that before it looks at the IO.
    pub fn room(&self) -> Result<usize, Error> {
        let room = buffer::room(self.buffer, &self.extent)?;
        Ok(room.min(self.maximum))
    }

    /// Whether there is room. The VM asks for nothing where there is none, so only other buffers are looked at; as
    /// [`Request::room`].
    pub fn has_room(&self) -> Result<bool, Error> {
        Ok(buffer::is_of_vm(self.buffer, &self.extent) || self.room()? > 0)
    }

    /// Makes one system call that writes to what is left of the buffer after `done` bytes.
    pub fn with_writable(
        &self,
        done: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Attempted, Error> {
        buffer::with_writable(self.buffer, &self.extent, done, |bytes| {
            let room = bytes.len().min(self.maximum.saturating_sub(done));
            (read(&mut bytes[..room]), room)
        })
    }

    /// Makes one system call that reads what is left of the buffer, likewise.
    pub fn with_readable(
        &self,
        done: usize,
        write: impl FnOnce(&[u8]) -> Result<usize, Errno>,
    ) -> Result<Attempted, Error> {
        buffer::with_readable(self.buffer, &self.extent, done, |bytes| {
            let room = bytes.len().min(self.maximum.saturating_sub(done));
            (write(&bytes[..room]), room)
        })
    }

    /// Locks the buffer, unless it is locked: then false.
    pub fn lock(&self, direction: Direction) -> Result<bool, Error> {
        buffer::lock(self.buffer, &self.extent, direction == Direction::Read)
    }

    /// Unlocks the buffer that [`Request::lock`] has locked.
    pub fn unlock(&self) {
        buffer::unlock(self.buffer);
    }

    /// The rest of the buffer, up to a size, for a worker to write to; see [`SendableBuffer`].
    pub fn sendable(&self, done: usize, size: usize) -> Result<Option<SendableBuffer>, Error> {
        let size = size.min(self.maximum.saturating_sub(done));
        SendableBuffer::of(self.buffer, self.extent.offset() + done, size)
    }
}

fn sizes(length: i64, offset: i64) -> Result<(usize, usize), Error> {
    match (usize::try_from(length), usize::try_from(offset)) {
        (Ok(length), Ok(offset)) => Ok((length, offset)),
        _ => Err(argument_error("offset and length can't be negative")),
    }
}
