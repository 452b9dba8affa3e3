//! The io_uring driver, or the word that this build has none.
//!
//! The Linux half is the only place that names the crate `io_uring`, and with [`mio`](super::mio) the only one with
//! unsafe code.

#![allow(unsafe_code)]

#[cfg_attr(
    not(all(target_os = "linux", feature = "uring")),
    path = "uring/unsupported.rs"
)]
#[cfg_attr(all(target_os = "linux", feature = "uring"), path = "uring/linux.rs")]
mod platform;

pub(crate) use platform::UringDriver;
