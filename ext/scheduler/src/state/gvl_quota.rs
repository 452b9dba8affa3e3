//! When a scheduler that never sleeps yields the GVL to other threads.
//!
//! Other threads get the GVL after a millisecond, or after twice as long as they last held it, whichever is longer. The
//! VM alone would make them wait 100 ms, and it is the VM that hands the GVL to threads that only compute.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

/// Other threads get the GVL only after polls have followed one another for at least this long.
const MIN_QUOTA: Duration = Duration::from_millis(1);

/// After this long without a poll, the VM has probably given the GVL to another thread: its time slice is 100 ms.
const VM_SWITCHED: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub struct GvlQuota(Cell<Option<Account>>);

/// Since when the scheduler has held the GVL without sleeping, how long it may keep it, and the last poll.
#[derive(Clone, Copy, Debug)]
struct Account {
    since: Instant,
    quota: Duration,
    last_poll: Instant,
}

impl GvlQuota {
    /// Called at each poll. Returns whether to yield the GVL to other threads now.
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

    /// Other threads could take the GVL since the last poll.
    pub fn after_yield(&self, now: Instant) {
        let last_poll = self.0.get().map_or(now, |account| account.last_poll);
        self.0.set(Some(Account {
            since: now,
            quota: MIN_QUOTA.max(2 * now.duration_since(last_poll)),
            last_poll: now,
        }));
    }

    /// Called after a sleep, during which other threads could take the GVL. The quota stays as it was before the sleep.
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
