//! Which fiber runs next.

use std::collections::VecDeque;

use reactor::Token;

use crate::state::{chance::Chance, fiber::Slot, object_ref::ObjectRef};

/// An expired sleeper overtakes at most this many fibers queued before it. So it runs on time when fewer fibers are ready,
/// and no fiber is overtaken by more sleepers than this.
///
/// With many more, sleepers that expire in a burst and sleep again would run twice before a fiber whose descriptor they
/// made ready (`bench/NOTES.md`, "How many ready fibers a sleeper overtakes").
const MAX_OVERTAKES: u64 = 64;

/// The first low-priority fiber gets a turn after at most this many polls.
const MAX_POLLS_SKIPPED: u32 = 8;

/// After a poll, the clock is read after each of this many resumes, then once per this many resumes.
const CLOCK_CHECK_INTERVAL: u32 = 4;

/// The next step of a fiber that gives up control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Fiber(Slot, ObjectRef),
    /// A watcher's fiber is to start.
    Watcher(Token),
    /// A fiber is ready, but the last poll was too long ago.
    Poll,
    Nothing,
}

/// Ready fibers, by the tokens of their ended waits, and due watchers. An entry is stale if the fiber has waited since or
/// the watcher has ended.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    /// First come, first served.
    ready: VecDeque<Ticket>,
    /// Entries from `push_first`, then those from `push_elapsed`.
    ahead: VecDeque<Ticket>,
    /// Fibers that have used up their time slice. They run after all others, but are skipped for at most
    /// [`MAX_POLLS_SKIPPED`] polls.
    low_priority: VecDeque<Token>,
    next_ticket: u64,
    /// The last ticket of the round. The round consists of the entries that the last poll left in the queue.
    round_end: u64,
    /// Polls since a low-priority fiber had a turn.
    polls_skipped: u32,
    resumed_since_poll: u32,
    /// Whether the entry taken last was low-priority.
    is_low_priority: bool,
    /// Present if the order is shuffled.
    chance: Option<Chance>,
}

/// Lower numbers go first.
#[derive(Clone, Copy, Debug)]
struct Ticket(u64, Token);

impl ReadyQueue {
    pub fn push(&mut self, token: Token) {
        let number = self.ticket_number();
        self.ready.push_back(Ticket(number, token));
    }

    /// Queues a fiber or watcher whose timer elapsed: it overtakes up to `MAX_OVERTAKES` others.
    pub fn push_elapsed(&mut self, token: Token) {
        let number = self.ticket_number().saturating_sub(MAX_OVERTAKES).max(1);
        self.ahead.push_back(Ticket(number, token));
    }

    /// Queues before all other fibers.
    pub fn push_first(&mut self, token: Token) {
        self.ahead.push_front(Ticket(0, token));
    }

    pub fn push_low_priority(&mut self, token: Token) {
        self.low_priority.push_back(token);
    }

    pub fn pop(&mut self) -> Option<Token> {
        let next = match (self.ahead.front(), self.ready.front()) {
            (Some(ahead), Some(ready)) if ready.0 < ahead.0 => self.ready.pop_front(),
            (Some(_), _) => self.ahead.pop_front(),
            (None, _) => self.ready.pop_front(),
        };
        self.is_low_priority = next.is_none();
        next.map(|Ticket(_, token)| token).or_else(|| {
            self.polls_skipped = 0;
            self.low_priority.pop_front()
        })
    }

    /// A poll begins.
    pub fn begin_poll(&mut self) {
        self.resumed_since_poll = 0;
    }

    /// A poll has ended.
    pub fn end_poll(&mut self) {
        self.round_end = self.next_ticket;
        self.polls_skipped += 1;
        if self.polls_skipped > MAX_POLLS_SKIPPED {
            self.polls_skipped = 0;
            if let Some(token) = self.low_priority.pop_front() {
                self.push(token);
            }
        }
    }

    /// A fiber is about to be resumed.
    pub fn on_resume(&mut self) {
        self.resumed_since_poll += 1;
    }

    /// Whether the running fiber has had all the time since the last poll to itself, or already had low priority.
    pub fn has_slice_for_itself(&self) -> bool {
        self.resumed_since_poll <= 1 || self.is_low_priority
    }

    /// How many fibers have been resumed since the last poll.
    pub fn resumed(&self) -> u32 {
        self.resumed_since_poll
    }

