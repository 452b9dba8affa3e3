//! The deadline queue.

use std::time::{Duration, Instant};

use slab::Slab;

use crate::{
    deadline::Deadline,
    event::{Event, Events, Ready},
    token::Token,
};

/// Children per heap node. Four take 128 bytes, which is two or three cache lines.
const ARITY: usize = 4;

/// Identifies a timer. Once the timer has elapsed or been cancelled, cancelling it does nothing. Converts to an integer and back,
/// for callers in another language; a made-up one may name any timer, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    slot: u32,
    /// The lower half of its number.
    arrival: u32,
}

impl From<TimerId> for u64 {
    fn from(timer: TimerId) -> Self {
        Self::from(timer.arrival) << 32 | Self::from(timer.slot)
    }
}

impl From<u64> for TimerId {
    fn from(number: u64) -> Self {
        let (slot, arrival) = (number as u32, (number >> 32) as u32);
        Self { slot, arrival }
    }
}

/// Timers ordered by deadline and, for equal deadlines, by insertion.
///
/// An indexed 4-ary heap: with ten thousand sleepers, a sleep takes a tenth less CPU than with a B-tree. Inserting and
/// cancelling take O(log n). Cancelling frees the memory for the next timer.
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
#[derive(Debug, Default)]
pub struct Timers {
    /// No entry is due before its parent, which is at `(place - 1) / ARITY`.
    heap: Vec<Entry>,
    slots: Slab<Slot>,
    arrivals: u64,
}

/// The sort key of a timer, kept in the heap so that sifting does not read the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    deadline: Deadline,
    arrival: u64,
    slot: u32,
}

#[derive(Debug)]
struct Slot {
    /// The timer's index in the heap.
    place: u32,
    token: Token,
}

impl Timers {
    /// An empty queue, which does not allocate until the first timer.
    pub const fn new() -> Self {
        Self {
            heap: Vec::new(),
            slots: Slab::new(),
            arrivals: 0,
        }
    }

    /// Adds a timer: [`Timers::expire`] reports `token` once `deadline` has passed.
    pub fn insert(&mut self, deadline: Deadline, token: Token) -> TimerId {
        let (place, arrival) = (self.heap.len(), self.arrivals);
        let slot = self.slots.insert(Slot {
            place: place as u32,
            token,
        }) as u32;
        self.heap.push(Entry {
            deadline,
            arrival,
            slot,
        });
        self.arrivals += 1;
        self.sift_up(place);
        TimerId {
            slot,
            arrival: arrival as u32,
        }
    }

