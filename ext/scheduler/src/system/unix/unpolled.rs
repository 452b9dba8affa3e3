//! Waits and writes by workers: there are none, because the kernel polls all that is not always ready.

use std::{convert::Infallible, io};

use reactor::{Descriptor as Polled, Interest, Ready};

use crate::system::{descriptor::Descriptor, errno::Errno};

/// A wait in which a worker blocks until another thread ends it.
#[derive(Debug)]
pub struct Wait(Infallible);

impl Wait {
    /// A wait for what the core has refused with this error. `None` for what is always ready.
    ///
    /// # Errors
    ///
    /// `refused`, if it is nothing that can be waited for otherwise.
    pub fn new(_: Polled, _: Interest, refused: io::Error) -> io::Result<Option<Self>> {
        Err(refused)
    }

    /// Blocks until it is ready, or [`Wait::end`] is called: what it is ready for.
    pub fn block(&self) -> io::Result<Ready> {
        match self.0 {}
    }

    /// Ends the block, or the next one.
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

    /// Blocks until all is written, or [`Write::end`] is called. How many bytes have been written; an error if none has.
    pub fn block(&self) -> Result<usize, Errno> {
        match self.0 {}
    }

    /// Ends the block, or the next one.
    pub fn end(&self) {
        match self.0 {}
    }
}
