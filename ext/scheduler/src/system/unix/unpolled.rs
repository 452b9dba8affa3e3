//! Waits for what the core does not poll: there are none, because the kernel polls all that is not always ready.

use std::{convert::Infallible, io};

use reactor::{Descriptor, Interest};

/// A wait in which a worker blocks until another thread ends it.
#[derive(Debug)]
pub struct Wait(Infallible);

impl Wait {
    /// A wait for what the core has refused with this error. `None` for what is always ready.
    ///
    /// # Errors
    ///
    /// `refused`, if it is nothing that can be waited for otherwise.
    pub fn new(_: Descriptor, _: Interest, refused: io::Error) -> io::Result<Option<Self>> {
        Err(refused)
    }

    /// Blocks until it is ready, or [`Wait::end`] is called.
    pub fn block(&self) -> io::Result<()> {
        match self.0 {}
    }

    /// Ends the block, or the next one.
    pub fn end(&self) {
        match self.0 {}
    }
}
