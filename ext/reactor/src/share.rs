//! When other threads get the GVL from a scheduler that never sleeps: after a millisecond, where the VM itself would let them
//! wait for 100; or after twice the time they took before, if that is longer. So one that only computes gets it from the VM,
//! as ever.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// How long turns may follow each other before other threads get the GVL.
const LEAST: Duration = Duration::from_millis(1);

/// After so long without a turn the VM has probably given it to them: its time slice is 100 ms.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub struct Share(Cell<Option<Account>>);

/// Since when the GVL has been ours without a sleep, and how long it may be; and the last turn.
#[derive(Clone, Copy, Debug)]
struct Account {
    since: Instant,
    ours: Duration,
    seen: Instant,
}

impl Share {
    /// A turn: whether others shall have it now.
    pub fn is_over(&self, now: Instant) -> bool {
        let mut account = match self.0.get() {
            Some(account) if now.duration_since(account.seen) < PAUSE => account,
            Some(account) => Account::after(now.duration_since(account.seen), now),
            None => Account::after(Duration::ZERO, now),
        };
        account.seen = now;
        self.0.set(Some(account));
        now.duration_since(account.since) >= account.ours
    }

    /// Others had it from then on, if they wanted it, and now it is ours again.
    pub fn given(&self, then: Instant, now: Instant) {
        let theirs = now.duration_since(then);
        self.0.set(Some(Account::after(theirs, now)));
    }

    /// Others have had it while we slept. (How long they want it is remembered.)
    pub fn rested(&self, now: Instant) {
        let account = self.0.get().map(|account| Account {
            since: now,
            seen: now,
            ..account
        });
        self.0.set(account);
    }
}

impl Account {
    fn after(theirs: Duration, now: Instant) -> Self {
        Self {
            since: now,
            ours: LEAST.max(2 * theirs),
            seen: now,
        }
    }
}
