//! The memory of a selector: what is registered for each descriptor, its cached readiness, and its waits.
//!
//! A registration outlives its wait, so most waits find one. A wait that follows an `EAGAIN` of the caller needs no system
//! call. The tables below are the whole state machine. `tests/registry.rs` has one test for each row. `tests/registry_model.rs`
//! reads the tables, and compares them with the calls of random programs.
//!
//! # Terms
//!
//! - **Generation**: each call that arms a descriptor does so under the next generation of its token. The kernel may hold
//!   several registrations for one number, because a duplicate keeps the file of a closed descriptor open. Only events of
//!   the newest generation are accepted.
//! - **New registration**: the cached readiness is cleared, the owner is set, the waits are kept.
//! - **Cleared**: nothing is registered and nothing is cached.
//! - **Wanted**: the directions that an unanswered wait asks for.
//!
//! # A wait begins
//!
//! | registered                     | cached                       | effect                              | driver call |
//! |--------------------------------|------------------------------|-------------------------------------|-------------|
//! | nothing                        | -                            | new registration                    | register(asked) |
//! | by another or an unknown owner | - (not trusted)              | new registration; doubted as before if the answer is "kept" | reregister(asked and wanted) |
//! | some of the asked directions   | anything                     | the registration is widened         | reregister(registered and asked) |
//! | all asked directions           | all of them drained          | the wait is added (`skipped`)       | none |
//! | all asked directions           | one of them not drained      | armed: reported at once if ready    | reregister(registered) |
//!
//! | the driver's answer            | effect |
//! |--------------------------------|--------|
//! | kept                           | the cached readiness stays |
//! | renewed                        | new registration of the same owner |
//! | unpollable                     | this wait is ready at once, other waits are answered with what they asked for, cleared |
//! | an error                       | it is returned, other waits are answered with an error, cleared |
//!
//! # An event arrives
//!
//! | reported                       | waits                        | effect                              | driver call |
//! |--------------------------------|------------------------------|-------------------------------------|-------------|
//! | an older generation, or none   | -                            | dropped (`stale`)                   | none |
//! | one or more directions         | one or more for one of them  | all of these are answered; ready    | none |
//! | a closed reading half          | one or more for reading      | as above, and hung up               | none |
//! | a hang-up or an error          | one or more                  | all are answered; hung up           | none |
//! | a hang-up or an error alone    | none                         | cleared                             | deregister |
//! | a direction, for the first time | none for it                 | ready, noted as spurious            | none |
//! | a direction that is noted as spurious | none for it           | narrowed                            | reregister(the rest) |
//! | all registered directions, noted as spurious | none           | cleared                             | deregister |
//!
//! A wait for a direction, and an attempt by the same owner, removes the note "spurious" from the direction.
//!
//! # An attempt, a close, a replaced file, a wait without an event
//!
//! | call                           | registered                   | effect                              | driver call |
//! |--------------------------------|------------------------------|-------------------------------------|-------------|
//! | attempted: would block         | by the same owner            | drained                             | none |
//! | attempted: short               | by the same owner            | presumed drained, unless hung up or doubted | none |
//! | attempted: complete            | by the same owner            | none                                | none |
//! | attempted                      | nothing, or by another owner | none                                | none |
//! | deregister                     | something                    | waits are answered with an error, cleared | deregister |
//! | deregister                     | nothing                      | none                                | none |
//! | note_close                     | by the same owner, no wait   | cleared (`closed`)                  | none |
//! | note_close                     | by another owner, or a wait  | none                                | none |
//! | replaced                       | something                    | as the driver's answer above        | reregister(registered) |
//! | replaced                       | nothing                      | none                                | none |
//! | rearm, for a descriptor whose look is due | something         | as the driver's answer above        | reregister(registered) |
//! | the poll right after it reports a direction that is presumed drained | something | doubted, and as any event | as any event |
//!
//! A descriptor whose oldest wait gets no event is looked at: it is registered anew, and the kernel reports what is ready. The
//! first look comes after 100 to 200 ms, the next ones at intervals that grow up to 25.6 s. So no wait depends on one look. A long wait
//! costs at most one system call in 19 s (3/4 of the longest interval). All idle waits together cost at most 250 calls a second
//! after their first looks: if there are more than some thousands of them, the intervals grow. The records are searched for them
//! at most every 100 ms while new waits begin, and otherwise when the next look is due.
//!
//! A short count means "presumed drained". If a look then finds data, the kernel has stopped at a boundary between messages.
//! It will do so again, so later short counts of this registration are ignored. This concerns the file and not its owner: it holds
//! for the next owner as well, if the kernel answers that the number has still the same file.

