//! The waits for one descriptor.

use std::{collections::VecDeque, time::Instant};

use crate::{
    event::{Event, Events, Ready},
    interest::Interest,
    token::Token,
};

/// The waits for one descriptor, oldest first. Usually there is only one.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    first: Pending,
    /// Waits that began while another was pending. Once allocated, the memory is kept. One that has ended stays between
    /// two that wait until the memory is full, because to remove it would move the others.
    #[expect(clippy::box_collection, reason = "an entry is a cache line")]
    further: Option<Box<VecDeque<Pending>>>,
}

/// One wait, or an empty slot for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    token: Token,
    /// When it was last armed: at its start, or by a re-arm.
    armed: Option<Instant>,
    generation: u32,
    /// The bits of the directions it waits for; 0 once it has ended.
    asked: u8,
    /// How often it was re-armed.
    rearms: u8,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            token: Token::new(0, 0),
            armed: None,
            generation: 0,
            asked: 0,
            rearms: 0,
        }
    }
}

impl Pending {
    fn is_waiting(&self) -> bool {
        self.asked != 0
    }

    #[inline]
    fn begin(&mut self, generation: u32, token: Token, asked: Interest, now: Instant) {
        self.token = token;
        self.armed = Some(now);
        self.generation = generation;
        self.asked = asked.bits();
        self.rearms = 0;
    }

    /// Ends it and returns the directions it waited for if `directions` has one of them; otherwise 0.
    fn end(&mut self, directions: u8) -> u8 {
        match self.asked & directions {
            0 => 0,
            _ => std::mem::take(&mut self.asked),
        }
    }

    /// Ends it by an event if `ready` answers it.
    fn answer(&mut self, ready: Ready, events: &mut Events) -> bool {
        let is_answered = self.end(ready.directions()) != 0;
        if is_answered {
            let token = self.token;
            events.push(Event { token, ready });
        }
        is_answered
    }
}

impl Waits {
    /// Starts a wait. Generations increase.
    #[inline]
    pub(crate) fn begin(&mut self, generation: u32, token: Token, asked: Interest, now: Instant) {
        if !self.first.is_waiting() && self.further.is_none() {
            self.first.begin(generation, token, asked, now);
        } else {
            self.begin_further(generation, token, asked, now);
        }
    }

    #[inline(never)] // rare: most waits are the only one
    fn begin_further(&mut self, generation: u32, token: Token, asked: Interest, now: Instant) {
        let further = self.further.get_or_insert_default();
        if further.is_empty() && !self.first.is_waiting() {
            return self.first.begin(generation, token, asked, now);
        }
        if further.len() == further.capacity() {
            further.retain(Pending::is_waiting);
            further.reserve(further.len());
        }
        let mut wait = Pending::default();
        wait.begin(generation, token, asked, now);
        further.push_back(wait);
    }

    /// Ends each wait for one of these directions, and appends its event. False if there are none.
    pub(crate) fn answer(&mut self, ready: Ready, events: &mut Events) -> bool {
        if self.further.is_some() {
            return self.answer_all(ready, events);
        }
        self.first.answer(ready, events)
    }

    #[inline(never)] // rare: most waits are the only one
    fn answer_all(&mut self, ready: Ready, events: &mut Events) -> bool {
        let answered = self.all_mut().map(|wait| wait.answer(ready, events));
        let is_any = answered.fold(false, |any, is_answered| any | is_answered);
        self.drop_ended();
        is_any
    }

    /// Ends waits outside an event: those that `answer` answers, or, if it is None, all waits, each answered with the
    /// directions it asked for. Appends their generations and events.
    pub(crate) fn abandon(&mut self, answer: Option<Ready>, mut append: impl FnMut(u32, Event)) {
        let directions = answer.map_or(u8::MAX, Ready::directions);
        for wait in self.all_mut() {
            let asked = wait.end(directions);
            if asked != 0 {
                let ready = answer.unwrap_or(Ready::from_bits(asked.into()));
                let token = wait.token;
                append(wait.generation, Event { token, ready });
            }
        }
        self.drop_ended();
    }

