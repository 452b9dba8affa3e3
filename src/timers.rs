//! The deadline queue.

use std::{
    fmt,
    time::{Duration, Instant},
};

use crate::{
    deadline::Deadline,
    event::{Event, Events, Ready},
    token::Token,
};

/// Children of a heap node. Four of them have 128 bytes, which lie in two or three cache lines.
const ARITY: usize = 4;

/// The end of the list of free slots.
const NONE: u32 = u32::MAX;

/// The number of one timer. After the timer has elapsed or was cancelled it refers to no timer, and cancelling it does
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    slot: u32,
    generation: u32,
}

impl From<TimerId> for u64 {
    /// The number as one word, for callers in other languages.
    fn from(timer: TimerId) -> Self {
        Self::from(timer.generation) << 32 | Self::from(timer.slot)
    }
}

impl From<u64> for TimerId {
    /// The number that the word was made from. Any other word refers to no timer, or to another timer of the caller.
    fn from(word: u64) -> Self {
        Self {
            slot: word as u32,
            generation: (word >> 32) as u32,
        }
    }
}

/// Timers ordered by deadline, and by order of insertion among equal deadlines.
///
/// An indexed 4-ary heap. Inserting and cancelling take O(log n). Cancelling frees the memory for the next timer: a million
/// timers that are set and cancelled one after another take the memory of one.
///
/// ```
/// use std::time::{Duration, Instant};
/// use reactor::{Deadline, Events, Timers, Token};
///
/// let now = Instant::now();
/// let mut timers = Timers::new();
/// let late = timers.insert(Deadline::after_from(now, Duration::from_secs(2)), Token::new(2, 0));
/// timers.insert(Deadline::after_from(now, Duration::from_secs(1)), Token::new(1, 0));
/// assert!(timers.cancel(late));
///
/// let mut events = Events::new();
/// timers.expire(now + Duration::from_secs(3), &mut events);
/// assert_eq!(events.len(), 1);
/// assert_eq!(events[0].token, Token::new(1, 0));
/// ```
pub struct Timers {
    /// No entry is due before its parent, which is at `(index - 1) / ARITY`.
    heap: Vec<Entry>,
    slots: Vec<Slot>,
    /// The first free slot.
    free: u32,
    arrivals: u64,
}

/// The sort key of a timer. It is kept in the heap, so that sifting does not read the slots.
#[derive(Clone, Copy)]
struct Entry {
    deadline: Deadline,
    arrival: u64,
    slot: u32,
}

impl Entry {
    fn precedes(&self, other: &Self) -> bool {
        (self.deadline, self.arrival) < (other.deadline, other.arrival)
    }
}

struct Slot {
    generation: u32,
    /// The timer's index in the heap; in a free slot, the next free slot.
    place: u32,
    token: Token,
    live: bool,
}

impl Timers {
    /// An empty queue. The first timer allocates.
    pub const fn new() -> Self {
        Self {
            heap: Vec::new(),
            slots: Vec::new(),
            free: NONE,
            arrivals: 0,
        }
    }

    /// Adds a timer: [`Timers::expire`] reports `token` when `deadline` has come.
    pub fn insert(&mut self, deadline: Deadline, token: Token) -> TimerId {
        let slot = self.claim(token);
        let place = self.heap.len();
        self.heap.push(Entry {
            deadline,
            arrival: self.arrivals,
            slot,
        });
        self.arrivals += 1;
        self.sift_up(place);
        TimerId {
            slot,
            generation: self.slots[slot as usize].generation,
        }
    }

