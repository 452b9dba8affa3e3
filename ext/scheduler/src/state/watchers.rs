//! Watchers: waits for a descriptor that no fiber makes. Each starts a fresh fiber when it is over.
//!
//! | state   | what happens                                | state after | besides |
//! |---------|---------------------------------------------|-------------|---------|
//! | -       | it begins                                   | waiting     | a number of its own |
//! | waiting | its descriptor is ready, or its time is up  | due         | queued in the order of fibers |
//! | waiting | it is cancelled, or its IO object is closed | -           | its number is old |
//! | due     | its turn comes                              | -           | its fiber starts; its number is old |
//! | due     | it is cancelled                             | -           | its number is old, so the queue's entry is dropped |
//! | -       | an event or a turn comes for an old number  | -           | dropped |

use reactor::{Interest, TimerId, Token, WaitId};

use crate::state::{
    object_ref::ObjectRef,
    token_mark::{WATCHER, is_of_watcher},
};

/// One watcher.
#[derive(Clone, Copy, Debug)]
pub struct WatcherRecord {
    pub object: ObjectRef,
    /// The IO, or the object with `to_io`, that is watched. The watcher object does not refer to it, because each minor collection
    /// would mark an old object that refers to an IO.
    pub io: ObjectRef,
    pub io_number: u64,
    pub interest: Interest,
    /// The end of all fibers does not wait for it.
    pub is_transient: bool,
    pub progress: WatcherProgress,
    pub timer: Option<TimerId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatcherProgress {
    Waiting(Option<WaitId>),
    /// With what its descriptor is ready for; `None`: its time is up.
    Due(Option<Interest>),
}

/// A slab. A place that is used again has another number.
#[derive(Debug, Default)]
pub struct Watchers {
    records: Vec<Option<WatcherRecord>>,
    generations: Vec<u32>,
    free: Vec<u32>,
    /// How many are not transient.
    lasting: usize,
}

impl Watchers {
    pub fn insert(&mut self, record: WatcherRecord) -> Token {
        let place = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.generations.push(0);
            (self.records.len() - 1) as u32
        });
        self.lasting += usize::from(!record.is_transient);
        self.records[place as usize] = Some(record);
        Token::new(place | WATCHER, self.generations[place as usize])
    }

    fn place(&self, token: Token) -> Option<usize> {
        let place = (token.index() & !WATCHER) as usize;
        let is_current = self.generations.get(place) == Some(&token.generation());
        (is_current && is_of_watcher(token)).then_some(place)
    }

    pub fn get(&self, token: Token) -> Option<&WatcherRecord> {
        self.records[self.place(token)?].as_ref()
    }

    pub fn get_mut(&mut self, token: Token) -> Option<&mut WatcherRecord> {
        let place = self.place(token)?;
        self.records[place].as_mut()
    }

    /// Ends a watcher: from now on its token is old.
    pub fn remove(&mut self, token: Token) -> Option<WatcherRecord> {
        let place = self.place(token)?;
        let record = self.records[place].take()?;
        self.generations[place] = self.generations[place].wrapping_add(1);
        self.free.push(place as u32);
        self.lasting -= usize::from(!record.is_transient);
        Some(record)
    }

    /// Whether its fiber is to start.
    pub fn is_due(&self, token: Token) -> bool {
        let record = self.get(token);
        record.is_some_and(|record| matches!(record.progress, WatcherProgress::Due(_)))
    }

    pub fn len(&self) -> usize {
        self.records.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many are not transient.
    pub fn lasting(&self) -> usize {
        self.lasting
    }

    /// The token of the first one at this place or after it, with the place.
    pub fn next_from(&self, place: usize) -> Option<(usize, Token)> {
        let later = self.records.iter().skip(place);
        let place = place + later.take_while(|record| record.is_none()).count();
        let generation = *self.generations.get(place)?;
        Some((place, Token::new(place as u32 | WATCHER, generation)))
    }

    /// Every watcher with its token.
    pub fn iter(&self) -> impl Iterator<Item = (Token, &WatcherRecord)> + '_ {
        let records = self.records.iter().zip(&self.generations).enumerate();
        records.filter_map(|(place, (record, generation))| {
            let token = Token::new(place as u32 | WATCHER, *generation);
            Some((token, record.as_ref()?))
        })
    }

    pub fn for_each_io(&self, visit: &mut impl FnMut(ObjectRef)) {
        let records = self.records.iter().flatten();
        records.for_each(|record| visit(record.io));
    }

    pub fn for_each_watcher(&self, visit: &mut impl FnMut(ObjectRef)) {
        let records = self.records.iter().flatten();
        records.for_each(|record| visit(record.object));
    }

    pub fn size(&self) -> usize {
        self.records.capacity() * size_of::<Option<WatcherRecord>>()
            + (self.generations.capacity() + self.free.capacity()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use reactor::{Interest, Token};

    use super::{WatcherProgress, WatcherRecord, Watchers};
    use crate::state::{
        object_ref::ObjectRef,
        token_mark::{TIMEOUT, is_of_watcher},
    };

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
    fn an_old_token_finds_no_later_watcher() {
        let mut watchers = Watchers::default();
        let old = watchers.insert(record(1, false));
        assert!(watchers.remove(old).is_some() && watchers.remove(old).is_none());
        let new = watchers.insert(record(2, false));
        assert_eq!(old.index(), new.index());
        assert!(watchers.get(old).is_none() && watchers.get(new).is_some());
    }

    #[test]
    fn tokens_of_fibers_find_no_watcher() {
        let mut watchers = Watchers::default();
        let token = watchers.insert(record(1, false));
        assert!(is_of_watcher(token));
        let fiber = Token::new(0, token.generation());
        let timeout = Token::new(TIMEOUT, token.generation());
        for other in [fiber, timeout] {
            assert!(!is_of_watcher(other) && watchers.get(other).is_none());
        }
    }

    #[test]
    fn transient_watchers_are_counted_apart() {
        let mut watchers = Watchers::default();
        let lasting = watchers.insert(record(1, false));
        let transient = watchers.insert(record(2, true));
        assert_eq!((2, 1), (watchers.len(), watchers.lasting()));
        watchers.remove(lasting);
        assert_eq!((1, 0), (watchers.len(), watchers.lasting()));
        assert_eq!(Some((1, transient)), watchers.next_from(0));
        assert_eq!(None, watchers.next_from(2));
        watchers.remove(transient);
        assert!(watchers.is_empty() && watchers.next_from(0).is_none());
    }

    /// Of the 700 bytes that an idle connection may take: `docs/performance.md` has the sum.
    #[test]
    fn a_watcher_takes_few_bytes() {
        assert!(size_of::<Option<WatcherRecord>>() <= 64);
    }
}
