//! The io_uring driver, or a stub that cannot be opened.
//!
//! Only the files in driver/uring/ name the crate `io_uring`.

#![allow(unsafe_code)]

// The architectures are those of Cargo.toml.
#[cfg_attr(
    all(
        target_os = "linux",
        feature = "uring",
        any(
            target_arch = "x86_64",
            target_arch = "aarch64",
            target_arch = "riscv64",
            target_arch = "loongarch64",
            target_arch = "powerpc64"
        )
    ),
    path = "uring/linux.rs"
)]
mod platform;

pub(crate) use platform::open;
