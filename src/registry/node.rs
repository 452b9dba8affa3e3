//! The record of one wait.

use std::time::Instant;

use crate::{event::Ready, interest::Interest, registry::look_queues::Links, token::Token};

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// One wait: free, waiting, or answered. It has an interest while it waits, and an answer from then until it is ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    token: Token,
    /// When it was last armed: at its start, or by a later look.
    armed: Option<Instant>,
    /// Goes up at the end of each wait.
    generation: u32,
    /// Neighbours in the list of the descriptor's further waits; of its first wait: both ends of that list. In a free node of
    /// the slab, `next` is the next free node.
    pub(super) previous: u32,
    pub(super) next: u32,
    pub(super) links: Links,
    interest: Option<Interest>,
    answer: Ready,
}

impl Node {
    pub(super) const EMPTY: Self = Self {
        token: Token::new(0, 0),
        armed: None,
        generation: 0,
        previous: NONE,
        next: NONE,
        links: Links::NONE,
        interest: None,
        answer: Ready::EMPTY,
    };

    /// Is there neither a wait nor a list of further ones?
    #[inline(always)] // in each wait
    pub(super) fn is_unused(&self) -> bool {
        self.interest.is_none() && self.answer.is_empty() && self.next == NONE
    }

    /// A wait begins in a free node. Returns its generation.
    #[inline(always)] // in each wait
    pub(super) fn begin(&mut self, token: Token, interest: Interest, now: Instant) -> u32 {
        self.token = token;
        self.armed = Some(now);
        self.interest = Some(interest);
        self.generation
    }

    /// What it waits for; None if it does not wait.
    pub(super) fn interest(&self) -> Option<Interest> {
        self.interest
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.interest.is_some()
    }

    /// The token that the wait was started with.
    pub(super) fn token(&self) -> Token {
        self.token
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    pub(super) fn armed(&self) -> Option<Instant> {
        self.armed
    }

    pub(super) fn arm(&mut self, now: Instant) {
        self.armed = Some(now);
    }

    /// The wait gets its answer. Returns its token.
    #[inline(always)] // in each wait
    pub(super) fn answer(&mut self, ready: Ready) -> Token {
        self.interest = None;
        self.answer = ready;
        self.token
    }

    /// Token and answer of a wait that was answered and has not ended.
    pub(super) fn answered(&self, generation: u32) -> Option<(Token, Ready)> {
        let is_answered = self.generation == generation && !self.answer.is_empty();
        is_answered.then_some((self.token, self.answer))
    }

    /// The answer of a wait, which ends it. None if it is unanswered or has ended.
    #[inline(always)] // in each wait
    pub(super) fn take_answer(&mut self, generation: u32) -> Option<Ready> {
        if self.generation != generation || self.answer.is_empty() {
            return None;
        }
        Some(self.end())
    }

    /// Ends a wait, and returns its answer.
    #[inline(always)] // in each wait
    pub(super) fn end(&mut self) -> Ready {
        self.interest = None;
        self.generation = self.generation.wrapping_add(1);
        std::mem::replace(&mut self.answer, Ready::EMPTY)
    }
}