    /// Whether ready entries are picked at random.
    pub fn is_shuffled(&self) -> bool {
        self.chance.is_some()
    }

    /// From now on, ready entries are picked at random, except those from [`ReadyQueue::push_first`].
    pub fn shuffle(&mut self, seed: u64) {
        self.chance = Some(Chance::new(seed));
    }

    /// A fingerprint of all choices so far; `None` if the order is not shuffled.
    pub fn shuffled(&self) -> Option<u64> {
        self.chance.as_ref().map(Chance::digest)
    }

    /// Moves a random valid entry to the front. False if the order is not shuffled, or a poll is due because a fiber has
    /// run since the last one.
    pub fn choose(&mut self, is_valid: impl Fn(Token) -> bool) -> bool {
        if self.chance.is_none() || self.resumed_since_poll > 0 {
            return false;
        }
        let is_decided =
            !self.has(&is_valid) || self.ahead.front().is_some_and(|ticket| ticket.0 == 0);
        if is_decided {
            return true;
        }
        for line in [&mut self.ahead, &mut self.ready] {
            line.retain(|ticket| is_valid(ticket.1));
        }
        let count = self.ahead.len() + self.ready.len();
        // Where there is no choice, the seed's sequence does not depend on how often that is.
        let chance = self.chance.as_mut().filter(|_| count > 1);
        let index = chance.map_or(0, |it| it.below(count));
        let chosen = match index.checked_sub(self.ahead.len()) {
            None => self.ahead.remove(index),
            Some(index) => self.ready.remove(index),
        };
        if let Some(Ticket(_, token)) = chosen {
            self.push_first(token);
        }
        true
    }

    /// Whether all fibers that were ready after the last poll have had their turn.
    pub fn is_round_over(&self) -> bool {
        [&self.ahead, &self.ready]
            .into_iter()
            .all(|line| line.front().is_none_or(|ticket| ticket.0 > self.round_end))
    }

    /// Whether to read the clock to see how long ago the last poll was. Reading it takes half as long as a switch.
    pub fn is_clock_check_due(&self) -> bool {
        let resumed = self.resumed_since_poll;
        resumed > 0 && (resumed <= CLOCK_CHECK_INTERVAL || resumed % CLOCK_CHECK_INTERVAL == 0)
    }

    /// Whether the queue is completely empty. If so, the clock is not read, because a poll comes next anyway.
    pub fn is_empty(&self) -> bool {
        self.has_only_low_priority() && self.low_priority.is_empty()
    }

    /// Whether it holds only low-priority fibers.
    pub fn has_only_low_priority(&self) -> bool {
        self.ready.is_empty() && self.ahead.is_empty()
    }

    /// Whether it holds a fiber that is not low-priority. Drops stale entries on the way.
    pub fn has(&mut self, is_valid: impl Fn(Token) -> bool) -> bool {
        [&mut self.ahead, &mut self.ready].into_iter().any(|line| {
            while line.front().is_some_and(|ticket| !is_valid(ticket.1)) {
                line.pop_front();
            }
            !line.is_empty()
        })
    }

    /// All entries, in no particular order.
    pub fn tokens(&self) -> impl Iterator<Item = Token> {
        let tickets = self.ahead.iter().chain(&self.ready);
        tickets
            .map(|ticket| ticket.1)
            .chain(self.low_priority.iter().copied())
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.ready.len() + self.ahead.len() + self.low_priority.len()
    }

    fn ticket_number(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

#[cfg(test)]
mod tests {
    use reactor::Token;

    use super::{CLOCK_CHECK_INTERVAL, MAX_OVERTAKES, MAX_POLLS_SKIPPED, ReadyQueue};

    fn token(slot: u64) -> Token {
        Token::new(slot as u32, 0)
    }

    fn drained(queue: &mut ReadyQueue) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop().map(|token| u64::from(token.index()))).collect()
    }

    #[test]
    fn expired_sleepers_overtake_ready_fibers_but_not_one_another() {
        let mut queue = ReadyQueue::default();
        queue.push_low_priority(token(9));
        queue.push(token(4));
        queue.push_elapsed(token(2));
        queue.push(token(5));
        queue.push_elapsed(token(3));
        queue.push_first(token(1));
        queue.push_first(token(0));
        assert_eq!([0, 1, 2, 3, 4, 5, 9][..], drained(&mut queue));
    }

