//! The locks and threads of [`Handle`](crate::Handle) and of the pool: those of the standard library.
//!
//! tests/model replaces this file by one with loom's, and so runs the same code through all interleavings.

pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicBool};

#[cfg(feature = "pool")]
pub(crate) use std::{sync::Condvar, thread::Builder};
