//! What an event changes; see the second table of the parent module.

use crate::{
    driver::Driver,
    event::{Event, Events},
    interest::Interest,
    registry::{Registry, node::NONE},
};

impl Registry {
    /// Applies an event that answers the only wait for its descriptor, and appends the event of this wait. False, and nothing
    /// done, if it is another event: [`Registry::event`] applies that, and those of a look.
    #[inline(always)] // most events
    pub(crate) fn answer_only(&mut self, event: Event, events: &mut Events) -> bool {
        let Event { token, ready } = event;
        let Some(entry) = self.entries.get_mut(token.index()) else {
            return false;
        };
        let is_answer = entry.node.asked() & ready.directions() != 0 && entry.node.next == NONE;
        if !is_answer || !entry.is_current(token) {
            return false;
        }
        self.statistics.events += 1;
        entry.observe(ready);
        let token = entry.node.answer(ready);
        if entry.node.links.is_queued() {
            self.looks.remove(&mut self.entries, event.token.index());
        }
        events.push(Event { token, ready });
        true
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
        if self.looked_at.contains(&slot) {
            entry.looked(ready);
        }
        entry.observe(ready);
        let reported = ready.reported() & entry.registered_bits();
        let (mut wanted, mut useful) = (0, false);
        let mut next = slot;
        while next != NONE {
            let number = next;
            let node = self.entries.node(number);
            next = node.next;
            let asked = node.asked();
            wanted |= asked;
            if asked & ready.directions() != 0 {
                let (_, token) = self.complete(number, ready);
                events.push(Event { token, ready });
                useful = true;
            }
        }
        if useful {
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
