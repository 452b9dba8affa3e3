//! The other classes that Ruby sees: `Reactor::Poller`, child processes, the lock of the patches. `lib.rs` defines them.

pub mod children;
pub mod patch_lock;
pub mod poller;
