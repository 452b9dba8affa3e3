//! The record of one wait.

use std::time::Instant;

use crate::{event::Ready, interest::Interest, token::Token};

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// One wait: free, waiting, or answered and not ended.
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
    /// How often it was looked at.
    looks: u8,
    state: State,
}

/// 0 if free; the bits of what is waited for; or, from bit 16 on, those of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State(u32);

impl State {
    const FREE: Self = Self(0);

    fn waiting(interest: Interest) -> Self {
        Self(interest.bits().into())
    }

    /// Free, if the answer is empty.
    fn answered(ready: Ready) -> Self {
        Self(u32::from(ready.bits()) << 16)
    }

    /// The bits of what is waited for.
    fn asked(self) -> u8 {
        self.0 as u8
    }

    /// Empty, unless there is an answer.
    fn answer(self) -> Ready {
        Ready::from_bits((self.0 >> 16) as u16)
    }
}

impl Node {
    pub(super) const EMPTY: Self = Self {
        token: Token::new(0, 0),
        armed: None,
        generation: 0,
        previous: NONE,
        next: NONE,
        looks: 0,
        state: State::FREE,
    };

    /// Is there neither a wait nor a list of further ones?
    #[inline(always)] // in each wait
    pub(super) fn is_unused(&self) -> bool {
        self.state == State::FREE && self.next == NONE
    }

    /// A wait begins in a free node. Returns its generation.
    #[inline(always)] // in each wait
    pub(super) fn begin(&mut self, token: Token, interest: Interest, now: Instant) -> u32 {
        self.token = token;
        self.armed = Some(now);
        self.looks = 0;
        self.state = State::waiting(interest);
        self.generation
    }

    /// What it waits for; None if it does not wait.
    pub(super) fn interest(&self) -> Option<Interest> {
        Interest::from_bits(self.asked())
    }

    /// The bits of what it waits for; 0 if it does not wait.
    pub(super) fn asked(&self) -> u8 {
        self.state.asked()
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.asked() != 0
    }

    /// The token that the wait was started with.
    pub(super) fn token(&self) -> Token {
        self.token
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// When it was last armed, and how often it was looked at.
    pub(super) fn armed(&self) -> Option<(Instant, u8)> {
        Some((self.armed?, self.looks))
    }

    /// It is looked at.
    pub(super) fn arm(&mut self, now: Instant) {
        self.armed = Some(now);
        self.looks = self.looks.saturating_add(1);
    }

    /// The wait gets its answer. Returns its token.
    #[inline(always)] // in each wait
    pub(super) fn answer(&mut self, ready: Ready) -> Token {
        self.state = State::answered(ready);
        self.token
    }

    /// Token and answer of a wait that was answered and has not ended.
    pub(super) fn answered(&self, generation: u32) -> Option<(Token, Ready)> {
        let answer = self.state.answer();
        let is_answered = self.generation == generation && !answer.is_empty();
        is_answered.then_some((self.token, answer))
    }

    /// The answer of a wait, which ends it. None if it is unanswered or has ended.
    #[inline(always)] // in each wait
    pub(super) fn take_answer(&mut self, generation: u32) -> Option<Ready> {
        if self.generation != generation || self.state.answer().is_empty() {
            return None;
        }
        Some(self.end())
    }

    /// Ends a wait, and returns its answer.
    #[inline(always)] // in each wait
    pub(super) fn end(&mut self) -> Ready {
        self.generation = self.generation.wrapping_add(1);
        std::mem::replace(&mut self.state, State::FREE).answer()
    }
}
