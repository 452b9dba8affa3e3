//! The waits: a slab of nodes. Each node is linked into the list of its descriptor and into one of the look queues. Each
//! queue is sorted by the time at which its waits were last armed.

mod look_queues;

use std::time::Instant;

use crate::{event::Ready, interest::Interest, registry::wait::WaitId, token::Token};

pub(super) use look_queues::QUEUES;

/// No node.
const NONE: u32 = u32::MAX;

/// Both ends of the list of one descriptor, oldest wait first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitList {
    first: u32,
    last: u32,
}

impl WaitList {
    pub(super) const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };

    pub(super) fn first(self) -> Option<u32> {
        index(self.first)
    }

    /// The only wait in the list; None if there is none, or more than one.
    pub(super) fn only(self) -> Option<u32> {
        index(self.first).filter(|first| *first == self.last)
    }
}

fn index(link: u32) -> Option<u32> {
    (link != NONE).then_some(link)
}

#[derive(Debug)]
struct Node {
    token: Token,
    /// When it was last armed: at its start, or by a later look.
    armed: Instant,
    slot: u32,
    generation: u32,
    /// Neighbours in the list. In a free node, `next` is the next free node.
    previous: u32,
    next: u32,
    /// Its neighbours in its look queue.
    older: u32,
    newer: u32,
    interest: Interest,
    answer: Ready,
    state: State,
}

