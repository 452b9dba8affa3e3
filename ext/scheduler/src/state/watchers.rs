//! Watchers: waits for a descriptor without a fiber. Each starts a new fiber when it ends.
//!
//! | state   | what happens                                | state after | besides |
//! |---------|---------------------------------------------|-------------|---------|
//! | -       | it begins                                   | waiting     | a number of its own |
//! | waiting | its descriptor is ready, or its time elapses | due        | queued in order with the fibers |
//! | waiting | it is cancelled, or its IO object is closed | -           | its number becomes stale |
//! | due     | its turn comes                              | -           | its fiber starts; its number becomes stale |
//! | due     | it is cancelled                             | -           | its number becomes stale, so its queue entry is dropped |
//! | -       | an event or a turn comes for a stale number | -           | dropped |

use reactor::{Interest, TimerId, Token};

use crate::state::{
    object_ref::ObjectRef, slab::Slab, token_mark::WATCHER, wait_registration::ReadinessWait,
};

/// One watcher.
#[derive(Clone, Copy, Debug)]
pub struct WatcherRecord {
    pub object: ObjectRef,
    /// The watched IO, or object with `to_io`. The watcher object does not refer to it, because each minor collection would
    /// mark an old object that refers to an IO.
    pub io: ObjectRef,
    pub io_number: u64,
    pub interest: Interest,
    /// Draining does not wait for it.
    pub is_transient: bool,
    pub progress: WatcherProgress,
    pub timer: Option<TimerId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatcherProgress {
    Waiting(Option<ReadinessWait>),
    /// Holds the events for which its descriptor is ready; `None` if its time elapsed.
    Due(Option<Interest>),
}

/// The watchers that have not ended.
#[derive(Debug, Default)]
pub struct Watchers {
    records: Slab<WatcherRecord, WATCHER>,
    /// How many are not transient.
    lasting: usize,
}

impl Watchers {
    pub fn insert(&mut self, record: WatcherRecord) -> Token {
        self.lasting += usize::from(!record.is_transient);
        self.records.insert(record)
    }

    pub fn records(&self) -> &Slab<WatcherRecord, WATCHER> {
        &self.records
    }

    pub fn get_mut(&mut self, token: Token) -> Option<&mut WatcherRecord> {
        self.records.get_mut(token)
    }

    /// Ends a watcher; its token becomes stale.
    pub fn remove(&mut self, token: Token) -> Option<WatcherRecord> {
        let record = self.records.remove(token)?;
        self.lasting -= usize::from(!record.is_transient);
        Some(record)
    }

    /// Whether its fiber is to start.
    pub fn is_due(&self, token: Token) -> bool {
        let record = self.records.get(token);
        record.is_some_and(|record| matches!(record.progress, WatcherProgress::Due(_)))
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// How many are not transient.
    pub fn lasting(&self) -> usize {
        self.lasting
    }
}

#[cfg(test)]
mod tests {
    use reactor::Interest;

    use super::{WatcherProgress, WatcherRecord, Watchers};
    use crate::state::object_ref::ObjectRef;

    fn record(number: usize, is_transient: bool) -> WatcherRecord {
        WatcherRecord {
            object: ObjectRef::new(8 * number),
            io: ObjectRef::new(0x9000 + 8 * number),
            io_number: number as u64,
            interest: Interest::READABLE,
            is_transient,
            progress: WatcherProgress::Waiting(None),
            timer: None,
        }
    }

    #[test]
    fn transient_watchers_are_counted_apart() {
        let mut watchers = Watchers::default();
        let lasting = watchers.insert(record(1, false));
        let transient = watchers.insert(record(2, true));
        assert_eq!((2, 1), (watchers.records().len(), watchers.lasting()));
        watchers.remove(lasting);
        assert_eq!((1, 0), (watchers.records().len(), watchers.lasting()));
        watchers.remove(transient);
        assert!(watchers.is_empty());
    }

    /// Part of the 700 bytes that an idle connection may take: `docs/performance.md` has the sum.
    #[test]
    fn a_watcher_takes_few_bytes() {
        assert!(size_of::<Option<WatcherRecord>>() <= 64);
    }
}
