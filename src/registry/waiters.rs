//! The waits: how they begin, are answered and end.

use std::time::Instant;

use crate::{
    event::{Event, Events, Ready},
    interest::Interest,
    registry::{Registry, wait::WaitId},
    token::Token,
};

impl Registry {
    /// Adds a wait to the end of its descriptor's list.
    #[inline(never)] // most waits are the only one
    pub(super) fn insert(
        &mut self,
        slot: u32,
        interest: Interest,
        token: Token,
        now: Instant,
    ) -> WaitId {
        let number = self.entries.free_node(slot);
        let node = self.entries.node_mut(number);
        let generation = node.begin(token, interest, now);
        self.looks.begin(now);
        WaitId {
            node: number,
            generation,
        }
    }

    /// Answers a wait: removes it from its list, and keeps the answer until the wait is ended.
    pub(super) fn complete(&mut self, number: u32, ready: Ready) -> (WaitId, Token) {
        self.entries.unlink(number);
        let node = self.entries.node_mut(number);
        let (token, generation) = (node.answer(ready), node.generation());
        let wait = WaitId {
            node: number,
            generation,
        };
        (wait, token)
    }

    /// Ends a wait and returns its answer; [`Ready::EMPTY`] if it has none, or if it has ended before.
    #[inline] // in each wait
    pub(crate) fn end(&mut self, wait: WaitId) -> Ready {
        let entry = self.entries.get_mut(wait.node);
        match entry.and_then(|entry| entry.node.take_answer(wait.generation)) {
            Some(answer) => answer,
            None => self.end_other(wait),
        }
    }

    /// Ends a wait that is not the first one of its descriptor, or is unanswered, or does not exist.
    #[cold]
    #[inline(never)]
    fn end_other(&mut self, wait: WaitId) -> Ready {
        let node = self.entries.find_node(wait.node);
        let Some(node) = node.filter(|node| node.generation() == wait.generation) else {
            return Ready::EMPTY;
        };
        if node.is_waiting() {
            self.complete(wait.node, Ready::EMPTY);
        } else if node.answered(wait.generation).is_none() {
            return Ready::EMPTY;
        }
        let answer = self.entries.node_mut(wait.node).end();
        self.entries.release(wait.node);
        answer
    }

    /// The tokens of the unanswered waits of a slot, oldest first.
    pub(super) fn tokens(&self, slot: u32) -> Vec<Token> {
        let waits = self.entries.waits(slot);
        waits.map(|(_, node)| node.token()).collect()
    }

    /// The bits of all directions that an unanswered wait of the slot asks for.
    pub(super) fn wanted(&self, slot: u32) -> u8 {
        let asked = self.entries.waits(slot).map(|(_, node)| node.asked());
        asked.fold(0, |wanted, asked| wanted | asked)
    }

    /// Appends the answers given outside events. Waits that have ended meanwhile are left out.
    #[inline(never)] // few polls have one
    pub(crate) fn deliver(&mut self, events: &mut Events) {
        for wait in self.answered.drain(..) {
            let node = self.entries.find_node(wait.node);
            let answered = node.and_then(|node| node.answered(wait.generation));
            if let Some((token, ready)) = answered {
                events.push(Event { token, ready });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::Registry;
    use crate::{event::Ready, interest::Interest, registry::WaitId, token::Token};

    const READ: Interest = Interest::READABLE;

    /// A registry, and a time.
    struct Waits(Registry, Instant);

    impl Waits {
        fn new() -> Self {
            Self(Registry::new(), Instant::now())
        }

        fn begin(&mut self, slot: u32, token: u32) -> WaitId {
            self.0.statistics.waits += 1;
            self.0.insert(slot, READ, Token::new(token, 0), self.1)
        }

        fn tokens(&self, slot: u32) -> Vec<u32> {
            let tokens = self.0.tokens(slot);
            tokens.iter().map(|token| token.index()).collect()
        }
    }

    #[test]
    fn lists_keep_their_order_when_a_wait_is_unlinked() {
        let mut waits = Waits::new();
        let begun: Vec<_> = (0..5).map(|token| waits.begin(9, token)).collect();
        waits.0.complete(begun[2].node, Ready::EMPTY);
        assert_eq!(waits.tokens(9), [0, 1, 3, 4]);
        waits.0.complete(begun[0].node, Ready::READABLE);
        waits.0.complete(begun[4].node, Ready::EMPTY);
        assert_eq!(waits.tokens(9), [1, 3]);
        // The first node has an answer, which nobody has taken. The next wait stands behind the others.
        waits.begin(9, 5);
        assert_eq!(waits.tokens(9), [1, 3, 5]);
        assert_eq!(waits.0.end(begun[0]), Ready::READABLE);
        waits.begin(9, 6);
        assert_eq!(waits.tokens(9), [1, 3, 5, 6]);
        for wait in [begun[1], begun[3]] {
            assert_eq!(waits.0.end(wait), Ready::EMPTY);
        }
        assert_eq!(waits.tokens(9), [5, 6]);
    }

    #[test]
    fn an_ended_wait_has_no_number() {
        let mut waits = Waits::new();
        for left in 1..=2 {
            // The first one stands in the descriptor's record, the second one does not.
            let wait = waits.begin(0, 1);
            let (same, _) = waits.0.complete(wait.node, Ready::READABLE);
            assert_eq!(same, wait);
            assert_eq!(waits.0.end(wait), Ready::READABLE);
            assert_eq!(waits.0.end(wait), Ready::EMPTY);
            let next = waits.begin(0, 2);
            assert_eq!(next.node, wait.node);
            assert_ne!(next, wait);
            assert_eq!(waits.0.end(wait), Ready::EMPTY);
            assert_eq!(waits.tokens(0).len(), left);
        }
    }
}
