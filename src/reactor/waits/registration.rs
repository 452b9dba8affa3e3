//! How a reactor registers descriptors, and how events change its state.
//!
//! A registration outlives its wait, so most waits find their descriptor registered. A wait that follows the caller's
//! `EAGAIN` needs no system call. The tables below are the whole state machine; `tests/registry_model.rs` reads them
//! and compares them with the calls of random programs.
//!
//! # Terms
//!
//! - **Generation**: each call that arms a descriptor uses the next generation of its token. The kernel may hold
//!   several registrations for one number, because a duplicate keeps the file of a closed descriptor open. Only events
//!   of the newest generation are accepted.
//! - **Reregister**: [`Driver::register`](crate::Driver::register) of what is known to be registered.
//! - **New registration**: the cached readiness is cleared, the owner is set, the waits are kept.
//! - **Cleared**: nothing is registered and nothing is cached.
//! - **Wanted**: the directions that an unanswered wait asks for.
//!
//! # A wait begins
//!
//! | registered                     | cached                       | effect                              | driver call |
//! |--------------------------------|------------------------------|-------------------------------------|-------------|
//! | nothing                        | -                            | new registration                    | register(asked) |
//! | by another or an unknown owner | - (not trusted)              | new registration; still ignores short counts if the answer is "kept" | reregister(asked and wanted) |
//! | some of the asked directions   | anything                     | the registration is widened         | reregister(registered and asked) |
//! | all asked directions           | all of them drained          | the wait is added (`skipped`)       | none |
//! | all asked directions           | one of them not drained      | armed: reported at once if ready    | reregister(registered) |
//!
//! | the driver's answer            | effect |
//! |--------------------------------|--------|
//! | kept                           | the cached readiness stays |
//! | new                            | new registration of the same owner; unless `replaced`, the waits are answered with an error |
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
//! | a closed reading half alone    | none                         | cleared                             | deregister |
//! | a closed reading half alone    | one or more, none for reading | hung up                            | none |
//! | a direction, for the first time | none for it                 | ready, noted as spurious            | none |
//! | a direction that is noted as spurious | none for it           | narrowed                            | reregister(the rest) |
//! | all registered directions, noted as spurious | none           | cleared                             | deregister |
//!
//! A wait for a direction, or an attempt by the same owner, removes its "spurious" mark.
//!
//! # An attempt, a close, a replaced file, a wait without an event
//!
//! | call                           | registered                   | effect                              | driver call |
//! |--------------------------------|------------------------------|-------------------------------------|-------------|
//! | attempted: would block         | by the same owner            | drained                             | none |
//! | attempted: short               | by the same owner            | assumed drained, unless hung up or short counts are ignored | none |
//! | attempted: complete            | by the same owner            | none                                | none |
//! | attempted                      | nothing, or by another owner | none                                | none |
//! | deregister                     | something                    | waits are answered with an error, cleared | deregister |
//! | deregister                     | nothing                      | none                                | none |
//! | note_close                     | by the same owner, no wait   | cleared (`closed`)                  | none |
//! | note_close                     | by another owner, or a wait  | none                                | none |
//! | replaced                       | something                    | as the driver's answer above        | reregister(registered) |
//! | replaced                       | nothing                      | none                                | none |
//! | rearm, when the oldest wait is due | something                | as the driver's answer above        | reregister(registered) |
//! | the poll right after it reports a direction that is assumed drained | something | short counts are ignored, and as any event | as any event |
//!
//! A descriptor whose oldest wait gets no event is re-armed, and the kernel then reports which directions are ready.
//! The first re-arm comes after 100 to 200 ms, later ones at intervals that grow to 25.6 s, so that no wait depends on
//! a single re-arm. A long wait costs at most one system call in 19 s (3/4 of the longest interval). While new waits
//! begin, entries are searched for such waits at most every 100 ms; otherwise only when the next one is due.
//!
//! After a short count, a direction is assumed drained. If a re-arm then finds data, the kernel had stopped at a
//! message boundary. The kernel will do so again, so later short counts of this registration are ignored. Message
//! boundaries are a property of the file, not of its owner: short counts are still ignored for the next owner if the
//! kernel answers that the number still has the same file.

use std::io;

use crate::{
    descriptor::Descriptor,
    driver::Registration,
    event::{Event, Events, Ready},
    interest::Interest,
    reactor::Reactor,
    registry::{OwnerId, Registry, Wait, WaitId},
    token::Token,
};

impl Reactor {
    /// Starts a wait whose directions are not all drained.
    #[inline(never)] // rare: most waits are for drained directions
    pub(super) fn arm(
        &mut self,
        descriptor: Descriptor,
        slot: u32,
        owner: OwnerId,
        asked: Interest,
        token: Token,
    ) -> io::Result<Wait> {
        let entry = self.registry.get(slot);
        let cache = entry.map(|entry| (entry.cache.registered(), entry.cache.is_owner(owner)));
        let is_polled = match cache {
            Some((Some(registered), true)) => self.renew(slot, registered | asked, false)?,
            Some((Some(_), false)) => self.change_owner(slot, owner, asked)?,
            _ => self.register(descriptor, slot, owner, asked)?,
        };
        if !is_polled {
            return Ok(Wait::Ready(asked));
        }
        self.begin_idle();
        let entry = self.registry.claim(slot);
        entry.cache.clear_spurious(asked);
        let wait = entry.begin(slot, token, asked, self.clock);
        Ok(Wait::Pending(wait))
    }

