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
    /// Waits that began while another was pending. Once allocated, the memory is kept.
    #[expect(clippy::box_collection, reason = "an entry is a cache line")]
    further: Option<Box<VecDeque<Pending>>>,
}

/// One wait, unanswered or answered, or an empty slot for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    token: Token,
    /// When it was last armed: at its start, or by a re-arm.
    armed: Option<Instant>,
    generation: u32,
    /// Empty until it is answered.
    answer: Ready,
    /// The bits of the directions it waits for; 0 once it is answered or has ended.
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
            answer: Ready::EMPTY,
            asked: 0,
            rearms: 0,
        }
    }
}

impl Pending {
    fn is_waiting(&self) -> bool {
        self.asked != 0
    }

    fn is_free(&self) -> bool {
        self.asked == 0 && self.answer.is_empty()
    }

    #[inline]
    fn begin(&mut self, generation: u32, token: Token, asked: Interest, now: Instant) {
        self.token = token;
        self.armed = Some(now);
        self.generation = generation;
        self.asked = asked.bits();
        self.rearms = 0;
    }

    /// Whether `ready` answers it.
    fn answer(&mut self, ready: Ready, events: &mut Events) -> bool {
        if self.asked & ready.directions() == 0 {
            return false;
        }
        (self.asked, self.answer) = (0, ready);
        let token = self.token;
        events.push(Event { token, ready });
        true
    }

    #[inline]
    fn end(&mut self) -> Ready {
        self.asked = 0;
        std::mem::take(&mut self.answer)
    }
}

impl Waits {
    /// Starts a wait. Generations increase.
    #[inline]
    pub(crate) fn begin(&mut self, generation: u32, token: Token, asked: Interest, now: Instant) {
        if self.first.is_free() && self.further.is_none() {
            self.first.begin(generation, token, asked, now);
        } else {
            self.begin_further(generation, token, asked, now);
        }
    }

    #[inline(never)] // rare: most waits are the only one
    fn begin_further(&mut self, generation: u32, token: Token, asked: Interest, now: Instant) {
        let further = self.further.get_or_insert_default();
        if further.is_empty() && self.first.is_free() {
            return self.first.begin(generation, token, asked, now);
        }
        let mut wait = Pending::default();
        wait.begin(generation, token, asked, now);
        further.push_back(wait);
    }

    /// Answers each wait for one of these directions, and appends its event. False if there are none.
    pub(crate) fn answer(&mut self, ready: Ready, events: &mut Events) -> bool {
        if self.further.is_some() {
            return self.answer_all(ready, events);
        }
        self.first.answer(ready, events)
    }

    #[inline(never)] // rare: most waits are the only one
    fn answer_all(&mut self, ready: Ready, events: &mut Events) -> bool {
        let answered = self.all_mut().map(|wait| wait.answer(ready, events));
        answered.fold(false, |any, is_answered| any | is_answered)
    }

    /// Answers waits outside an event: the waits that `answer` answers, or, if it is None, all waits, each with the
    /// directions it asked for. Returns their generations.
    pub(crate) fn abandon(&mut self, answer: Option<Ready>) -> impl Iterator<Item = u32> {
        let directions = answer.map_or(u8::MAX, Ready::directions);
        let waiting = self
            .all_mut()
            .filter(move |wait| wait.asked & directions != 0);
        waiting.map(move |wait| {
            let asked = std::mem::take(&mut wait.asked);
            wait.answer = answer.unwrap_or(Ready::from_bits(asked.into()));
            wait.generation
        })
    }

    /// The event of a wait that is answered but has not ended.
    pub(crate) fn answered(&mut self, generation: u32) -> Option<Event> {
        let wait = match self.place(generation) {
            Some(place) => self.further.as_ref()?.get(place)?,
            None => &self.first,
        };
        let (token, ready) = (wait.token, wait.answer);
        (wait.generation == generation && !ready.is_empty()).then_some(Event { token, ready })
    }

    /// Ends a wait and returns its answer; [`Ready::EMPTY`] if it has none, or has already ended.
    #[inline]
    pub(crate) fn end(&mut self, generation: u32) -> Ready {
        if self.first.generation == generation {
            return self.first.end();
        }
        self.end_further(generation)
    }

    #[inline(never)] // rare: most waits are the only one
    fn end_further(&mut self, generation: u32) -> Ready {
        let wait = self.place(generation).and_then(|place| {
            let further = self.further.as_mut()?;
            further.remove(place)
        });
        wait.map_or(Ready::EMPTY, |wait| wait.answer)
    }

    /// The index of a wait in `further`.
    fn place(&self, generation: u32) -> Option<usize> {
        let further = self.further.as_ref()?;
        let oldest = further.front()?.generation;
        let age = |generation: u32| generation.wrapping_sub(oldest);
        let place = further.binary_search_by_key(&age(generation), |wait| age(wait.generation));
        place.ok()
    }

    /// When the oldest unanswered wait was last armed, and how often it was re-armed.
    pub(crate) fn idle_since(&self) -> Option<(Instant, u8)> {
        let oldest = self.unanswered().next()?;
        Some((oldest.armed?, oldest.rearms))
    }

    /// Records that all waits were re-armed.
    pub(crate) fn rearm(&mut self, now: Instant) {
        for wait in self.all_mut() {
            wait.armed = Some(now);
            wait.rearms = wait.rearms.saturating_add(1);
        }
    }

    /// The tokens of the unanswered waits.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = Token> {
        self.unanswered().map(|wait| wait.token)
    }

    /// The bits of all directions that an unanswered wait asks for.
    pub(crate) fn wanted(&self) -> u8 {
        self.unanswered()
            .fold(0, |wanted, wait| wanted | wait.asked)
    }

    fn unanswered(&self) -> impl Iterator<Item = &Pending> {
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
        assert_eq!(waits.0.end(0), Ready::EMPTY);
        assert_eq!(waits.0.end(u32::MAX - 1), Ready::EMPTY);
        waits.begin(2);
        assert_eq!(waits.tokens(), [u32::MAX, 1, 2], "behind the others");
        assert!(waits.0.answer(Ready::READABLE, &mut Events::new()));
        waits.begin(3);
        assert_eq!(waits.tokens(), [3]);
        for generation in [u32::MAX, 1, 2] {
            assert!(waits.0.answered(generation).is_some());
            assert_eq!(waits.0.end(generation), Ready::READABLE);
            assert_eq!(waits.0.end(generation), Ready::EMPTY, "it has ended");
        }
        assert_eq!(waits.tokens(), [3]);
    }
}
