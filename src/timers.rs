//! The deadline queue.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    deadline::Deadline,
    event::{Event, Events, Ready},
    token::Token,
};

/// The number of one timer. After the timer has elapsed or was cancelled it refers to no timer, and cancelling it does
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerId {
    deadline: Deadline,
    arrival: u64,
}

/// Timers ordered by deadline, and by order of insertion among equal deadlines.
///
/// Inserting and cancelling take O(log n).
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
    tokens: BTreeMap<TimerId, Token>,
    arrivals: u64,
}

impl Timers {
    /// An empty queue. The first timer allocates.
    pub const fn new() -> Self {
        Self {
            tokens: BTreeMap::new(),
            arrivals: 0,
        }
    }

    /// Adds a timer: [`Timers::expire`] reports `token` when `deadline` has come.
    pub fn insert(&mut self, deadline: Deadline, token: Token) -> TimerId {
        let timer = TimerId {
            deadline,
            arrival: self.arrivals,
        };
        self.arrivals += 1;
        self.tokens.insert(timer, token);
        timer
    }

    /// Removes a timer. False if it has elapsed or was cancelled already.
    pub fn cancel(&mut self, timer: TimerId) -> bool {
        self.tokens.remove(&timer).is_some()
    }

    /// The earliest deadline; None if there is no timer.
    pub fn next(&self) -> Option<Deadline> {
        let (timer, _) = self.tokens.first_key_value()?;
        Some(timer.deadline)
    }

    /// Removes each timer that is due at `now` and appends its event, [`Ready::ELAPSED`], earliest deadline first.
    pub fn expire(&mut self, now: Instant, events: &mut Events) {
        self.expire_late(now, events, |_| ());
    }

    /// As [`Timers::expire`]; `on_late` is given how long after its deadline each timer is reported.
    pub(crate) fn expire_late(
        &mut self,
        now: Instant,
        events: &mut Events,
        mut on_late: impl FnMut(Duration),
    ) {
        while let Some(deadline) = self.next().filter(|next| next.is_due(now)) {
            let Some((_, token)) = self.tokens.pop_first() else {
                return;
            };
            on_late(now.saturating_duration_since(deadline.instant()));
            let ready = Ready::ELAPSED;
            events.push(Event { token, ready });
        }
    }

    /// How many timers are set.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Is no timer set?
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::Timers;
    use crate::{deadline::Deadline, event::Events, token::Token};

    #[test]
    fn equals_elapse_in_order_of_arrival_without_the_cancelled_ones() {
        let now = Instant::now();
        let mut timers = Timers::new();
        let insert = |index| timers.insert(Deadline::from(now), Token::new(index, 0));
        let set: Vec<_> = (0..100).map(insert).collect();
        for timer in set.iter().step_by(2) {
            assert!(timers.cancel(*timer) && !timers.cancel(*timer));
        }
        let mut events = Events::new();
        timers.expire(now, &mut events);
        let found = events.iter().map(|event| event.token.index());
        assert!(found.eq((1..100).step_by(2)));
        assert!(timers.is_empty() && set.iter().all(|timer| !timers.cancel(*timer)));
    }
}
