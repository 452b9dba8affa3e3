//! A lock for changing Ruby's own classes, held by at most one thread of the process, in any Ractor.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::ruby::thread::fork_generation;

/// The process whose thread holds the lock: its fork generation + 1. In a forked child, the parent's threads hold nothing.
static HOLDER: AtomicU32 = AtomicU32::new(0);

/// `Reactor::Internal.lock_patches`: takes the lock if it is free; see [`unlock_patches`].
pub fn lock_patches() -> bool {
    let own = fork_generation() + 1;
    let take = |holder| (holder != own).then_some(own);
    let taken = HOLDER.fetch_update(Ordering::Acquire, Ordering::Relaxed, take);
    taken.is_ok()
}

/// `Reactor::Internal.unlock_patches`
pub fn unlock_patches() {
    HOLDER.store(0, Ordering::Release);
}
