//! Worker waits and writes: none here, because the kernel can poll everything that is not always ready.

use std::{convert::Infallible, io};

use reactor::{Descriptor as Polled, Interest, Ready};

use crate::system::{descriptor::Descriptor, errno::Errno};

/// A wait in which a worker blocks until another thread ends it.
#[derive(Debug)]
pub struct Wait(Infallible);

impl Wait {
    /// Creates a wait for what the core refused with this error. `None` for what is always ready.
    ///
    /// # Errors
    ///
    /// `refused`, if there is no other way to wait for it.
    pub fn new(_: Polled, _: Interest, refused: io::Error) -> io::Result<Option<Self>> {
        Err(refused)
    }

    /// Blocks until it is ready or [`Wait::end`] is called. Returns what it is ready for.
    pub fn block(&self) -> io::Result<Ready> {
        match self.0 {}
    }

    /// Ends the current block, or the next one.
    pub fn end(&self) {
        match self.0 {}
    }
}

/// A write in which a worker blocks until another thread ends it.
#[derive(Debug)]
pub struct Write(Infallible);

impl Write {
    /// EOPNOTSUPP.
    pub fn new(_: Descriptor, _: &[u8]) -> Result<Self, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Blocks until everything is written or [`Write::end`] is called. Returns the number of bytes written, or an error if
    /// there were none.
    pub fn block(&self) -> Result<usize, Errno> {
        match self.0 {}
    }

    /// Ends the current block, or the next one.
    pub fn end(&self) {
        match self.0 {}
    }
}