    /// Makes a new registration. False if the kernel cannot poll the descriptor.
    fn register(
        &mut self,
        descriptor: Descriptor,
        slot: u32,
        owner: OwnerId,
        asked: Interest,
    ) -> io::Result<bool> {
        let (driver, token) = (self.driver.get_mut(), self.registry.next_token(slot));
        // An entry is allocated only after the kernel has accepted the number.
        if driver.register(descriptor, token, asked, false)? == Registration::Unpollable {
            return Ok(false);
        }
        self.statistics.registered += 1;
        let entry = self.registry.claim(slot);
        entry.cache.begin(owner, token, asked);
        Ok(true)
    }

    /// Reregisters for another owner, whose file may be different. False if the kernel cannot poll the descriptor.
    fn change_owner(&mut self, slot: u32, owner: OwnerId, asked: Interest) -> io::Result<bool> {
        let wanted = asked.bits() | self.registry.claim(slot).waits.wanted();
        let is_polled = self.renew(slot, Interest::from_bits(wanted).unwrap_or(asked), false)?;
        if is_polled {
            self.registry.claim(slot).cache.change_owner(owner);
        }
        Ok(is_polled)
    }

    /// Reregisters with this interest. False if the kernel can no longer poll the descriptor. In that case, and after
    /// an error, the cache has been cleared and all waits answered. They are also answered if the kernel has lost the
    /// registration and the owner did not say that the file was replaced: then it was closed.
    pub(super) fn renew(
        &mut self,
        slot: u32,
        interest: Interest,
        is_told: bool,
    ) -> io::Result<bool> {
        let (driver, token) = (self.driver.get_mut(), self.registry.next_token(slot));
        let cache = &mut self.registry.claim(slot).cache;
        match driver.register(Registry::descriptor(slot), token, interest, true) {
            Ok(Registration::Kept) => {
                self.statistics.rearmed += 1;
                cache.adjust(token, interest);
                Ok(true)
            }
            Ok(Registration::New) => {
                self.statistics.renewed += 1;
                cache.begin(cache.owner(), token, interest);
                if !is_told {
                    self.answer_outside(slot, Some(Ready::ERROR));
                }
                Ok(true)
            }
            Ok(Registration::Unpollable) => {
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
    pub(super) fn end_registration(&mut self, slot: u32) {
        // If the kernel refuses, later events carry an old generation and are dropped.
        _ = self.driver.get_mut().deregister(Registry::descriptor(slot));
        self.statistics.deregistered += 1;
        self.abandon(slot, Some(Ready::ERROR));
    }

    /// Clears the cache and answers the waits: with `answer`, or, if it is None, each wait with the directions it asked
    /// for.
    fn abandon(&mut self, slot: u32, answer: Option<Ready>) {
        self.answer_outside(slot, answer);
        self.registry.claim(slot).cache.clear();
    }

    /// Answers waits outside an event: with `answer`, or, if it is None, each wait with the directions it asked for.
    pub(super) fn answer_outside(&mut self, slot: u32, answer: Option<Ready>) {
        let answered = &mut self.answered;
        let waits = &mut self.registry.claim(slot).waits;
        waits.abandon(answer, |generation, event| {
            answered.insert(WaitId { slot, generation }.into(), event);
        });
        if self.has_answers() {
            self.wake_sleeper();
        }
    }

    /// Applies an event that the poll has not applied at once.
    pub(super) fn event(&mut self, event: Event, events: &mut Events) {
        self.statistics.events += 1;
        let Event { token, ready } = event;
        let slot = token.index();
        let Some(entry) = self.registry.current(token) else {
            self.statistics.stale += 1;
            return;
        };
        if self.idle_repair.assumed.contains(&slot) {
            entry.cache.observe_rearm(ready);
        }
        if entry.apply(ready, events) {
            // A spurious direction in an event that also answers a wait did not cause an extra wake-up.
            return;
        }
        let reported = entry.cache.reported(ready);
        if reported != 0 {
            self.note_spurious(slot, reported);
        } else if entry.waits.wanted() == 0 {
            self.end_registration(slot);
        }
    }

    /// Handles reported directions that no wait asks for: marks them the first time, ends their registration the second
    /// time.
    fn note_spurious(&mut self, slot: u32, directions: u8) {
        self.statistics.spurious += 1;
        let cache = &mut self.registry.claim(slot).cache;
        let again = cache.note_spurious(directions);
        let rest = cache.registered().map_or(0, Interest::bits) & !again;
        match Interest::from_bits(rest) {
            _ if again == 0 => {}
            // On error all waits are answered: their own system calls will return the error.
            Some(rest) => _ = self.renew(slot, rest, false),
            None => self.end_registration(slot),
        }
    }
}