mod entries;
mod entry;
mod events;
mod looks;
mod node;
mod readiness;
mod statistics;
mod wait;
mod waiters;

use std::{io, time::Instant};

use crate::{
    descriptor::{self, Descriptor},
    driver::{Driver, Registration, Reregistration},
    event::Ready,
    interest::Interest,
    token::Token,
};

pub use readiness::{Attempt, CachedReadiness, DescriptorReadiness, OwnerId};
pub use statistics::Statistics;
pub use wait::{Wait, WaitId};

use entries::Entries;
use entry::Entry;
use looks::Looks;

/// The state machine. It owns no driver: each step that may call one borrows it.
#[derive(Debug)]
pub(crate) struct Registry {
    entries: Entries,
    looks: Looks,
    /// Waits that were answered outside an event. The next poll reports them.
    answered: Vec<WaitId>,
    statistics: Statistics,
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            entries: Entries::new(),
            looks: Looks::default(),
            answered: Vec::new(),
            statistics: Statistics::default(),
        }
    }

    /// Starts a wait for directions that are drained; see the first table. None, and nothing done, if one of them is not.
    #[inline(always)] // most waits
    pub(crate) fn wait_drained(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        token: Token,
        now: Instant,
    ) -> Option<Wait> {
        let slot = Entries::slot(descriptor)?;
        let entry = self.entries.get_mut(slot)?;
        if !entry.is_drained(owner, interest) {
            return None;
        }
        // No drained direction is noted as spurious: an attempt removes the note, and an event ends the drained state.
        self.statistics.waits += 1;
        self.statistics.skipped += 1;
        if !entry.node.is_unused() {
            return Some(Wait::Pending(self.insert(slot, interest, token, now)));
        }
        let generation = entry.node.begin(token, interest, now);
        self.looks.begin(now);
        let wait = WaitId {
            node: slot,
            generation,
        };
        Some(Wait::Pending(wait))
    }

    /// Starts a wait for directions of which one is not drained; see the first table.
    #[inline(never)] // rarer than Registry::wait_drained
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
        if !self.ask(driver, descriptor, slot, owner, interest)? {
            return Ok(Wait::Ready(interest));
        }
        self.entries.claim(slot).clear_spurious(interest);
        Ok(Wait::Pending(self.insert(slot, interest, token, now)))
    }

    /// Calls the driver for a wait that is not known to be drained. False if the kernel does not poll the descriptor.
    fn ask(
        &mut self,
        driver: &mut dyn Driver,
        descriptor: Descriptor,
        slot: u32,
        owner: OwnerId,
        interest: Interest,
    ) -> io::Result<bool> {
        match self.entries.get(slot).and_then(Entry::registered) {
            Some(registered) => self.arm(driver, slot, owner, registered, interest),
            None => self.register(driver, descriptor, slot, owner, interest),
        }
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

    #[inline]
    pub(crate) fn attempted(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        attempt: Attempt,
    ) {
        let entry = Entries::slot(descriptor).and_then(|slot| self.entries.get_mut(slot));
        if let Some(entry) = entry.filter(|entry| entry.is_owner(owner)) {
            entry.attempted(interest, attempt);
        }
    }

    /// The owner is about to close the descriptor. The kernel drops the registration by itself, and the number's next owner
    /// registers with one system call instead of two.
    pub(crate) fn note_close(&mut self, descriptor: Descriptor, owner: OwnerId) {
        let entry = Entries::slot(descriptor).and_then(|slot| self.entries.get_mut(slot));
        let Some(entry) = entry.filter(|entry| entry.is_owner(owner)) else {
            return;
        };
        if !entry.has_wait() {
            entry.clear();
            self.statistics.closed += 1;
        }
    }

    /// Ends the registration of a descriptor, because the descriptor is about to be closed.
    pub(crate) fn deregister(&mut self, driver: &mut dyn Driver, descriptor: Descriptor) {
        let Some(slot) = Entries::slot(descriptor) else {
            return;
        };
        if self.is_registered(slot) {
            self.end_registration(driver, slot);
        }
    }

    /// The descriptor refers to another file than before: its registration is made again, and what was cached is dropped. Its
    /// waits go on with the new file.
    pub(crate) fn replaced(&mut self, driver: &mut dyn Driver, descriptor: Descriptor) {
        let slot = Entries::slot(descriptor);
        let registered = slot.and_then(|slot| self.entries.get(slot)?.registered());
        if let (Some(slot), Some(registered)) = (slot, registered) {
            // On an error, all waits are answered: their own system calls will meet it.
            _ = self.renew(driver, slot, registered);
        }
    }

    /// The tokens of the descriptor's unanswered waits, oldest first.
    pub(crate) fn waiters(&self, descriptor: Descriptor) -> Vec<Token> {
        Entries::slot(descriptor).map_or_else(Vec::new, |slot| self.tokens(slot))
    }

    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Counts a poll of the driver.
    #[inline]
    pub(crate) fn count_poll(&mut self) {
        self.statistics.polls += 1;
    }

    /// Is there an answer that was given outside an event, and that the next poll has to report?
    #[inline]
    pub(crate) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    fn is_registered(&self, slot: u32) -> bool {
        let entry = self.entries.get(slot);
        entry.is_some_and(|entry| entry.registered().is_some())
    }

    /// Makes a new registration. False if the kernel does not poll the descriptor.
    fn register(
        &mut self,
        driver: &mut dyn Driver,
        descriptor: Descriptor,
        slot: u32,
        owner: OwnerId,
        interest: Interest,
    ) -> io::Result<bool> {
        let token = self.entries.next_token(slot);
        // The kernel accepts the number before a record is allocated for it.
        match driver.register(descriptor, token, interest)? {
            Registration::Unpollable => Ok(false),
            Registration::Armed => {
                self.statistics.registered += 1;
                let entry = self.entries.claim(slot);
                entry.begin(owner, token, interest);
                Ok(true)
            }
        }
    }

    /// Arms the registration for one more wait. False if the kernel does not poll the descriptor any more.
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
        let wanted = asked.bits() | self.wanted(slot);
        let interest = Interest::from_bits(wanted).unwrap_or(asked);
        let pollable = self.renew(driver, slot, interest)?;
        if pollable {
            self.entries.claim(slot).change_owner(owner, interest);
        }
        Ok(pollable)
    }

    /// Registers again with this interest. False if the kernel does not poll the descriptor any more. After this, and after
    /// an error, the record is cleared and all waits are answered.
    fn renew(
        &mut self,
        driver: &mut dyn Driver,
        slot: u32,
        interest: Interest,
    ) -> io::Result<bool> {
        let token = self.entries.next_token(slot);
        let entry = self.entries.claim(slot);
        match driver.reregister(Entries::descriptor(slot), token, interest) {
            Ok(Reregistration::Kept) => {
                self.statistics.rearmed += 1;
                entry.adjust(token, interest);
                Ok(true)
            }
            Ok(Reregistration::Renewed) => {
                self.statistics.renewed += 1;
                entry.begin(entry.owner(), token, interest);
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

    /// Ends the registration and answers its waits with an error.
    fn end_registration(&mut self, driver: &mut dyn Driver, slot: u32) {
        // If the kernel refuses, later events have an old generation and are dropped.
        _ = driver.deregister(Entries::descriptor(slot));
        self.statistics.deregistered += 1;
        self.abandon(slot, Some(Ready::ERROR));
    }

    /// Clears the record and answers its waits: with `answer`, or with what each asked for if it is None.
    fn abandon(&mut self, slot: u32, answer: Option<Ready>) {
        while let Some((number, interest)) = self.entries.oldest_wait(slot) {
            let ready = answer.unwrap_or_else(|| Ready::from(interest));
            let (wait, _) = self.complete(number, ready);
            self.answered.push(wait);
        }
        self.entries.claim(slot).clear();
    }
}
