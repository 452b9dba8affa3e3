//! Who may change Ruby's own classes just now: one thread of the process, of whatever Ractor.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::raw;

/// 0: nobody; otherwise one more than the fork generation of the process whose thread it is.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// `Reactor.claim`: whether the caller is the one, until it calls [`release`].
///
/// A thread that a fork has not taken along holds nothing.
pub fn claim() -> bool {
    let own = raw::fork_generation() + 1;
    let take = |from| OWNER.compare_exchange(from, own, Ordering::Acquire, Ordering::Relaxed);
    take(0)
        .or_else(|owner| if owner == own { Err(own) } else { take(owner) })
        .is_ok()
}

/// `Reactor.release`
pub fn release() {
    OWNER.store(0, Ordering::Release);
}
