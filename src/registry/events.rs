//! What an event changes; see the second table of the parent module.

use crate::{
    driver::Driver,
    event::{Event, Events},
    interest::Interest,
    registry::Registry,
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
        if self.looked_at.contains(&slot) {
            entry.looked(ready);
        }
        let (answered, registered) = (ready.directions(), entry.registered_bits());
        entry.observe(ready);

        let (mut wanted, mut useful) = (0, false);
        let mut place = entry.wait_list().first();
        while let Some(number) = place {
            let (interest, next) = self.waiters.interest_and_next(number);
            wanted |= interest.bits();
            if interest.bits() & answered != 0 {
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

        let reported = ready.reported() & registered;
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
