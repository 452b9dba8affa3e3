//! The memory of a selector: what is registered for each descriptor, what is known about it, and who waits.
//!
//! A registration outlives its wait, so most waits find one, and those that follow an `EAGAIN` of the caller's own need
//! no system call at all. This is the whole machine; `tests/registry.rs` has one test for each row.
//!
//! # A wait
//!
//! | registered                     | known                        | what happens                        | system call |
//! |--------------------------------|------------------------------|-------------------------------------|-------------|
//! | nothing                        | -                            | a new life begins                   | register(asked) |
//! | by another or unknown owner | - (not trusted)              | a new life, whoever waits stays     | reregister(asked and wanted) |
//! | some of what is asked          | anything                     | the registration is widened         | reregister(registered and asked) |
//! | all of it                      | every direction drained      | the wait is parked (`skipped`)      | none |
//! | all of it                      | some direction not           | armed: reported at once if ready    | reregister(registered) |
//!
//! | the driver's answer            | what follows |
//! |--------------------------------|--------------|
//! | kept                           | knowledge stays |
//! | renewed                        | a new life: nothing is known any more |
//! | unpollable                     | the wait is ready at once, whoever else waits is answered as asked, nothing is remembered |
//! | an error                       | it is returned, whoever else waits is answered with an error, nothing is remembered |
//!
//! # An event
//!
//! | reported                       | who waits                    | what happens                        | system call |
//! |--------------------------------|------------------------------|-------------------------------------|-------------|
//! | an older life, or no life      | -                            | dropped (`stale`)                   | none |
//! | a direction, maybe with others | somebody for it              | all of them are answered; "ready"   | none |
//! | a closed reading half          | readers                      | as above, and hung up               | none |
//! | a hang-up or an error          | anybody                      | all are answered; hung up           | none |
//! | a hang-up or an error alone    | nobody                       | forgotten                           | deregister |
//! | a direction, for the first time | nobody for it               | "ready", noted as spurious          | none |
//! | a direction, once more         | nobody for it                | narrowed                            | reregister(the rest) |
//! | all that is registered, once more | nobody                    | forgotten                           | deregister |
//!
//! A wait for a direction, and an attempt by the same owner, takes the note "spurious" off it.
//!
//! # An attempt of the caller's own, a close, an idle wait
//!
//! | what                           | registered                   | what happens                        | system call |
//! |--------------------------------|------------------------------|-------------------------------------|-------------|
//! | would block                    | by the same owner         | "drained"                           | none |
//! | short                          | by the same owner         | "drained", unless hung up           | none |
//! | complete                       | by the same owner         | nothing                             | none |
//! | any attempt                    | nothing, or by another       | nothing                             | none |
//! | deregister                     | something                    | waiters are answered with an error  | deregister |
//! | deregister                     | nothing                      | nothing                             | none |
//! | note_close                     | by the same owner, nobody waits | forgotten (`closed`)          | none |
//! | note_close                     | by another, or somebody waits | nothing                            | none |
//! | a wait idle for 100 ms, once   | something                    | as the driver's answer above        | reregister(registered) |
//!
//! # Lives
//!
//! Each call that arms a descriptor does so under the next generation of its token. So of several registrations the
//! kernel may hold for one number (a duplicate keeps the file of a closed descriptor alive) only the newest is heard.

mod entries;
mod events;
mod readiness;
mod statistics;
mod waiters;

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    descriptor::{self, Descriptor},
    driver::{Driver, Registration, Reregistration},
    event::{Event, Events, Ready},
    interest::Interest,
    token::Token,
};

pub use readiness::{Attempt, CachedReadiness, DescriptorReadiness, OwnerId};
pub use statistics::Statistics;
pub use waiters::{Wait, WaitId};

use entries::{Entries, Entry};
use waiters::Waiters;

/// How long a wait lies idle before it is armed once more. That heals whatever changed behind our back: a descriptor that
/// was closed, replaced by dup2(2) or reopened without anybody's word.
const IDLE: Duration = Duration::from_millis(100);

