//! Calls that promise not to block: preadv2(2) and pwritev2(2) with RWF_NOWAIT. Linux has them. Elsewhere each answers
//! EOPNOTSUPP, and the caller polls first.

#[cfg(not(target_os = "linux"))]
#[path = "nowait/unsupported.rs"]
mod platform;
#[cfg(target_os = "linux")]
#[path = "nowait/linux.rs"]
mod platform;

pub use platform::{
    advise_will_need, lives_in_memory, read, read_at, reopened_terminal, write, write_at,
};
