//! Transfers of bytes: `io_read`, `io_write`, `io_pread`, `io_pwrite`.
//!
//! The system call comes first, and a wait only when the kernel says that it would block.

pub mod attempt;
pub mod batched_send;
pub mod file;
pub mod request;
pub mod stream;
mod worker_write;
