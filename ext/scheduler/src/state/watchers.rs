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

use reactor::{Interest, TimerId, Token};

use crate::state::{object_ref::ObjectRef, token_mark::WATCHER, wait_registration::ReadinessWait};

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
    Waiting(Option<ReadinessWait>),
    /// With what its descriptor is ready for; `None`: its time is up.
    Due(Option<Interest>),
}

/// The watchers that have not ended. Each is found by its token, which finds no later one in its place.
#[derive(Debug, Default)]
pub struct Watchers {
    records: Vec<Option<WatcherRecord>>,
    /// How often a watcher was removed from each place.
    generations: Vec<u32>,
    free: Vec<u32>,
    /// How many are not transient.
    lasting: usize,
}

impl Watchers {
    pub fn insert(&mut self, record: WatcherRecord) -> Token {
        self.lasting += usize::from(!record.is_transient);
        let place = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.generations.push(0);
            (self.records.len() - 1) as u32
        });
        self.records[place as usize] = Some(record);
        self.token(place as usize)
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

    pub fn values(&self) -> impl Iterator<Item = &WatcherRecord> {
        self.records.iter().flatten()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Token, &WatcherRecord)> {
        let records = self.records.iter().enumerate();
        records.filter_map(|(place, record)| Some((self.token(place), record.as_ref()?)))
    }

    /// The first watcher in this place or a later one: its place and its token.
    pub fn next_from(&self, place: usize) -> Option<(usize, Token)> {
        let later = self.records.get(place..)?;
        let place = place + later.iter().position(Option::is_some)?;
        Some((place, self.token(place)))
    }

    /// The bytes of memory that it takes.
    pub fn size(&self) -> usize {
        self.records.capacity() * size_of::<Option<WatcherRecord>>()
            + (self.generations.capacity() + self.free.capacity()) * size_of::<u32>()
    }

    fn token(&self, place: usize) -> Token {
        Token::new(place as u32 | WATCHER, self.generations[place])
    }

    /// The place of a watcher that is there.
    fn place(&self, token: Token) -> Option<usize> {
        let place = (token.index() ^ WATCHER) as usize;
        (self.generations.get(place) == Some(&token.generation())).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use reactor::{Interest, Token};

    use super::{WATCHER, WatcherProgress, WatcherRecord, Watchers};
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
        assert_eq!((2, 1), (watchers.len(), watchers.lasting()));
        watchers.remove(lasting);
        assert_eq!((1, 0), (watchers.len(), watchers.lasting()));
        watchers.remove(transient);
        assert!(watchers.is_empty());
    }

    #[test]
    fn an_old_token_finds_no_later_watcher() {
        let mut watchers = Watchers::default();
        let old = watchers.insert(record(1, false));
        assert!(watchers.remove(old).is_some() && watchers.remove(old).is_none());
        let new = watchers.insert(record(2, false));
        assert_eq!(old.index(), new.index());
        assert!(watchers.get(old).is_none() && watchers.get(new).is_some());
        let of_fiber = Token::new(new.index() ^ WATCHER, new.generation());
        assert!(watchers.get(of_fiber).is_none());
    }

    #[test]
    fn watchers_are_found_in_the_order_of_their_places() {
        let mut watchers = Watchers::default();
        let tokens = [1, 2, 3].map(|number| watchers.insert(record(number, true)));
        watchers.remove(tokens[1]);
        assert_eq!(Some((0, tokens[0])), watchers.next_from(0));
        assert_eq!(Some((2, tokens[2])), watchers.next_from(1));
        assert_eq!((None, None), (watchers.next_from(3), watchers.next_from(9)));
        let found: Vec<_> = watchers.iter().map(|(token, _)| token).collect();
        assert_eq!(vec![tokens[0], tokens[2]], found);
    }

    /// Of the 700 bytes that an idle connection may take: `docs/performance.md` has the sum.
    #[test]
    fn a_watcher_takes_few_bytes() {
        assert!(size_of::<Option<WatcherRecord>>() <= 64);
    }
}