    /// Removes a timer. False if it has elapsed or was cancelled already.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        let Some(slot) = self.slots.get(timer.slot as usize) else {
            return false;
        };
        if !slot.live || slot.generation != timer.generation {
            return false;
        }
        self.remove(slot.place as usize);
        true
    }

    /// The earliest deadline; None if there is no timer.
    pub fn next(&self) -> Option<Deadline> {
        self.heap.first().map(|entry| entry.deadline)
    }

    /// Removes each timer that is due at `now` and appends its event, [`Ready::ELAPSED`], earliest deadline first.
    pub fn expire(&mut self, now: Instant, events: &mut Events) {
        self.expire_late(now, events, |_| ());
    }

    /// As [`Timers::expire`]; `on_late` is given how long after its deadline each timer is reported.
    pub(crate) fn expire_late(
        &mut self,
        now: Instant,
        events: &mut Events,
        mut on_late: impl FnMut(Duration),
    ) {
        while let Some(entry) = self.heap.first() {
            if !entry.deadline.is_due(now) {
                return;
            }
            on_late(now.saturating_duration_since(entry.deadline.instant()));
            let token = self.slots[entry.slot as usize].token;
            self.remove(0);
            events.push(Event {
                token,
                ready: Ready::ELAPSED,
            });
        }
    }

    /// How many timers are set.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Is no timer set?
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn claim(&mut self, token: Token) -> u32 {
        let index = self.free;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            self.free = slot.place;
            slot.token = token;
            slot.live = true;
            return index;
        }
        self.slots.push(Slot {
            generation: 0,
            place: 0,
            token,
            live: true,
        });
        (self.slots.len() - 1) as u32
    }

    fn remove(&mut self, place: usize) {
        let entry = self.heap.swap_remove(place);
        let slot = &mut self.slots[entry.slot as usize];
        slot.live = false;
        slot.generation = slot.generation.wrapping_add(1);
        slot.place = self.free;
        self.free = entry.slot;
        if place < self.heap.len() {
            // The last entry has filled the gap, and may have to move in either direction.
            self.sift_up(place);
            self.sift_down(place);
        }
    }

    fn sift_up(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / ARITY;
            if !entry.precedes(&self.heap[parent]) {
                break;
            }
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sift_down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while let Some(child) = self.first_child(place) {
            if !self.heap[child].precedes(&entry) {
                break;
            }
            self.put(place, self.heap[child]);
            place = child;
        }
        self.put(place, entry);
    }

    /// The child with the earliest deadline; None for a leaf.
    fn first_child(&self, place: usize) -> Option<usize> {
        let start = place * ARITY + 1;
        let end = (start + ARITY).min(self.heap.len());
        (start..end).reduce(|first, child| {
            if self.heap[child].precedes(&self.heap[first]) {
                child
            } else {
                first
            }
        })
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.slots[entry.slot as usize].place = place as u32;
    }
}

impl Default for Timers {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Timers")
            .field("len", &self.len())
            .field("next", &self.next())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        time::{Duration, Instant},
    };

    use super::{ARITY, TimerId, Timers};
    use crate::{deadline::Deadline, event::Events, token::Token};

    /// xorshift: the same numbers in every run.
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % limit
        }
    }

    fn check(timers: &Timers) {
        for (place, entry) in timers.heap.iter().enumerate() {
            let slot = &timers.slots[entry.slot as usize];
            assert!(slot.live && slot.place as usize == place);
            assert!(place == 0 || !entry.precedes(&timers.heap[(place - 1) / ARITY]));
        }
    }

    #[test]
    fn behaves_like_an_ordered_map() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
        let mut timers = Timers::new();
        let mut model: BTreeMap<(u64, u32), TimerId> = BTreeMap::new();
        let mut gone: Vec<TimerId> = Vec::new();
        let mut events = Events::new();
        let mut clock = 0;
        // Miri is slower by orders of magnitude.
        for arrival in 0..if cfg!(miri) { 200 } else { 20_000 } {
            match numbers.below(10) {
                0..=5 => {
                    let due = clock + numbers.below(40);
                    let timer = timers.insert(Deadline::from(at(due)), Token::new(arrival, 0));
                    model.insert((due, arrival), timer);
                }
                6..=7 => {
                    let nth = numbers.below(model.len().max(1) as u64) as usize;
                    if let Some(key) = model.keys().nth(nth).copied() {
                        let timer = model.remove(&key).unwrap();
                        assert!(timers.cancel(timer));
                        gone.push(timer);
                    }
                }
                8 => {
                    clock += numbers.below(12);
                    events.clear();
                    timers.expire(at(clock), &mut events);
                    let later = model.split_off(&(clock + 1, 0));
                    let due = std::mem::replace(&mut model, later);
                    let tokens = events.iter().map(|event| event.token.index());
                    assert!(tokens.eq(due.keys().map(|(_, arrival)| *arrival)));
                    gone.extend(due.into_values());
                }
                _ => {
                    let stale = gone.get(numbers.below(gone.len().max(1) as u64) as usize);
                    assert!(stale.is_none_or(|timer| !timers.cancel(*timer)));
                }
            }
            let next = model.keys().next().map(|(due, _)| Deadline::from(at(*due)));
            assert_eq!((timers.next(), timers.len()), (next, model.len()));
            if arrival % 64 == 0 {
                check(&timers);
            }
        }
    }

    #[test]
    fn equals_elapse_in_order_of_arrival() {
        let now = Instant::now();
        let mut timers = Timers::new();
        for index in 0..100 {
            timers.insert(Deadline::from(now), Token::new(index, 0));
        }
        let mut events = Events::new();
        timers.expire(now, &mut events);
        assert!(events.iter().map(|event| event.token.index()).eq(0..100));
    }

    #[test]
    fn a_million_cancelled_timers_leave_the_memory_of_one() {
        let now = Instant::now();
        let mut timers = Timers::new();
        for second in 0..if cfg!(miri) { 200 } else { 1_000_000 } {
            let deadline = Deadline::after_from(now, Duration::from_secs(3600 + second));
            let timer = timers.insert(deadline, Token::new(0, 0));
            assert!(timers.cancel(timer));
            assert!(!timers.cancel(timer));
        }
        assert!(timers.is_empty());
        assert_eq!(timers.slots.len(), 1);
        assert!(timers.heap.capacity() <= 4);
    }
}
