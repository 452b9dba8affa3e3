//! One transfer as the VM asks for it.

use magnus::{Error, Value};
use reactor::Interest;
use rustix::io::Errno;

use crate::ruby::{
    buffer::{self, SendableBuffer},
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
    offset: usize,
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
            offset,
            minimum,
            maximum,
        })
    }

    /// Interface version 4 (Ruby 4.1).
    pub fn at_most(buffer: Value, length: i64, offset: i64) -> Result<Self, Error> {
        let (maximum, offset) = sizes(length, offset)?;
        Ok(Self {
            buffer,
            offset,
            minimum: 0,
            maximum,
        })
    }

    pub fn minimum(&self) -> usize {
        self.minimum
    }

    /// Makes one system call that writes to what is left of the buffer after `done` bytes. Without room the answer is 0, and
    /// `read` is not called; an offset beyond the buffer is EINVAL.
    pub fn with_writable(
        &self,
        done: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Attempted, Error> {
        let attempted = buffer::with_writable(self.buffer, self.offset + done, |bytes| {
            let room = bytes.len().min(self.maximum.saturating_sub(done));
            match room {
                0 => (Ok(0), 0),
                _ => (read(&mut bytes[..room]), room),
            }
        })?;
        Ok(attempted.unwrap_or((Err(Errno::INVAL), 0)))
    }

    /// Makes one system call that reads what is left of the buffer, likewise.
    pub fn with_readable(
        &self,
        done: usize,
        write: impl FnOnce(&[u8]) -> Result<usize, Errno>,
    ) -> Result<Attempted, Error> {
        let attempted = buffer::with_readable(self.buffer, self.offset + done, |bytes| {
            let room = bytes.len().min(self.maximum.saturating_sub(done));
            match room {
                0 => (Ok(0), 0),
                _ => (write(&bytes[..room]), room),
            }
        })?;
        Ok(attempted.unwrap_or((Err(Errno::INVAL), 0)))
    }

    /// The rest of the buffer, up to a size, for a worker to write to; see [`SendableBuffer`].
    pub fn sendable(&self, done: usize, size: usize) -> Result<Option<SendableBuffer>, Error> {
        let size = size.min(self.maximum.saturating_sub(done));
        SendableBuffer::of(self.buffer, self.offset + done, size)
    }
}

fn sizes(length: i64, offset: i64) -> Result<(usize, usize), Error> {
    match (usize::try_from(length), usize::try_from(offset)) {
        (Ok(length), Ok(offset)) => Ok((length, offset)),
        _ => Err(argument_error("offset and length can't be negative")),
    }
}
