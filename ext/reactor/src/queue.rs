//! Who is to run next.

use std::collections::VecDeque;

use reactor::Token;

/// Whom a sleep that is over overtakes, at most: those who stood in line before it. So it ends on time however many are
/// ready; and however many sleep, nobody is overtaken by more than so many.
const OVERTAKES: u64 = 256;

/// So many looks at the kernel the patient see others preferred, before one of them gets a turn.
const PATIENCE: u32 = 8;

/// Fibers that can go on, by the tokens of the waits that are over. An entry may have been overtaken by events.
#[derive(Debug, Default)]
pub struct Queue {
    /// First come, first served.
    ready: VecDeque<Place>,
    /// Those whose time has come.
    due: VecDeque<Place>,
    /// Those who could go on but have had their term: after the others, as long as that is not for ever.
    patient: VecDeque<Token>,
    /// The number of the next place.
    next: u64,
    /// Looks at the kernel since one of the patient had a turn.
    passed_over: u32,
}

/// The lower number goes first.
#[derive(Clone, Copy, Debug)]
struct Place(u64, Token);

impl Queue {
    pub fn push(&mut self, token: Token) {
        let number = self.number();
        self.ready.push_back(Place(number, token));
    }

    pub fn push_due(&mut self, token: Token) {
        let number = self.number().saturating_sub(OVERTAKES).max(1);
        self.due.push_back(Place(number, token));
    }

    /// Before all others.
    pub fn push_first(&mut self, token: Token) {
        self.due.push_front(Place(0, token));
    }

    pub fn push_patient(&mut self, token: Token) {
        self.patient.push_back(token);
    }

    pub fn pop(&mut self) -> Option<Token> {
        let next = match (self.due.front(), self.ready.front()) {
            (Some(due), Some(ready)) if ready.0 < due.0 => self.ready.pop_front(),
            (Some(_), _) => self.due.pop_front(),
            (None, _) => self.ready.pop_front(),
        };
        next.map(|Place(_, token)| token).or_else(|| {
            self.passed_over = 0;
            self.patient.pop_front()
        })
    }

    /// The kernel was looked at.
    pub fn looked(&mut self) {
        self.passed_over += 1;
        if self.passed_over > PATIENCE {
            self.passed_over = 0;
            if let Some(token) = self.patient.pop_front() {
                self.push(token);
            }
        }
    }

    /// Whether there is nobody but the patient.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.due.is_empty()
    }

    /// Whether there is somebody but the patient; what no longer `stands` is dropped on the way.
    pub fn has(&mut self, stands: impl Fn(Token) -> bool) -> bool {
        [&mut self.due, &mut self.ready].into_iter().any(|line| {
            while line.front().is_some_and(|place| !stands(place.1)) {
                line.pop_front();
            }
            !line.is_empty()
        })
    }

    pub fn size(&self) -> usize {
        let places = self.ready.capacity() + self.due.capacity();
        places * size_of::<Place>() + self.patient.capacity() * size_of::<Token>()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(test)]
mod tests {
    use reactor::Token;

    use super::{OVERTAKES, PATIENCE, Queue};

    fn token(slot: u64) -> Token {
        Token::new(slot as u32, 0)
    }

    fn drained(queue: &mut Queue) -> Vec<u64> {
        std::iter::from_fn(|| queue.pop().map(|token| u64::from(token.index()))).collect()
    }

    #[test]
    fn the_due_overtake_the_ready_but_not_one_another() {
        let mut queue = Queue::default();
        queue.push_patient(token(9));
        queue.push(token(4));
        queue.push_due(token(2));
        queue.push(token(5));
        queue.push_due(token(3));
        queue.push_first(token(1));
        queue.push_first(token(0));
        assert_eq!([0, 1, 2, 3, 4, 5, 9][..], drained(&mut queue));
    }

    #[test]
    fn nobody_is_overtaken_by_more_than_a_number() {
        let mut queue = Queue::default();
        queue.push(token(0));
        for slot in 1..=2 * OVERTAKES {
            queue.push_due(token(slot));
        }
        let order = drained(&mut queue);
        let before = order.iter().position(|slot| *slot == 0);
        assert_eq!(Some(OVERTAKES as usize), before);
        assert!(order.iter().filter(|slot| **slot > 0).is_sorted());
    }

    #[test]
    fn whoever_comes_later_is_later_than_all_who_are_due() {
        let mut queue = Queue::default();
        for slot in 0..40 {
            queue.push_due(token(slot));
        }
        queue.push(token(40));
        assert_eq!((0..=40).collect::<Vec<_>>(), drained(&mut queue));
    }

    #[test]
    fn the_patient_do_not_wait_for_ever() {
        let mut queue = Queue::default();
        queue.push_patient(token(7));
        for _ in 0..PATIENCE {
            queue.looked();
            queue.push(token(1));
            assert_eq!(Some(token(1)), queue.pop());
        }
        queue.push(token(1));
        queue.looked();
        assert_eq!([1, 7][..], drained(&mut queue));
    }

    #[test]
    fn what_stands_no_longer_is_nobody() {
        let mut queue = Queue::default();
        queue.push_due(token(1));
        queue.push(token(2));
        assert!(queue.has(|token| token.index() == 2));
        assert!(!queue.has(|_| false));
        assert!(queue.is_empty());
    }
}
