//! What an event changes; see the second table of the parent module.

use crate::{
    driver::Driver,
    event::{Event, Events, Ready},
    interest::Interest,
    registry::{Registry, node::NONE},
};

impl Registry {
    /// Applies an event that answers a wait, and appends one event for each wait that it answers. False, and nothing done, if it
    /// answers none: [`Registry::event`] applies such an event, and those of a look.
    #[inline(always)] // most events
    pub(crate) fn answer(&mut self, event: Event, events: &mut Events) -> bool {
        let Event { token, ready } = event;
        let slot = token.index();
        let Some(entry) = self.entries.get_mut(slot) else {
            return false;
        };
        if !entry.is_current(token) {
            return false;
        }
        if entry.node.next != NONE {
            return self.answer_several(slot, ready, events);
        }
        if entry.node.asked() & ready.directions() == 0 {
            return false;
        }
        self.statistics.events += 1;
        entry.observe(ready);
        let token = entry.node.answer(ready);
        events.push(Event { token, ready });
        true
    }

    #[inline(never)] // most descriptors have one wait
    fn answer_several(&mut self, slot: u32, ready: Ready, events: &mut Events) -> bool {
        let is_answer = self.answer_waits(slot, ready, events);
        if is_answer {
            self.statistics.events += 1;
            self.entries.claim(slot).observe(ready);
        }
        is_answer
    }

    /// Answers each wait for one of these directions. False if there is none.
    fn answer_waits(&mut self, slot: u32, ready: Ready, events: &mut Events) -> bool {
        let (mut next, before) = (slot, events.len());
        while next != NONE {
            let number = next;
            let node = self.entries.node(number);
            next = node.next;
            if node.asked() & ready.directions() != 0 {
                let (_, token) = self.complete(number, ready);
                events.push(Event { token, ready });
            }
        }
        events.len() > before
    }

    /// Applies an event of the driver, and appends one event for each wait that it answers.
    pub(crate) fn event(&mut self, driver: &mut dyn Driver, event: Event, events: &mut Events) {
        self.statistics.events += 1;
        let Event { token, ready } = event;
        let slot = token.index();
        let entry = self.entries.get_mut(slot);
        let Some(entry) = entry.filter(|entry| entry.is_current(token)) else {
            self.statistics.stale += 1;
            return;
        };
        if self.looks.presumed.contains(&slot) {
            entry.looked(ready);
        }
        entry.observe(ready);
        let reported = ready.reported() & entry.registered_bits();
        let wanted = self.wanted(slot);
        if self.answer_waits(slot, ready, events) {
            // A spurious direction in an event that answers a wait has caused no wake-up of its own.
            return;
        }
        if reported & !wanted != 0 {
            self.note_spurious(driver, slot, reported & !wanted);
        } else if reported | wanted == 0 {
            self.end_registration(driver, slot);
        }
    }

    /// No wait asks for these reported directions. The first time they are noted, the second time their registration ends.
    fn note_spurious(&mut self, driver: &mut dyn Driver, slot: u32, directions: u8) {
        self.statistics.spurious += 1;
        let entry = self.entries.claim(slot);
        let again = entry.note_spurious(directions);
        if again == 0 {
            return;
        }
        match Interest::from_bits(entry.registered_bits() & !again) {
            // On an error, all waits are answered: their own system calls will meet it.
            Some(rest) => _ = self.renew(driver, slot, rest),
            None => self.end_registration(driver, slot),
        }
    }
}