    fn drop_ended(&mut self) {
        if let Some(further) = &mut self.further {
            further.retain(Pending::is_waiting);
        }
    }

    /// Ends a wait without an event. False if it has already ended.
    #[inline]
    pub(crate) fn cancel(&mut self, generation: u32) -> bool {
        if self.first.generation == generation {
            return self.first.end(u8::MAX) != 0;
        }
        self.cancel_further(generation)
    }

    #[inline(never)] // rare: most waits are the only one
    fn cancel_further(&mut self, generation: u32) -> bool {
        let (Some(place), Some(further)) = (self.place(generation), &mut self.further) else {
            return false;
        };
        let has_waited = further[place].end(u8::MAX) != 0;
        while further.front().is_some_and(|wait| wait.asked == 0) {
            further.pop_front();
        }
        while further.back().is_some_and(|wait| wait.asked == 0) {
            further.pop_back();
        }
        has_waited
    }

    /// The index of a wait in `further`.
    fn place(&self, generation: u32) -> Option<usize> {
        let further = self.further.as_ref()?;
        let oldest = further.front()?.generation;
        let age = |generation: u32| generation.wrapping_sub(oldest);
        let place = further.binary_search_by_key(&age(generation), |wait| age(wait.generation));
        place.ok()
    }

    /// When the oldest wait was last armed, and how often it was re-armed.
    pub(crate) fn idle_since(&self) -> Option<(Instant, u8)> {
        let oldest = self.waiting().next()?;
        Some((oldest.armed?, oldest.rearms))
    }

    /// Records that all waits were re-armed.
    pub(crate) fn rearm(&mut self, now: Instant) {
        for wait in self.all_mut() {
            wait.armed = Some(now);
            wait.rearms = wait.rearms.saturating_add(1);
        }
    }

    /// The tokens of the waits.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.waiting().map(|wait| wait.token)
    }

    /// The bits of all directions that a wait asks for.
    pub(crate) fn wanted(&self) -> u8 {
        self.waiting().fold(0, |wanted, wait| wanted | wait.asked)
    }

    fn waiting(&self) -> impl Iterator<Item = &Pending> {
        let further = self.further.iter().flat_map(|further| further.iter());
        let all = std::iter::once(&self.first).chain(further);
        all.filter(|wait| wait.is_waiting())
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        let further = self.further.iter_mut();
        std::iter::once(&mut self.first).chain(further.flat_map(|further| further.iter_mut()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::Waits;
    use crate::{
        event::{Events, Ready},
        interest::Interest,
        token::Token,
    };

    /// Waits for reading whose tokens are their generations.
    struct Subject(Waits, Instant);

    impl Subject {
        #[inline]
        fn begin(&mut self, generation: u32) {
            let token = Token::new(generation, 0);
            self.0.begin(generation, token, Interest::READABLE, self.1);
        }

        fn tokens(&self) -> Vec<u32> {
            self.0.tokens().map(Token::index).collect()
        }
    }

    #[test]
    fn waits_keep_their_order_and_end_once() {
        let mut waits = Subject(Waits::default(), Instant::now());
        for generation in [u32::MAX - 1, u32::MAX, 0, 1] {
            waits.begin(generation); // generations wrap
        }
        assert_eq!(waits.tokens(), [u32::MAX - 1, u32::MAX, 0, 1]);
        assert!(waits.0.cancel(0));
        assert!(waits.0.cancel(u32::MAX - 1));
        assert!(!waits.0.cancel(0), "it has ended");
        waits.begin(2);
        assert_eq!(waits.tokens(), [u32::MAX, 1, 2], "behind the others");
        assert!(waits.0.answer(Ready::READABLE, &mut Events::new()));
        waits.begin(3);
        assert_eq!(waits.tokens(), [3]);
        for generation in [u32::MAX, 1, 2] {
            assert!(!waits.0.cancel(generation), "its event has ended it");
        }
        assert!(waits.0.cancel(3));
    }
}
