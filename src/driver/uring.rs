//! The io_uring driver, or a stub that cannot be opened.
//!
//! Only the files in driver/uring/ name the crate `io_uring`.

#![allow(unsafe_code)]

#[cfg_attr(
    not(all(target_os = "linux", feature = "uring")),
    path = "uring/unsupported.rs"
)]
#[cfg_attr(all(target_os = "linux", feature = "uring"), path = "uring/linux.rs")]
mod platform;

pub(crate) use platform::open;