    #[test]
    fn no_fiber_is_overtaken_by_more_than_the_limit() {
        let mut queue = ReadyQueue::default();
        queue.push(token(0));
        for slot in 1..=2 * MAX_OVERTAKES {
            queue.push_elapsed(token(slot));
        }
        let order = drained(&mut queue);
        let before = order.iter().position(|slot| *slot == 0);
        assert_eq!(Some(MAX_OVERTAKES as usize), before);
        assert!(order.iter().filter(|slot| **slot > 0).is_sorted());
    }

    #[test]
    fn a_later_fiber_runs_after_all_expired_sleepers() {
        let mut queue = ReadyQueue::default();
        for slot in 0..40 {
            queue.push_elapsed(token(slot));
        }
        queue.push(token(40));
        assert_eq!((0..=40).collect::<Vec<_>>(), drained(&mut queue));
    }

    #[test]
    fn low_priority_waits_for_a_bounded_number_of_polls() {
        let mut queue = ReadyQueue::default();
        queue.push_low_priority(token(7));
        for _ in 0..MAX_POLLS_SKIPPED {
            queue.end_poll();
            queue.push(token(1));
            assert_eq!(Some(token(1)), queue.pop());
        }
        queue.push(token(1));
        queue.end_poll();
        assert_eq!([1, 7][..], drained(&mut queue));
    }

    #[test]
    fn a_round_is_over_when_all_that_were_ready_after_the_poll_have_gone() {
        let mut queue = ReadyQueue::default();
        assert!(queue.is_round_over());
        queue.push(token(1));
        assert!(queue.is_round_over(), "it was not ready then");
        queue.push_elapsed(token(2));
        queue.end_poll();
        queue.push(token(3));
        for last in [2, 1] {
            assert!(!queue.is_round_over());
            assert_eq!(Some(token(last)), queue.pop());
        }
        assert!(queue.is_round_over());
        queue.push_first(token(4));
        assert!(!queue.is_round_over(), "its turn has come");
    }

    #[test]
    fn stale_entries_do_not_count() {
        let mut queue = ReadyQueue::default();
        queue.push_elapsed(token(1));
        queue.push(token(2));
        assert!(queue.has(|token| token.index() == 2));
        assert!(!queue.has(|_| false));
        assert!(queue.has_only_low_priority());
    }

    #[test]
    fn chance_decides_among_the_entries_that_stand() {
        let order = |seed: u64| {
            let mut queue = ReadyQueue::default();
            queue.shuffle(seed);
            (4..8).for_each(|slot| queue.push(token(slot)));
            (0..4).for_each(|slot| queue.push_elapsed(token(slot)));
            queue.push_first(token(9));
            let drawn = std::iter::from_fn(|| {
                queue.begin_poll();
                assert!(queue.is_shuffled() && queue.choose(|token| token.index() != 6));
                let next = queue.pop();
                queue.on_resume();
                assert!(!queue.choose(|_| true), "a poll is due");
                next.map(|token| token.index())
            });
            (drawn.collect::<Vec<_>>(), queue.shuffled())
        };
        let (first, digest) = order(1);
        assert_eq!((first.clone(), digest), order(1));
        assert_ne!(digest, order(2).1);
        assert_eq!(9, first[0], "it was pushed before all others");
        let mut sorted = first.clone();
        sorted.sort_unstable();
        assert_eq!([0, 1, 2, 3, 4, 5, 7, 9][..], sorted);
        let leaders = (0..200)
            .map(|seed| order(seed).0[1])
            .collect::<std::collections::HashSet<_>>();
        assert_eq!(7, leaders.len(), "each may be the next");
        assert_eq!(None, ReadyQueue::default().shuffled());
    }

    #[test]
    fn resumes_are_counted_from_poll_to_poll() {
        let mut queue = ReadyQueue::default();
        let mut checks = 0;
        for _ in 0..4 * CLOCK_CHECK_INTERVAL {
            checks += u32::from(queue.is_clock_check_due());
            queue.on_resume();
        }
        // After each of the first four, then after every fourth.
        assert_eq!(CLOCK_CHECK_INTERVAL + 2, checks);
        queue.begin_poll();
        assert!(!queue.is_clock_check_due());
    }
}
