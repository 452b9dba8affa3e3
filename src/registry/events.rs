//! What an event changes; see the second table of the parent module.

use crate::{
    driver::Driver,
    event::{Event, Events, Ready},
    interest::Interest,
    registry::{Registry, entry::Entry},
};

impl Registry {
    /// Applies an event of the driver, and appends one event for each wait that it answers.
    #[inline(always)] // in the poll of every turn
    pub(crate) fn event(&mut self, driver: &mut dyn Driver, event: Event, events: &mut Events) {
        self.statistics.events += 1;
        let Event { token, ready } = event;
        let slot = token.index();
        let entry = self.entries.get_mut(slot);
        let Some(entry) = entry.filter(|entry| entry.is_current(token)) else {
            self.statistics.stale += 1;
            return;
        };
        if !self.looked_at.is_empty() {
            note_look(&self.looked_at, slot, entry, ready);
        }
        entry.observe(ready);
        if let Some(number) = entry.wait_list().only() {
            let (interest, _) = self.waiters.interest_and_next(number);
            if interest.bits() & ready.directions() != 0 {
                let list = entry.wait_list_mut();
                let token = self.waiters.complete_only(list, number, ready);
                events.push(Event { token, ready });
                return;
            }
        }
        self.answer(driver, slot, ready, events);
    }

    /// Answers each of several waits, or finds that there is none for these directions.
    #[inline(never)] // most descriptors have one wait, which is answered
    fn answer(&mut self, driver: &mut dyn Driver, slot: u32, ready: Ready, events: &mut Events) {
        let entry = self.entries.claim(slot);
        let (mut wanted, mut useful) = (0, false);
        let mut place = entry.wait_list().first();
        while let Some(number) = place {
            let (interest, next) = self.waiters.interest_and_next(number);
            wanted |= interest.bits();
            if interest.bits() & ready.directions() != 0 {
                let (_, token) = self.waiters.complete(entry.wait_list_mut(), number, ready);
                events.push(Event { token, ready });
                useful = true;
            }
            place = next;
        }
        if useful {
            // A spurious direction in an event that answers a wait has caused no wake-up of its own.
            return;
        }

        let reported = ready.reported() & entry.registered_bits();
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

/// If the slot was looked at just now, its record is told what the look has found.
#[inline(never)] // right after a look only
fn note_look(looked_at: &[u32], slot: u32, entry: &mut Entry, ready: Ready) {
    if looked_at.contains(&slot) {
        entry.looked(ready);
    }
}
