//! A lock for changing Ruby's own classes: one thread of the process holds it, in any Ractor.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::ruby::thread::fork_generation;

/// 0 if it is free; otherwise one more than the fork generation of the process whose thread holds it.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// `Reactor.claim`: whether the caller holds it now, until it calls [`release`].
///
/// A thread of the parent process, which a fork does not copy, holds nothing in the child.
pub fn claim() -> bool {
    let own = fork_generation() + 1;
    let take = |from| OWNER.compare_exchange(from, own, Ordering::Acquire, Ordering::Relaxed);
    take(0)
        .or_else(|owner| if owner == own { Err(own) } else { take(owner) })
        .is_ok()
}

/// `Reactor.release`
pub fn release() {
    OWNER.store(0, Ordering::Release);
}
