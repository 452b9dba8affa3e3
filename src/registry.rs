//! What is registered, what is known, and who waits: the memory that makes system calls unnecessary.
//!
//! # The state machine
//!
//! Per descriptor the registry remembers the directions it has *registered*, and for each direction what is *known*:
//! `Ready` (an event came), `Drained` (since then a system call of ours met "would block"), or `Unknown`. An edge is
//! reported only when something changes, so `Drained` means that an event is bound to come, and only `Drained` does.
//!
//! | registered | known | event | action | system call |
//! |---|---|---|---|---|
//! | nothing | any | wait | register what is asked | ADD |
//! | nothing, refused (EPERM) | any | wait | answer at once: always ready | ADD |
//! | less than asked | any | wait | widen | MOD |
//! | what is asked | all asked drained | wait | nothing: an event will come | none |
//! | what is asked | any asked unknown or ready | wait | re-arm, which reports it if ready | MOD |
//! | something | any, of another object | wait | new generation, nothing known, register what all waiters ask | ADD |
//! | the same, and it was no reuse last time | any, of another object | wait | the same | MOD |
//! | something the kernel has forgotten | any | wait, re-arm | new generation, nothing known | MOD, ADD, MOD |
//! | any | any | event with an old generation | drop it | none |
//! | any | any | event somebody waits for | ready; answer all who asked | none |
//! | any | any | event nobody waits for, first | ready; remember that it was unwanted | none |
//! | more than this | any | event nobody waits for, again | narrow | MOD |
//! | just this | any | event nobody waits for, again | deregister | DEL |
//! | any | any | hang-up or error alone, no waiter | deregister | DEL |
//! | any | any | attempt: would block | drained | none |
//! | any | no hang-up | attempt: short | drained | none |
//! | any | hang-up | attempt: short | nothing: the end is still to be read | none |
//! | any | any | wait ends | forget the waiter, keep the registration | none |
//! | any | any | waiter idle for 100 ms | re-arm once | MOD |
//! | any, descriptor is closed | any | waiter idle for 100 ms | answer all waiters with an error | MOD |
//! | something | any | forget | deregister, answer all waiters with an error, new generation | DEL |
//! | nothing | any | forget | new generation | none |
//!
//! The unit tests below have one test for each row.

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    driver::{Descriptor, Driver, Registration, Renewal},
    event::{Event, Events, Ready},
    identity::Identity,
    interest::Interest,
    table::{Entry, NONE, Table},
    token::Token,
    waiters::{WaitId, Waiters},
};

/// A wait that has lasted so long re-arms once: that heals whatever identity missed.
const REARM_AFTER: Duration = Duration::from_millis(100);

/// What came of beginning a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Always ready: the kernel does not poll such files. There is nothing to end.
    Ready(Interest),
    /// An event will come. The waiter ends the wait exactly once, whatever comes of it.
    Pending(WaitId),
}

/// What is known of one direction of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Nothing.
    Unknown,
    /// An event was reported, and nothing to the contrary was seen since.
    Ready,
    /// "Would block" was seen, and no event since: there is nothing, and an event will tell when there is.
    Drained,
}

/// What is known of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Of reading.
    pub readable: Knowledge,
    /// Of writing.
    pub writable: Knowledge,
    /// Whether an end or an error was reported.
    pub hung_up: bool,
}

/// What the caller's own system call has just seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// EAGAIN.
    WouldBlock,
    /// Less than there was room for, on a stream: nothing is left, unless its end is near.
    Short,
    /// As much as was asked for.
    Complete,
}

/// What happened so far, each since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Waits begun.
    pub waits: u64,
    /// First registrations: ADD of epoll_ctl(2).
    pub registered: u64,
    /// Registrations renewed, widened or narrowed: MOD.
    pub rearmed: u64,
    /// Waits that needed no system call.
    pub skipped: u64,
    /// Registrations given up: DEL.
    pub deregistered: u64,
    /// Registrations the kernel had forgotten.
    pub renewed: u64,
    /// Events reported by the driver.
    pub events: u64,
    /// Of these, dropped because their generation is over.
    pub stale: u64,
    /// Of these, those nobody waited for.
    pub unwanted: u64,
    /// Polls of the driver.
    pub polls: u64,
}

