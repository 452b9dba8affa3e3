//! The deadline queue: a four-ary heap whose entries know their place, so that cancelling takes one out at once.

use std::time::Instant;

use crate::{
    deadline::Deadline,
    event::{Event, Events, Ready},
    token::Token,
};

/// Names a timer; may be kept after it has fired or been cancelled, harmlessly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId(Token);

/// Timers by deadline. Setting and cancelling take O(log n) and nothing is left behind: a million timers set and
/// cancelled one after another occupy the room of one.
///
/// ```
/// use std::time::{Duration, Instant};
/// use reactor::{Deadline, Events, Ready, Timers, Token};
///
/// let (mut timers, now) = (Timers::default(), Instant::now());
/// let hour = timers.insert(Deadline::after_from(now, Duration::from_secs(3600)), Token::new(1, 0));
/// timers.insert(Deadline::after_from(now, Duration::from_millis(1)), Token::new(2, 0));
/// assert!(timers.cancel(hour));
///
/// let mut events = Events::default();
/// timers.expire(now + Duration::from_millis(1), &mut events);
/// assert_eq!(events[0].token, Token::new(2, 0));
/// assert_eq!(events[0].ready, Ready::ELAPSED);
/// ```
#[derive(Debug, Default)]
pub struct Timers {
    heap: Vec<Entry>,
    /// Where in the heap each slot's timer is, and the generation of the slot's use.
    places: Vec<Place>,
    free: Vec<u32>,
    sequence: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    deadline: Deadline,
    /// Order among equal deadlines.
    sequence: u64,
    token: Token,
    slot: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    generation: u32,
    position: Option<u32>,
}

const ARITY: usize = 4;

impl Entry {
    fn key(&self) -> (Deadline, u64) {
        (self.deadline, self.sequence)
    }
}

impl Timers {
    /// Sets a timer that reports `token` when `deadline` has come.
    pub fn insert(&mut self, deadline: Deadline, token: Token) -> TimerId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            (self.places.len() - 1) as u32
        });
        self.sequence += 1;
        self.heap.push(Entry {
            deadline,
            sequence: self.sequence,
            token,
            slot,
        });
        self.sift_up(self.heap.len() - 1);
        TimerId(Token::new(slot, self.places[slot as usize].generation))
    }

    /// Takes a timer back. False if it has fired or been cancelled before.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        let place = self.places.get(timer.0.index() as usize);
        let position = place
            .filter(|place| Token::new(timer.0.index(), place.generation) == timer.0)
            .and_then(|place| place.position);
        match position {
            Some(position) => {
                self.remove(position as usize);
                true
            }
            None => false,
        }
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Deadline> {
        self.heap.first().map(|entry| entry.deadline)
    }

    /// Reports every timer that is due as [`Ready::ELAPSED`], in the order of deadlines, equal ones in the order in
    /// which they were set.
    pub fn expire(&mut self, now: Instant, events: &mut Events) {
        while self
            .heap
            .first()
            .is_some_and(|entry| entry.deadline.is_due(now))
        {
            let entry = self.remove(0);
            events.push(Event {
                token: entry.token,
                ready: Ready::ELAPSED,
            });
        }
    }

    /// How many are set.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether none is set.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    fn remove(&mut self, position: usize) -> Entry {
        let removed = self.heap.swap_remove(position);
        let place = &mut self.places[removed.slot as usize];
        place.position = None;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(removed.slot);
        if position < self.heap.len() {
            self.settle(position);
            self.sift_down(position);
            self.sift_up(position);
        }
        removed
    }

    fn sift_up(&mut self, mut position: usize) {
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.heap[parent].key() <= self.heap[position].key() {
                break;
            }
            self.heap.swap(parent, position);
            self.settle(position);
            position = parent;
        }
        self.settle(position);
    }

    fn sift_down(&mut self, mut position: usize) {
        loop {
            let children = position * ARITY + 1..self.heap.len().min(position * ARITY + ARITY + 1);
            let Some(least) = children.min_by_key(|child| self.heap[*child].key()) else {
                break;
            };
            if self.heap[position].key() <= self.heap[least].key() {
                break;
            }
            self.heap.swap(position, least);
            self.settle(position);
            position = least;
        }
        self.settle(position);
    }

    fn settle(&mut self, position: usize) {
        let slot = self.heap[position].slot;
        self.places[slot as usize].position = Some(position as u32);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use super::*;

    /// xorshift64: the same sequence every time.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn behaves_like_a_sorted_map() {
        let (mut timers, mut model) = (Timers::default(), BTreeMap::new());
        let (mut state, mut ids, start) = (42, Vec::new(), Instant::now());
        for step in 0..20_000_u32 {
            match random(&mut state) % 5 {
                0..=2 => {
                    let delay = Duration::from_nanos(random(&mut state) % 1000);
                    let deadline = Deadline::after_from(start, delay);
                    let id = timers.insert(deadline, Token::new(step, 0));
                    model.insert((deadline, step), id);
                    ids.push((deadline, step, id));
                }
                3 if !ids.is_empty() => {
                    let chosen = random(&mut state) as usize % ids.len();
                    let (deadline, step, id) = ids.swap_remove(chosen);
                    assert_eq!(timers.cancel(id), model.remove(&(deadline, step)).is_some());
                }
                _ => {
                    let now = start + Duration::from_nanos(random(&mut state) % 1000);
                    let mut events = Events::default();
                    timers.expire(now, &mut events);
                    let due: Vec<_> = model
                        .keys()
                        .take_while(|(deadline, _)| deadline.is_due(now))
                        .copied()
                        .collect();
                    let tokens: Vec<_> = events.iter().map(|event| event.token.index()).collect();
                    assert_eq!(
                        tokens,
                        due.iter().map(|(_, step)| *step).collect::<Vec<_>>()
                    );
                    due.iter().for_each(|key| _ = model.remove(key));
                }
            }
            assert_eq!(timers.len(), model.len());
            assert_eq!(
                timers.next(),
                model.keys().next().map(|(deadline, _)| *deadline)
            );
        }
    }

    #[test]
    fn cancelled_timers_leave_nothing_behind() {
        let mut timers = Timers::default();
        let hour = Deadline::after(Duration::from_secs(3600));
        for number in 0..1_000_000 {
            let timer = timers.insert(hour, Token::new(number, 0));
            assert!(timers.cancel(timer));
            assert!(!timers.cancel(timer));
        }
        assert!(timers.is_empty());
        assert!(timers.heap.capacity() <= 4 && timers.places.len() == 1);
    }
}
