//! Waits for descriptors: when they begin and end, and what the registry knows in between.

mod idle_repair;
mod registration;

use std::{io, time::Duration};

use super::Reactor;
use crate::{
    descriptor::{Descriptor, bad_descriptor},
    driver::BATCH,
    event::{Event, Events, Ready},
    interest::Interest,
    registry::{Attempt, Entry, OwnerId, Registry, Wait, WaitId},
    token::Token,
};

pub(super) use idle_repair::IdleRepair;

/// No driver reports fewer events while it has more.
const LARGE: u64 = BATCH as u64 / 4;

impl Reactor {
    /// Starts to wait until the descriptor is ready for at least one direction of `interest`. The event will carry `token`.
    ///
    /// Each descriptor and direction may have any number of waits: an event answers all of them. Several waits may
    /// share a token.
    ///
    /// The event ends the wait. [`Reactor::end`] ends a wait that is no longer needed.
    ///
    /// # Errors
    ///
    /// `EBADF` if the descriptor is not open, `ENOSPC` at the user's limit of watches, `ENOMEM`: see epoll_ctl(2) and
    /// kevent(2). [`io::ErrorKind::Unsupported`] for [`Interest::PRIORITY`] with kqueue and IOCP. On error
    /// this wait does not exist, and the descriptor's other waits are answered with [`Ready::ERROR`].
    #[inline] // only the usual wait remains, which makes no call
    pub fn wait(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        token: Token,
    ) -> io::Result<Wait> {
        let slot = Registry::slot(descriptor).ok_or_else(bad_descriptor)?;
        self.statistics.waits += 1;
        // Drained directions are never marked spurious: an attempt removes the mark, and an event ends the drained
        // state.
        let entry = self.registry.get_mut(slot);
        let Some(entry) = entry.filter(|entry| entry.cache.is_drained(owner, interest)) else {
            return self.arm(descriptor, slot, owner, interest, token);
        };
        self.statistics.skipped += 1;
        let wait = entry.begin(slot, token, interest, self.clock);
        self.begin_idle();
        Ok(Wait::Pending(wait))
    }

    /// Ends a wait before its event, which then does not come. False if the event has been reported, or the wait has been
    /// ended before. Makes no system call.
    #[inline]
    pub fn end(&mut self, wait: WaitId) -> bool {
        let entry = self.registry.get_mut(wait.slot);
        entry.is_some_and(|entry| entry.waits.cancel(wait.generation))
            || (self.has_answers() && self.end_answered(wait))
    }

    /// Ends a wait that was answered outside an event.
    #[cold]
    fn end_answered(&mut self, wait: WaitId) -> bool {
        self.answered.remove(&wait.into()).is_some()
    }

    /// Reports the outcome of a caller's non-blocking system call in the directions of `interest`.
    ///
    /// Call it right after the system call: otherwise it would overwrite the result of a poll in between. No effect if
    /// the descriptor is not registered by this owner.
    #[inline]
    pub fn attempted(
        &mut self,
        descriptor: Descriptor,
        owner: OwnerId,
        interest: Interest,
        attempt: Attempt,
    ) {
        if let Some(entry) = self.entry_of(descriptor, owner) {
            entry.cache.attempted(interest, attempt);
        }
    }

    /// The tokens of all waits for the descriptor, oldest first. With them a caller can notify waits of
    /// something that the kernel does not report, for example that the owner is about to close the descriptor.
    pub fn waiters(&self, descriptor: Descriptor) -> Vec<Token> {
        let entry = self.entry(descriptor);
        entry.map_or_else(Vec::new, |entry| entry.waits.tokens().collect())
    }

    /// Call this before the owner closes the descriptor. If no wait is left, the entry is cleared without a system
    /// call: close(2) ends the registration in the kernel. This saves owners that know all their waits the system call
    /// of [`Reactor::deregister`]. If the close does not happen, or a duplicate keeps the file open, the next wait
    /// registers again.
    pub fn note_close(&mut self, descriptor: Descriptor, owner: OwnerId) {
        let entry = self.entry_of(descriptor, owner);
        if let Some(entry) = entry.filter(|entry| entry.waits.wanted() == 0) {
            entry.cache.clear();
            self.statistics.closed += 1;
            self.driver.get_mut().note_close(descriptor);
        }
    }

