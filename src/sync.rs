//! The locks and threads used by [`Handle`](crate::Handle) and the pool: those of the standard library.
//!
//! tests/model replaces this file with loom's equivalents, so that the same code runs through all interleavings.

pub(crate) use std::sync::{Mutex, MutexGuard, atomic::AtomicBool};

#[cfg(feature = "pool")]
pub(crate) use std::{sync::Condvar, thread::Builder};