impl Statistics {
    /// The counters by name.
    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("waits", self.waits),
            ("registered", self.registered),
            ("rearmed", self.rearmed),
            ("skipped", self.skipped),
            ("deregistered", self.deregistered),
            ("renewed", self.renewed),
            ("events", self.events),
            ("stale", self.stale),
            ("unwanted", self.unwanted),
            ("polls", self.polls),
        ]
    }
}

/// The memory. It sees the kernel only as the [`Driver`] it is handed.
#[derive(Debug, Default)]
pub struct Registry {
    table: Table,
    waiters: Waiters,
    /// Answers that did not come from the kernel.
    answers: Events,
    pub(crate) statistics: Statistics,
}

impl Registry {
    /// Begins a wait. See the table above.
    ///
    /// # Errors
    ///
    /// EBADF if the descriptor is not open, ENOMEM and ENOSPC of epoll_ctl(2). Then nothing is left behind.
    pub fn wait(
        &mut self,
        driver: &mut dyn Driver,
        descriptor: Descriptor,
        identity: Identity,
        interest: Interest,
        token: Token,
        now: Instant,
    ) -> io::Result<Wait> {
        self.statistics.waits += 1;
        let index = Table::index_of(descriptor)?;
        let entry = self.table.entry(index);
        let trusted = entry.trusts(identity);
        let others = if trusted {
            entry.registered
        } else {
            entry.start_over(identity);
            self.waiters.wanted(entry)
        };
        let asked = interest.bits();
        if trusted && entry.registered & asked == asked && entry.drained & asked == asked {
            self.statistics.skipped += 1;
        } else {
            let wanted = Interest::from_bits(asked | others).unwrap_or(interest);
            let armed = arm(driver, entry, index, wanted, trusted, &mut self.statistics);
            match armed {
                Ok(true) => {}
                Ok(false) => {
                    entry.unregister();
                    return Ok(Wait::Ready(interest));
                }
                Err(error) => {
                    entry.unregister();
                    return Err(error);
                }
            }
        }
        entry.unwanted &= !asked;
        let wait = self.waiters.add(entry, index, interest, token, now);
        Ok(Wait::Pending(wait))
    }

    /// Ends a wait, and tells what answered it: nothing, if it is ended before. A second time, it is nothing too.
    pub fn end(&mut self, wait: WaitId) -> Ready {
        self.waiters.end(wait, &mut self.table)
    }

    /// What is known of a descriptor that belongs to this object. Of another's, nothing.
    pub fn known(&self, descriptor: Descriptor, identity: Identity) -> Known {
        let entry = Table::index_of(descriptor)
            .ok()
            .and_then(|index| self.table.get(index))
            .filter(|entry| entry.trusts(identity));
        let of = |interest: Interest| match entry {
            Some(entry) if entry.drained & entry.registered & interest.bits() != 0 => {
                Knowledge::Drained
            }
            Some(entry) if entry.seen & interest.bits() != 0 => Knowledge::Ready,
            _ => Knowledge::Unknown,
        };
        Known {
            readable: of(Interest::READABLE),
            writable: of(Interest::WRITABLE),
            hung_up: entry.is_some_and(|entry| entry.hung_up),
        }
    }

    /// Notes what the caller's own system call has seen.
    pub fn attempted(
        &mut self,
        descriptor: Descriptor,
        identity: Identity,
        interest: Interest,
        attempt: Attempt,
    ) {
        let Ok(index) = Table::index_of(descriptor) else {
            return;
        };
        let Some(entry) = self.table.get_mut(index).filter(|e| e.trusts(identity)) else {
            return;
        };
        let drained = match attempt {
            Attempt::WouldBlock => true,
            Attempt::Short => !entry.hung_up,
            Attempt::Complete => false,
        };
        if drained {
            entry.drained |= interest.bits() & entry.registered;
            entry.seen &= !interest.bits();
        }
    }

    /// The descriptor is about to be closed: nothing is registered or remembered after this.
    pub fn forget(&mut self, driver: &mut dyn Driver, descriptor: Descriptor) {
        let Ok(index) = Table::index_of(descriptor) else {
            return;
        };
        let Some(entry) = self.table.get_mut(index) else {
            return;
        };
        if entry.registered != 0 {
            self.statistics.deregistered += 1;
            // It goes away in any case.
            _ = driver.deregister(descriptor);
        }
        self.waiters
            .answer_all(entry, Ready::ERROR, &mut self.answers);
        entry.start_over(Identity::UNKNOWN);
        entry.unregister();
    }

