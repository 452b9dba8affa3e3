//! Systems and architectures without the driver, and builds without the feature `uring`: it cannot be opened.

use crate::driver::{Driver, Unavailable};

/// Always fails.
///
/// # Errors
///
/// Always: this build has no io_uring driver.
pub(crate) fn open() -> Result<Box<dyn Driver>, Unavailable> {
    Err(Unavailable::because("this build has no io_uring driver"))
}