impl Node {
    fn free(armed: Instant) -> Self {
        Self {
            token: Token::new(0, 0),
            armed,
            slot: 0,
            generation: 0,
            previous: NONE,
            next: NONE,
            older: NONE,
            newer: NONE,
            interest: Interest::READABLE,
            answer: Ready::EMPTY,
            state: State::Free,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Also the heads of the look queues.
    Free,
    /// In its list, and in a look queue.
    Waiting,
    /// In no list and no queue; kept until it is ended.
    Answered,
}

/// All waits. Nodes are reused: a wait allocates only if there are more at a time than ever before.
#[derive(Debug)]
pub(super) struct Waiters {
    /// The heads of the look queues, then the waits.
    nodes: Vec<Node>,
    free: u32,
    /// A bit for each look queue that is not empty.
    occupied: u8,
}

impl Waiters {
    pub(super) fn new() -> Self {
        Self {
            nodes: look_queues::heads(),
            free: NONE,
            occupied: 0,
        }
    }

    /// Adds a wait to the end of a list and of the first look queue.
    #[inline(always)] // in each wait
    pub(super) fn insert(
        &mut self,
        list: &mut WaitList,
        slot: u32,
        interest: Interest,
        token: Token,
        now: Instant,
    ) -> WaitId {
        if self.free == NONE {
            self.grow(now);
        }
        let number = self.free;
        let node = &mut self.nodes[number as usize];
        let generation = node.generation;
        self.free = node.next;
        *node = Node {
            token,
            armed: now,
            slot,
            generation,
            previous: list.last,
            next: NONE,
            older: node.older,
            newer: node.newer,
            interest,
            answer: Ready::EMPTY,
            state: State::Waiting,
        };
        self.queue(number, 0);
        match list.last {
            NONE => list.first = number,
            last => self.nodes[last as usize].next = number,
        }
        list.last = number;
        WaitId {
            node: number,
            generation,
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, now: Instant) {
        self.free = self.nodes.len() as u32;
        self.nodes.push(Node::free(now));
    }

    fn id(&self, number: u32) -> WaitId {
        WaitId {
            node: number,
            generation: self.nodes[number as usize].generation,
        }
    }

    /// The node of a wait that has not ended.
    fn find(&self, wait: WaitId) -> Option<&Node> {
        let node = self.nodes.get(wait.node as usize)?;
        (node.generation == wait.generation && node.state != State::Free).then_some(node)
    }

    /// The slot of an unanswered wait; None if it was answered or has ended.
    pub(super) fn slot_of_unanswered(&self, wait: WaitId) -> Option<u32> {
        let node = self.find(wait)?;
        (node.state == State::Waiting).then_some(node.slot)
    }

    /// Token and answer of a wait that was answered and has not ended.
    pub(super) fn answered(&self, wait: WaitId) -> Option<(Token, Ready)> {
        let node = self.find(wait)?;
        (node.state == State::Answered).then_some((node.token, node.answer))
    }

    /// The answer of a wait, which ends it. None if it is unanswered or has ended.
    pub(super) fn take_answer(&mut self, wait: WaitId) -> Option<Ready> {
        let node = self.nodes.get_mut(wait.node as usize)?;
        if node.generation != wait.generation || node.state != State::Answered {
            return None;
        }
        node.generation = node.generation.wrapping_add(1);
        node.state = State::Free;
        node.next = self.free;
        self.free = wait.node;
        Some(node.answer)
    }

    /// Answers a wait: removes it from its list and from its look queue, and keeps the answer until the wait is ended.
    pub(super) fn complete(
        &mut self,
        list: &mut WaitList,
        number: u32,
        ready: Ready,
    ) -> (WaitId, Token) {
        self.unqueue(number);
        let node = &mut self.nodes[number as usize];
        node.answer = ready;
        node.state = State::Answered;
        let (previous, next, token) = (node.previous, node.next, node.token);
        match previous {
            NONE => list.first = next,
            previous => self.nodes[previous as usize].next = next,
        }
        match next {
            NONE => list.last = previous,
            next => self.nodes[next as usize].previous = previous,
        }
        (self.id(number), token)
    }

    /// As [`Waiters::complete`], for the only wait in its list.
    pub(super) fn complete_only(
        &mut self,
        list: &mut WaitList,
        number: u32,
        ready: Ready,
    ) -> Token {
        *list = WaitList::EMPTY;
        self.unqueue(number);
        let node = &mut self.nodes[number as usize];
        node.answer = ready;
        node.state = State::Answered;
        node.token
    }

    /// The interest of a wait, and the next wait in the list.
    pub(super) fn interest_and_next(&self, number: u32) -> (Interest, Option<u32>) {
        let node = &self.nodes[number as usize];
        (node.interest, index(node.next))
    }

    /// The token that the wait was started with.
    pub(super) fn token(&self, number: u32) -> Token {
        self.nodes[number as usize].token
    }

    /// The bits of all directions that a wait in the list asks for.
    pub(super) fn wanted(&self, list: WaitList) -> u8 {
        let mut wanted = 0;
        let mut place = list.first();
        while let Some(number) = place {
            let (interest, next) = self.interest_and_next(number);
            wanted |= interest.bits();
            place = next;
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{QUEUES, WaitList, Waiters};
    use crate::{event::Ready, interest::Interest, token::Token};

    const READ: Interest = Interest::READABLE;

    fn tokens(waiters: &Waiters, list: WaitList) -> Vec<u32> {
        let mut tokens = Vec::new();
        let mut place = list.first();
        while let Some(number) = place {
            tokens.push(waiters.nodes[number as usize].token.index());
            place = waiters.interest_and_next(number).1;
        }
        tokens
    }

    #[test]
    fn lists_keep_their_order_when_a_wait_is_unlinked() {
        let (mut waiters, mut list, now) = (Waiters::new(), WaitList::EMPTY, Instant::now());
        let waits: Vec<_> = (0..5)
            .map(|index| waiters.insert(&mut list, 9, READ, Token::new(index, 0), now))
            .collect();
        waiters.complete(&mut list, waits[2].node, Ready::EMPTY);
        assert_eq!(tokens(&waiters, list), [0, 1, 3, 4]);
        waiters.complete(&mut list, waits[0].node, Ready::EMPTY);
        waiters.complete(&mut list, waits[4].node, Ready::EMPTY);
        assert_eq!(tokens(&waiters, list), [1, 3]);
        waiters.complete(&mut list, waits[1].node, Ready::EMPTY);
        waiters.complete(&mut list, waits[3].node, Ready::EMPTY);
        assert_eq!(list, WaitList::EMPTY);
        assert_eq!(waiters.oldest(0), None);
    }

    #[test]
    fn the_oldest_is_first_across_lines() {
        let (mut waiters, start) = (Waiters::new(), Instant::now());
        let mut lists = [WaitList::EMPTY; 3];
        for (slot, list) in lists.iter_mut().enumerate() {
            let started = start + Duration::from_millis(slot as u64);
            _ = waiters.insert(list, slot as u32, READ, Token::new(0, 0), started);
        }
        assert_eq!(waiters.oldest(0), Some((start, 0)));
        let later = start + Duration::from_secs(1);
        waiters.move_on(0, later);
        assert_eq!(waiters.oldest(0).map(|(_, slot)| slot), Some(1));
        assert_eq!(waiters.oldest(1), Some((later, 0)));
        assert_ne!(lists[0], WaitList::EMPTY);
        let first = lists[1].first().unwrap();
        waiters.complete(&mut lists[1], first, Ready::READABLE);
        assert_eq!(waiters.oldest(0).map(|(_, slot)| slot), Some(2));
    }

    #[test]
    fn a_wait_stays_in_the_last_queue() {
        let (mut waiters, mut list, now) = (Waiters::new(), WaitList::EMPTY, Instant::now());
        for index in 0..2 {
            _ = waiters.insert(&mut list, index, READ, Token::new(index, 0), now);
        }
        for queue in 0..QUEUES - 1 {
            waiters.move_on(queue, now);
            waiters.move_on(queue, now);
        }
        assert_eq!(waiters.oldest(QUEUES - 1), Some((now, 0)));
        waiters.move_on(QUEUES - 1, now);
        assert_eq!(waiters.oldest(QUEUES - 1), Some((now, 1)));
    }

    #[test]
    fn an_ended_wait_has_no_number() {
        let (mut waiters, mut list) = (Waiters::new(), WaitList::EMPTY);
        let wait = waiters.insert(&mut list, 0, READ, Token::new(1, 0), Instant::now());
        let first = list.only().unwrap();
        let (same, _) = waiters.complete(&mut list, first, Ready::READABLE);
        assert_eq!(same, wait);
        assert_eq!(waiters.slot_of_unanswered(wait), None);
        assert_eq!(waiters.take_answer(wait), Some(Ready::READABLE));
        assert_eq!(waiters.take_answer(wait), None);
        let next = waiters.insert(&mut list, 0, READ, Token::new(2, 0), Instant::now());
        assert_ne!(next, wait);
        assert_eq!(waiters.answered(wait), None);
        assert_eq!(waiters.nodes.len(), QUEUES + 1);
    }
}