    /// An event of the driver: answers whoever waits for it.
    pub fn report(&mut self, driver: &mut dyn Driver, event: Event, out: &mut Events) {
        self.statistics.events += 1;
        let index = event.token.index();
        let entry = self.table.get_mut(index);
        let Some(entry) = entry.filter(|e| Token::new(index, e.generation) == event.token) else {
            self.statistics.stale += 1;
            return;
        };
        let directions = event.ready.directions();
        entry.drained &= !directions;
        entry.seen |= directions;
        entry.hung_up |= event.ready.is_final();
        if self.waiters.answer(entry, event.ready, out) {
            return;
        }
        self.statistics.unwanted += 1;
        let again = directions & entry.unwanted & entry.registered;
        entry.unwanted |= directions;
        let hopeless = entry.first == NONE && event.ready.bits() & 7 == 0;
        let keep = if hopeless {
            0
        } else {
            entry.registered & !again
        };
        if keep == entry.registered {
            return;
        }
        let narrowed = match Interest::from_bits(keep) {
            Some(keep) => arm(driver, entry, index, keep, true, &mut self.statistics),
            None => {
                self.statistics.deregistered += 1;
                driver
                    .deregister(Table::descriptor_of(index))
                    .map(|()| false)
            }
        };
        match narrowed {
            Ok(true) => entry.registered = keep,
            // The descriptor is gone, or soon will be: those who still wait are told when they re-arm.
            Ok(false) | Err(_) => entry.unregister(),
        }
    }

    /// When the next wait is to be re-armed.
    pub fn next_rearm(&self) -> Option<Instant> {
        self.waiters.oldest().map(|(_, since)| since + REARM_AFTER)
    }

    /// Re-arms the waits that have been idle for 100 ms.
    pub fn rearm(&mut self, driver: &mut dyn Driver, now: Instant) {
        while let Some((index, since)) = self.waiters.oldest() {
            if since + REARM_AFTER > now {
                return;
            }
            self.waiters.grow_old();
            let entry = self.table.entry(index);
            let wanted = Interest::from_bits(entry.registered | self.waiters.wanted(entry));
            let Some(wanted) = wanted else { continue };
            let answer = match arm(driver, entry, index, wanted, true, &mut self.statistics) {
                Ok(true) => continue,
                Ok(false) => Ready::READABLE | Ready::PRIORITY | Ready::WRITABLE,
                Err(_) => Ready::ERROR,
            };
            entry.unregister();
            self.waiters.answer_all(entry, answer, &mut self.answers);
        }
    }

    /// Whether answers are ready that did not come from the kernel.
    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Moves these answers into `out`.
    pub fn take_answers(&mut self, out: &mut Events) {
        for answer in self.answers.iter() {
            out.push(*answer);
        }
        self.answers.clear();
    }
}

/// Registers, or renews what is registered. False if such files are always ready; then nothing is registered.
///
/// Without trust (another object than last time; its generation is new already) the number has most likely been closed
/// and reused, so the kernel has forgotten it and ADD is right; unless last time that proved wrong for this number: then
/// the objects are several for one description, as C libraries make them, and MOD is right.
fn arm(
    driver: &mut dyn Driver,
    entry: &mut Entry,
    index: u32,
    wanted: Interest,
    trusted: bool,
    statistics: &mut Statistics,
) -> io::Result<bool> {
    let descriptor = Table::descriptor_of(index);
    let token = Token::new(index, entry.generation);
    let forgotten = if entry.registered == 0 || !trusted && !entry.shared {
        statistics.registered += 1;
        match driver.register(descriptor, token, wanted)? {
            Registration::Armed => false,
            Registration::Kept => {
                entry.shared = true;
                false
            }
            Registration::Unpollable => return Ok(false),
        }
    } else {
        statistics.rearmed += 1;
        match driver.reregister(descriptor, token, wanted)? {
            Renewal::Kept => false,
            Renewal::Renewed => {
                statistics.renewed += 1;
                entry.shared = false;
                trusted
            }
            Renewal::Unpollable => return Ok(false),
        }
    };
    entry.registered = wanted.bits();
    entry.seen &= !wanted.bits();
    entry.drained &= !wanted.bits();
    if forgotten {
        // Another description is behind this number now. The old one may live on elsewhere and still report under the
        // old generation: give the new one a generation of its own.
        entry.renew();
        driver.reregister(descriptor, Token::new(index, entry.generation), wanted)?;
    }
    Ok(true)
}