    /// Ends the registration of a descriptor that is about to be closed, and answers its waits with [`Ready::ERROR`].
    /// The next [`Reactor::collect`] reports these events.
    pub fn deregister(&mut self, descriptor: Descriptor) {
        if let Some((slot, _)) = self.registered(descriptor) {
            self.end_registration(slot);
        }
    }

    /// Appends one event for each wait that the driver's events answer.
    pub(super) fn poll(&mut self, events: &mut Events) -> io::Result<()> {
        let (registry, statistics) = (&mut self.registry, &mut self.statistics);
        let before = statistics.events;
        let answer = |event: Event| {
            let entry = registry.current(event.token);
            let is_answer = entry.is_some_and(|entry| entry.apply(event.ready, events));
            statistics.events += u64::from(is_answer);
            is_answer
        };
        self.driver
            .poll(&mut self.reported, Some(Duration::ZERO), answer)?;
        let count = self.statistics.events - before + self.reported.len() as u64;
        self.may_have_more = count >= LARGE;
        self.end_poll(events);
        Ok(())
    }

    /// Applies the events that the driver's poll reported.
    fn end_poll(&mut self, events: &mut Events) {
        self.statistics.polls += 1;
        if !self.reported.is_empty() {
            self.apply_reported(events);
        }
        if self.has_answers() {
            self.deliver(events);
        }
    }

    #[inline(never)] // events from other drivers, and mio's rare ones
    fn apply_reported(&mut self, events: &mut Events) {
        let reported = std::mem::take(&mut self.reported);
        for event in &reported {
            if event.ready == Ready::COMPLETED {
                events.push(*event);
            } else {
                self.event(*event, events);
            }
        }
        self.reported = reported; // keeps its memory
    }

    /// Appends the answers given outside events.
    #[inline(never)] // few polls have any
    fn deliver(&mut self, events: &mut Events) {
        events.extend(std::mem::take(&mut self.answered).into_values());
    }

    /// Re-arms idle waits if some are due.
    #[inline]
    pub(super) fn rearm(&mut self, events: &mut Events) -> io::Result<()> {
        match self.idle_repair.next {
            Some(due) if due <= self.clock => self.rearm_idle(events),
            _ => Ok(()),
        }
    }

    /// Call this when the descriptor was made to refer to another file by dup2(2). It is registered anew at once, and
    /// its waits continue with the new file. Without this call, the next re-arm answers them with [`Ready::ERROR`] if the
    /// kernel tells that the file is another one. If the descriptor is closed, the next [`Reactor::collect`] answers its
    /// waits with [`Ready::ERROR`].
    pub fn replaced(&mut self, descriptor: Descriptor) {
        if let Some((slot, registered)) = self.registered(descriptor) {
            // On error all waits are answered: their own system calls will return the error.
            _ = self.renew(slot, registered, true);
        }
    }

    /// Call this when the owner has shut down the reading half: the next [`Reactor::collect`] answers waits for
    /// reading with [`Ready::READ_CLOSED`]. On Windows the system's own poll does not report the shutdown.
    pub fn note_read_shutdown(&mut self, descriptor: Descriptor) {
        if let Some((slot, _)) = self.registered(descriptor) {
            self.registry.claim(slot).cache.observe(Ready::READ_CLOSED);
            self.answer_outside(slot, Some(Ready::READ_CLOSED));
        }
    }

    /// Whether an answer given outside an event awaits the next poll.
    pub(super) fn has_answers(&self) -> bool {
        !self.answered.is_empty()
    }

    pub(super) fn entry(&self, descriptor: Descriptor) -> Option<&Entry> {
        self.registry.get(Registry::slot(descriptor)?)
    }

    /// The entry of a descriptor registered by this owner.
    #[inline]
    fn entry_of(&mut self, descriptor: Descriptor, owner: OwnerId) -> Option<&mut Entry> {
        let entry = self.registry.get_mut(Registry::slot(descriptor)?);
        entry.filter(|entry| entry.cache.is_owner(owner))
    }

    /// The slot of a registered descriptor, and its interest.
    fn registered(&self, descriptor: Descriptor) -> Option<(u32, Interest)> {
        let slot = Registry::slot(descriptor)?;
        Some((slot, self.registry.get(slot)?.cache.registered()?))
    }
}
