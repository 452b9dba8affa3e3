//! Transfers of bytes: `io_read`, `io_write`, `io_pread`, `io_pwrite`.
//!
//! The system call comes first; a wait follows only if it would block.

pub mod attempt;
pub mod batched_send;
pub mod file;
pub mod request;
pub mod stream;
mod worker_write;
