//! When other threads get the GVL from a scheduler that never sleeps.
//!
//! They get it after a millisecond, or after twice the time that they took before, if that is longer. The VM itself would let
//! them wait for 100 ms. A thread that only computes gets it from the VM.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// Polls follow each other for at least this long before other threads get the GVL.
const MIN_QUOTA: Duration = Duration::from_millis(1);

/// After this long without a poll the VM has probably given the GVL to another thread: its time slice is 100 ms.
const VM_SWITCHED: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub struct GvlQuota(Cell<Option<Account>>);

/// Since when the scheduler has had the GVL without a sleep, how long it may keep it, and the last poll.
#[derive(Clone, Copy, Debug)]
struct Account {
    since: Instant,
    quota: Duration,
    last_poll: Instant,
}

impl GvlQuota {
    /// A poll: whether other threads get the GVL now.
    pub fn is_spent(&self, now: Instant) -> bool {
        let has_kept_it = |account: &Account| now.duration_since(account.last_poll) < VM_SWITCHED;
        let Some(mut account) = self.0.get().filter(has_kept_it) else {
            self.after_yield(now);
            return false;
        };
        account.last_poll = now;
        self.0.set(Some(account));
        now.duration_since(account.since) >= account.quota
    }

    /// Other threads could have the GVL since the last poll.
    pub fn after_yield(&self, now: Instant) {
        let last_poll = self.0.get().map_or(now, |account| account.last_poll);
        self.0.set(Some(Account {
            since: now,
            quota: MIN_QUOTA.max(2 * now.duration_since(last_poll)),
            last_poll: now,
        }));
    }

    /// Other threads could have the GVL during a sleep. How long they wanted it before is remembered.
    pub fn after_sleep(&self, now: Instant) {
        let account = self.0.get().map(|account| Account {
            since: now,
            last_poll: now,
            ..account
        });
        self.0.set(account);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::GvlQuota;

    /// The first of these milliseconds at which the quota is spent, with a poll in each.
    fn spent_after(quota: &GvlQuota, start: Instant) -> Option<u64> {
        (0..40).find(|ms| quota.is_spent(start + Duration::from_millis(*ms)))
    }

    #[test]
    fn the_quota_is_a_millisecond_at_least() {
        let (quota, start) = (GvlQuota::default(), Instant::now());
        assert_eq!(Some(1), spent_after(&quota, start));
    }

    #[test]
    fn the_quota_is_twice_what_other_threads_took() {
        let (quota, start) = (GvlQuota::default(), Instant::now());
        let back = start + Duration::from_millis(4);
        assert!(!quota.is_spent(start));
        quota.after_yield(back);
        assert_eq!(Some(8), spent_after(&quota, back));
        let slept = back + Duration::from_millis(9);
        quota.after_sleep(slept);
        assert_eq!(Some(8), spent_after(&quota, slept));
    }

    #[test]
    fn a_long_time_without_a_poll_was_theirs() {
        let (quota, start) = (GvlQuota::default(), Instant::now());
        assert!(!quota.is_spent(start));
        let later = start + Duration::from_millis(60);
        assert!(!quota.is_spent(later));
        assert!(!quota.is_spent(later + Duration::from_millis(40)));
    }
}