/// The state machine. It keeps no driver: each step that may need one is lent it.
#[derive(Debug)]
pub(crate) struct Registry {
    entries: Entries,
    waiters: Waiters,
    /// Waits answered outside an event, to be reported with the next poll.
    answered: Vec<WaitId>,
    pub(crate) statistics: Statistics,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            entries: Entries::default(),
            waiters: Waiters::new(),
            answered: Vec::new(),
            statistics: Statistics::default(),
        }
    }

    /// Starts a wait; see the table.
    pub(crate) fn wait(
        &mut self,
        driver: &mut dyn Driver,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        token: Token,
        now: Instant,
    ) -> io::Result<Wait> {
        let slot = Entries::slot(descriptor).ok_or_else(descriptor::bad_descriptor)?;
        self.statistics.waits += 1;
        match self.entries.get(slot) {
            Some(entry) if entry.is_drained(owner, interest) => self.statistics.skipped += 1,
            Some(Entry {
                registered: Some(registered),
                ..
            }) => {
                let registered = *registered;
                if !self.arm(driver, slot, owner, registered, interest)? {
                    return Ok(Wait::Ready(interest));
                }
            }
            _ => {
                if !self.register(driver, descriptor, slot, owner, interest)? {
                    return Ok(Wait::Ready(interest));
                }
            }
        }
        let entry = self.entries.claim(slot);
        entry.spurious &= !interest.bits();
        let list = &mut entry.wait_list;
        let wait = self.waiters.insert(list, slot, interest, token, now);
        Ok(Wait::Pending(wait))
    }

    /// Ends a wait and returns what it was answered; [`Ready::EMPTY`] if nothing, or if it had ended before.
    pub(crate) fn end(&mut self, wait: WaitId) -> Ready {
        if let Some(slot) = self.waiters.standing_at(wait) {
            let list = &mut self.entries.claim(slot).wait_list;
            self.waiters.unlink(list, wait);
        }
        self.waiters.remove(wait)
    }

    pub(crate) fn cached_readiness(
        &self,
        descriptor: Descriptor,
        owner: OwnerId,
    ) -> DescriptorReadiness {
        let entry = Entries::slot(descriptor).and_then(|slot| self.entries.get(slot));
        match entry {
            Some(entry) if entry.is_owner(owner) => entry.cached_readiness(),
            _ => DescriptorReadiness::default(),
        }
    }

    pub(crate) fn attempted(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        attempt: Attempt,
    ) {
        let Some(slot) = Entries::slot(descriptor) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(slot) else {
            return;
        };
        let drained = match attempt {
            Attempt::WouldBlock => true,
            Attempt::Short => !entry.hung_up,
            Attempt::Complete => false,
        };
        if !entry.is_owner(owner) {
            return;
        }
        entry.spurious &= !interest.bits();
        if drained {
            let bits = interest.bits() & bits_of(entry.registered);
            entry.drained |= bits;
            entry.ready &= !bits;
        }
    }

    /// The descriptor is about to be closed by the object it was registered for: the kernel will drop the registration
    /// by itself, and the number's next owner is registered afresh, with one system call instead of two.
    pub(crate) fn note_close(&mut self, descriptor: Descriptor, owner: OwnerId) {
        let entry = Entries::slot(descriptor).and_then(|slot| self.entries.get_mut(slot));
        let Some(entry) = entry.filter(|e| e.is_owner(owner) && e.wait_list.first().is_none())
        else {
            return;
        };
        entry.clear();
        self.statistics.closed += 1;
    }

    /// The descriptor is about to be closed.
    pub(crate) fn deregister(&mut self, driver: &mut dyn Driver, descriptor: Descriptor) {
        let Some(slot) = Entries::slot(descriptor) else {
            return;
        };
        if self.is_registered(slot) {
            self.end_registration(driver, slot);
        }
    }

    /// The tokens of those who wait for the descriptor, first come first.
    pub(crate) fn waiters(&self, descriptor: Descriptor) -> Vec<Token> {
        let entry = Entries::slot(descriptor).and_then(|slot| self.entries.get(slot));
        let first = entry.and_then(|entry| entry.wait_list.first());
        let list = std::iter::successors(first, |number| self.waiters.interest_and_next(*number).1);
        list.map(|number| self.waiters.token(number)).collect()
    }

    /// When [`Registry::rearm`] has something to do.
    pub(crate) fn next_rearm(&self) -> Option<Instant> {
        self.waiters.oldest()?.0.checked_add(IDLE)
    }

    /// Arms every wait that has been idle for 100 ms once more, and appends an event for each that is answered by it.
    pub(crate) fn rearm(&mut self, driver: &mut dyn Driver, now: Instant, events: &mut Events) {
        while let Some((parked, slot)) = self.waiters.oldest() {
            if now.saturating_duration_since(parked) < IDLE {
                break;
            }
            self.waiters.unqueue_oldest();
            let registered = self.entries.get(slot).and_then(|entry| entry.registered);
            if let Some(registered) = registered {
                // The error is told to all who wait: their own system calls will meet it.
                _ = self.renew(driver, slot, registered);
            }
        }
        self.deliver(events);
    }

    /// Is there an answer to report that no event of the driver's announces?
    pub(crate) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Appends the answers given outside events, except to waits that have ended meanwhile.
    pub(crate) fn deliver(&mut self, events: &mut Events) {
        for wait in self.answered.drain(..) {
            if let Some((token, ready)) = self.waiters.answered(wait) {
                events.push(Event { token, ready });
            }
        }
    }

    fn is_registered(&self, slot: u32) -> bool {
        let entry = self.entries.get(slot);
        entry.is_some_and(|entry| entry.registered.is_some())
    }

    /// Begins a life. False if the kernel does not poll the descriptor.
    fn register(
        &mut self,
        driver: &mut dyn Driver,
        descriptor: Descriptor,
        slot: u32,
        owner: OwnerId,
        interest: Interest,
    ) -> io::Result<bool> {
        let token = self.entries.next_token(slot);
        // The kernel judges the number before room is made for it.
        match driver.register(descriptor, token, interest)? {
            Registration::Unpollable => Ok(false),
            Registration::Armed => {
                self.statistics.registered += 1;
                let entry = self.entries.claim(slot);
                entry.begin(descriptor, owner, token, interest);
                Ok(true)
            }
        }
    }

    /// Arms what is registered for one more wait. False if the kernel does not poll the descriptor any more.
    fn arm(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        owner: OwnerId,
        registered: Interest,
        asked: Interest,
    ) -> io::Result<bool> {
        let entry = self.entries.claim(slot);
        if entry.is_owner(owner) {
            return self.renew(driver, slot, registered | asked);
        }
        let wanted = asked.bits() | self.waiters.wanted(entry.wait_list);
        let interest = Interest::from_bits(wanted).unwrap_or(asked);
        let pollable = self.renew(driver, slot, interest)?;
        if pollable {
            let entry = self.entries.claim(slot);
            entry.begin(entry.descriptor, owner, entry.token, interest);
        }
        Ok(pollable)
    }

    /// Registers anew with this interest. False if the kernel does not poll the descriptor any more; then, and after an
    /// error, nothing is registered and nobody waits any longer.
    fn renew(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        interest: Interest,
    ) -> io::Result<bool> {
        let token = self.entries.next_token(slot);
        let entry = self.entries.claim(slot);
        match driver.reregister(entry.descriptor, token, interest) {
            Ok(Reregistration::Kept) => {
                self.statistics.rearmed += 1;
                entry.adjust(token, interest);
                Ok(true)
            }
            Ok(Reregistration::Renewed) => {
                self.statistics.renewed += 1;
                entry.begin(entry.descriptor, entry.owner, token, interest);
                Ok(true)
            }
            Ok(Reregistration::Unpollable) => {
                self.abandon(slot, None);
                Ok(false)
            }
            Err(error) => {
                self.abandon(slot, Some(Ready::ERROR));
                Err(error)
            }
        }
    }

    /// Ends the registration; whoever still waits is answered with an error.
    fn end_registration(&mut self, driver: &mut dyn Driver, slot: u32) {
        let descriptor = self.entries.claim(slot).descriptor;
        // Should the kernel refuse, its events will find no life to go with and be dropped.
        _ = driver.deregister(descriptor);
        self.statistics.deregistered += 1;
        self.abandon(slot, Some(Ready::ERROR));
    }

    /// Nothing is registered any more: answers all who wait, with what each asked for if `answer` is None.
    fn abandon(&mut self, slot: u32, answer: Option<Ready>) {
        let entry = self.entries.claim(slot);
        while let Some(number) = entry.wait_list.first() {
            let (interest, _) = self.waiters.interest_and_next(number);
            let ready = answer.unwrap_or_else(|| Ready::from(interest));
            let (wait, _) = self.waiters.complete(&mut entry.wait_list, number, ready);
            self.answered.push(wait);
        }
        entry.clear();
    }
}

fn bits_of(interest: Option<Interest>) -> u8 {
    interest.map_or(0, Interest::bits)
}
