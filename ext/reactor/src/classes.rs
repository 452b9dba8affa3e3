//! Other objects that Ruby sees, beside the scheduler.

pub mod children;
pub mod patch_lock;
pub mod poller;
