//! Systems other than Linux, and builds without the feature `uring`: the driver cannot be opened.

use std::{io, sync::Arc, time::Duration};

use crate::{
    descriptor::Descriptor,
    driver::{Driver, Registration, Reregistration, Unavailable, Wake},
    event::Events,
    interest::Interest,
    token::Token,
};

/// A type without a value: the driver cannot be opened.
#[derive(Debug)]
pub(crate) enum UringDriver {}

impl UringDriver {
    /// Never opens.
    ///
    /// # Errors
    ///
    /// Always: this build has no io_uring driver.
    pub(crate) fn open() -> Result<Self, Unavailable> {
        Err(Unavailable::because("this build has no io_uring driver"))
    }
}

impl Driver for UringDriver {
    fn register(&mut self, _: Descriptor, _: Token, _: Interest) -> io::Result<Registration> {
        match *self {}
    }

    fn reregister(&mut self, _: Descriptor, _: Token, _: Interest) -> io::Result<Reregistration> {
        match *self {}
    }

    fn deregister(&mut self, _: Descriptor) -> io::Result<()> {
        match *self {}
    }

    fn poll(&mut self, _: &mut Events, _: Option<Duration>) -> io::Result<()> {
        match *self {}
    }

    fn waker(&self) -> Arc<dyn Wake> {
        match *self {}
    }

    fn descriptor(&self) -> Option<Descriptor> {
        match *self {}
    }
}
