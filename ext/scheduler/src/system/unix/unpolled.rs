//! Worker waits and writes: none here, because the kernel can poll everything that is not always ready.

use std::{convert::Infallible, io};

use reactor::{Descriptor as Polled, Interest, Ready};

use crate::system::{descriptor::Descriptor, errno::Errno};

/// A wait in which a worker blocks. Another thread can end it early.
#[derive(Debug)]
pub struct BlockingWait(Infallible);

impl BlockingWait {
    /// Creates a wait for a descriptor that the core refused with this error. `None` for descriptors that are always
    /// ready.
    ///
    /// # Errors
    ///
    /// `refused`, if there is no other way to wait for the descriptor.
    pub fn new(_: Polled, _: Interest, refused: io::Error) -> io::Result<Option<Self>> {
        Err(refused)
    }

    /// Blocks until the descriptor is ready or [`BlockingWait::end`] is called. Returns the events for which it is ready.
    pub fn block(&self) -> io::Result<Ready> {
        match self.0 {}
    }

    /// Ends the current block, or the next one.
    pub fn end(&self) {
        match self.0 {}
    }
}

/// A write in which a worker blocks. Another thread can end it early.
#[derive(Debug)]
pub struct BlockingWrite(Infallible);

impl BlockingWrite {
    /// EOPNOTSUPP.
    pub fn new(_: Descriptor, _: &[u8]) -> Result<Self, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Blocks until everything is written or [`BlockingWrite::end`] is called. Returns the number of bytes written, or an error
    /// if no byte was written.
    pub fn block(&self) -> Result<usize, Errno> {
        match self.0 {}
    }

    /// Ends the current block, or the next one.
    pub fn end(&self) {
        match self.0 {}
    }
}