    /// Removes a timer. False if it has already elapsed or been cancelled.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        let place = self.place(timer);
        place.map(|place| self.remove(place)).is_some()
    }

    /// Gives a timer another deadline. False if it has already elapsed or been stopped. Among timers with the same deadline it
    /// keeps its place.
    pub fn reset(&mut self, timer: TimerId, deadline: Deadline) -> bool {
        let Some(place) = self.place(timer) else {
            return false;
        };
        self.heap[place].deadline = deadline;
        self.sift_up(place);
        self.sift_down(place);
        true
    }

    fn place(&self, timer: TimerId) -> Option<usize> {
        let place = self.slots.get(timer.slot as usize)?.place as usize;
        (self.heap[place].arrival as u32 == timer.arrival).then_some(place)
    }

    /// The earliest deadline; None if there are no timers.
    pub fn next(&self) -> Option<Deadline> {
        self.heap.first().map(|entry| entry.deadline)
    }

    /// Like [`Timers::expire`], but also calls `on_late` for each timer, with the time between its deadline and its
    /// report.
    pub(crate) fn expire_late(
        &mut self,
        now: Instant,
        events: &mut Events,
        mut on_late: impl FnMut(Duration),
    ) {
        while let Some(deadline) = self.next().filter(|next| next.is_due(now)) {
            on_late(now.saturating_duration_since(deadline.instant()));
            let token = self.remove(0);
            let ready = Ready::ELAPSED;
            events.push(Event { token, ready });
        }
    }

    /// The number of timers.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    fn remove(&mut self, place: usize) -> Token {
        let entry = self.heap.swap_remove(place);
        if place < self.heap.len() {
            // The last entry filled the gap, and may have to move in either direction.
            self.sift_up(place);
            self.sift_down(place);
        }
        self.slots.remove(entry.slot as usize).token
    }

    fn sift_up(&mut self, mut place: usize) {
        let entry = self.heap[place];
        while place > 0 && entry < self.heap[(place - 1) / ARITY] {
            let parent = (place - 1) / ARITY;
            self.put(place, self.heap[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    fn sift_down(&mut self, mut place: usize) {
        let entry = self.heap[place];
        loop {
            let children = place * ARITY + 1..self.heap.len().min(place * ARITY + 1 + ARITY);
            match children.min_by_key(|child| self.heap[*child]) {
                Some(child) if self.heap[child] < entry => {
                    self.put(place, self.heap[child]);
                    place = child;
                }
                _ => break,
            }
        }
        self.put(place, entry);
    }

    fn put(&mut self, place: usize, entry: Entry) {
        self.heap[place] = entry;
        self.slots[entry.slot as usize].place = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        time::{Duration, Instant},
    };

    use super::{TimerId, Timers};
    use crate::{deadline::Deadline, event::Events, token::Token};

    /// xorshift: the same sequence in every run.
    fn below(seed: &mut u64, limit: u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed % limit
    }

    /// Equal deadlines are common, and elapse in insertion order.
    #[test]
    fn an_id_survives_as_an_integer() {
        let (mut timers, deadline) = (Timers::new(), Deadline::from(Instant::now()));
        timers.insert(deadline, Token::new(0, 0));
        let timer = timers.insert(deadline, Token::new(1, 0));
        let number = u64::from(timer);
        assert_eq!(timer, TimerId::from(number));
        assert!(!timers.cancel(TimerId::from(u64::MAX)) && timers.cancel(TimerId::from(number)));
    }

    #[test]
    fn behaves_like_an_ordered_map() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let (mut seed, mut clock) = (0x9E37_79B9_7F4A_7C15, 0);
        let (mut timers, mut events) = (Timers::new(), Events::new());
        let mut model: BTreeMap<(u64, u32), TimerId> = BTreeMap::new();
        let mut gone: Vec<TimerId> = Vec::new();
        // Miri is orders of magnitude slower.
        for arrival in 0..if cfg!(miri) { 200 } else { 20_000 } {
            let nth = below(&mut seed, model.len().max(1) as u64) as usize;
            match below(&mut seed, 10) {
                0..=5 => {
                    let due = clock + below(&mut seed, 40);
                    let timer = timers.insert(Deadline::from(at(due)), Token::new(arrival, 0));
                    model.insert((due, arrival), timer);
                }
                6 => {
                    let due = clock + below(&mut seed, 40);
                    let moved = model.keys().nth(nth).copied();
                    let moved = moved.and_then(|key| Some((key.1, model.remove(&key)?)));
                    if let Some((arrival, timer)) = moved {
                        assert!(timers.reset(timer, Deadline::from(at(due))));
                        model.insert((due, arrival), timer);
                    }
                }
                7 => {
                    let timer = model
                        .keys()
                        .nth(nth)
                        .copied()
                        .and_then(|key| model.remove(&key));
                    assert!(timer.is_none_or(|timer| timers.cancel(timer)));
                    gone.extend(timer);
                }
                8 => {
                    clock += below(&mut seed, 12);
                    events.clear();
                    timers.expire(at(clock), &mut events);
                    let later = model.split_off(&(clock + 1, 0));
                    let due = std::mem::replace(&mut model, later);
                    let tokens = events.iter().map(|event| event.token.index());
                    assert!(tokens.eq(due.keys().map(|(_, arrival)| *arrival)));
                    gone.extend(due.into_values());
                }
                _ => {
                    assert!(gone.iter().rev().take(8).all(|timer| !timers.cancel(*timer)
                        && !timers.reset(*timer, Deadline::from(start))))
                }
            }
            let next = model.keys().next().map(|(due, _)| Deadline::from(at(*due)));
            assert_eq!((timers.next(), timers.len()), (next, model.len()));
        }
        assert!(
            timers.slots.capacity() < 1_000,
            "the slots of timers that have ended are used again"
        );
    }
}
