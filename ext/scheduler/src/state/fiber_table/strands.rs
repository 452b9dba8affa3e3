//! Moves entries in and out of the fibers' strands: see `state/strand.rs`.

use reactor::{TimerId, Token};

use super::FiberTable;
use crate::state::{
    fiber::{FiberRecord, Slot},
    object_ref::ObjectRef,
    strand::{StrandEntry, Timeout, TimeoutError, TimeoutProgress},
    wait::{FiberId, Wait, WaitState},
};

impl FiberTable {
    // --- covered waits and code ----------------------------------------------------------------------------------

    /// Covers the fiber's current wait, if any, because something begins during it.
    #[cold]
    pub(super) fn cover(&mut self, slot: Slot) {
        let record = &mut self[slot];
        if !record.is_in_wait() {
            return;
        }
        let running = Wait::running(record.next_number());
        let wait = std::mem::replace(&mut record.wait, running);
        record.queued = false;
        let is_counted = wait.is_unblock_only();
        record.push_entry(StrandEntry::Wait(Box::new(wait)));
        self.waiting_for_unblock_only -= usize::from(is_counted);
    }

    /// The innermost wait or timeout has ended, so the wait or code that it covered continues.
    #[cold]
    pub(super) fn uncover(&mut self, slot: Slot) {
        let record = &mut self[slot];
        let is_own = |entry: &StrandEntry| !matches!(entry, StrandEntry::Resumed { .. });
        let Some(place) = record.strand().iter().rposition(is_own) else {
            return;
        };
        if !record.strand()[place].shields() {
            return;
        }
        record.may_time_out = true;
        if let Some(StrandEntry::Wait(wait)) = record.remove_entry(place) {
            record.wait = *wait;
            record.queued = false;
            self.waiting_for_unblock_only += usize::from(record.wait.is_unblock_only());
        }
    }

    /// A trap handler or finalizer runs in the middle of the fiber's code. Timeouts around that code are not raised in
    /// the handler's wait, whether it has begun or is about to begin.
    pub fn cover_code(&mut self, slot: Slot) {
        self[slot].push_entry(StrandEntry::Code);
    }

    /// The fiber's waits, innermost first.
    pub fn waits(&self, slot: Slot) -> impl Iterator<Item = (Token, &Wait)> {
        let record = &self[slot];
        let covered = record.strand().iter().rev();
        let covered = covered.filter_map(|entry| match entry {
            StrandEntry::Wait(wait) => Some(&**wait),
            _ => None,
        });
        let innermost = record.is_in_wait().then_some(&record.wait);
        let waits = innermost.into_iter().chain(covered);
        waits.map(move |wait| (Token::new(slot, wait.number), wait))
    }

    /// The wait with this token, covered or not.
    pub fn wait(&self, token: Token) -> Option<&Wait> {
        self.get(token.index())?;
        let mut waits = self.waits(token.index());
        waits.find(|(own, _)| *own == token).map(|(_, wait)| wait)
    }

    /// Like [`FiberTable::wait`], mutably.
    pub fn wait_mut(&mut self, token: Token) -> Option<&mut Wait> {
        let (slot, number) = (token.index(), token.generation());
        let record = self.get_mut(slot)?;
        if record.wait.number == number {
            return Some(&mut record.wait);
        }
        record
            .entries_mut()
            .iter_mut()
            .find_map(|entry| match entry {
                StrandEntry::Wait(wait) if wait.number == number => Some(&mut **wait),
                _ => None,
            })
    }

    // --- timeouts ------------------------------------------------------------------------------------------------

    /// The token of a timeout whose block is about to begin; call [`FiberTable::begin_timeout`] next.
    pub fn timeout_token(&mut self, slot: Slot) -> Token {
        Token::new(slot, self[slot].next_number())
    }

    /// Called when the block of a timeout begins.
    pub fn begin_timeout(&mut self, token: Token, raise: TimeoutError, timer: Option<TimerId>) {
        self.cover(token.index());
        self[token.index()].push_entry(StrandEntry::Timeout(Timeout {
            number: token.generation(),
            raise,
            timer,
            progress: TimeoutProgress::Running,
            spares: None,
            is_collectable: false,
        }));
    }

    /// Called when the block has ended: nothing is raised after it, even if the timeout has expired. Returns its timer if
    /// the timeout is known.
    pub fn end_timeout(&mut self, token: Token) -> Option<Option<TimerId>> {
        let record = self.get_mut(token.index())?;
        let number = token.generation();
        let is_it = |entry: &StrandEntry| matches!(entry, StrandEntry::Timeout(timeout) if timeout.number == number);
        let place = record.strand().iter().rposition(is_it)?;
        let Some(StrandEntry::Timeout(timeout)) = record.remove_entry(place) else {
            return None;
        };
        if record.may_uncover() {
            self.uncover(token.index());
        }
        Some(timeout.timer)
    }

    /// Called when the timeout elapses for the first time, or is to be raised for another reason (`is_asked`). It ends the
    /// wait in its block, even one that is answered before the fiber runs. If it elapses after the answer, it ends the next
    /// wait in the block instead.
    ///
    /// If the fiber that is to raise it is parked and not queued, returns the token under which to queue it. The wait stays
    /// parked until that fiber runs, because only code in the fiber can find out whether it runs in a handler: by trying to
    /// lock a mutex.
    pub fn expire(&mut self, token: Token, is_asked: bool) -> Option<Token> {
        let record = self.get_mut(token.index())?;
        let is_suspended = record.is_suspended();
        let timeout = record.timeout_mut(token.generation())?;
        if timeout.progress != TimeoutProgress::Running {
            return None;
        }
        timeout.progress = TimeoutProgress::Expired;
        record.may_time_out = true;
        let raising = match is_suspended {
            true => self.resumer_or_self(token.index()),
            false => self.id(token.index()),
        };
        let slot = raising.index();
        let raises = &self.by_id(raising)?.wait;
        let inside = self[token.index()].wait_inside(token.generation());
        let wait = match inside.state {
            WaitState::Running => raises,
            _ => inside,
        };
        let spared = (wait.is_answered() && !is_asked).then_some(wait.number);
        self[token.index()].timeout_mut(token.generation())?.spares = spared;
        self[slot].may_time_out = true;
        self.due_timeout(slot)?;
        let record = &mut self[slot];
        if record.is_suspended() {
            let is_answered = self.has_answer_on_behalf(slot);
            if is_asked || !is_answered {
                self.note_indirect(raising); // otherwise when that fiber waits again
            }
            return None;
        }
        let number = record.wait.is_parked().then(|| record.queue())??;
        Some(Token::new(slot, number))
    }

    /// The outermost expired timeout due in the fiber's innermost wait, as a slot and an index in that slot's strand.
    /// The slot is this fiber's, or that of a suspended fiber that runs for this one.
    pub fn due_timeout(&self, slot: Slot) -> Option<(Slot, usize)> {
        self.expired_timeout(slot, Some(self[slot].wait.number))
    }

    /// As [`FiberTable::due_timeout`], in a wait with this number; `None`: in one that begins now.
    pub(super) fn expired_timeout(&self, slot: Slot, wait: Option<u32>) -> Option<(Slot, usize)> {
        let strand = self[slot].strand();
        let above = strand
            .iter()
            .rposition(StrandEntry::shields)
            .map_or(0, |place| place + 1);
        (above..strand.len()).find_map(|place| match &strand[place] {
            StrandEntry::Timeout(timeout) => {
                let is_expired = timeout.progress == TimeoutProgress::Expired;
                let is_due = wait.is_none() || timeout.spares != wait;
                (is_expired && is_due).then_some((slot, place))
            }
            StrandEntry::Resumed { fiber, .. } if self[*fiber].is_suspended() => {
                self.expired_timeout(*fiber, wait)
            }
            _ => None,
        })
    }

    /// Whether the fiber is parked and an expired timeout ends its wait.
    pub fn has_timed_out(&self, slot: Slot) -> bool {
        let record = &self[slot];
        record.wait.is_parked() && record.ends_by_timeout() && self.due_timeout(slot).is_some()
    }

    /// The exception that the fiber's outermost expired timeout raises.
    pub fn due_exception(&self, slot: Slot) -> Option<ObjectRef> {
        let (holder, place) = self.due_timeout(slot)?;
        match &self[holder].strand()[place] {
            StrandEntry::Timeout(timeout) => Some(timeout.raise.0),
            _ => None,
        }
    }

    /// Leaves the fiber's outermost expired timeout to a later wait.
    pub fn spare_wait(&mut self, slot: Slot) {
        let number = self[slot].wait.number;
        let Some((holder, place)) = self.due_timeout(slot) else {
            return;
        };
        if let StrandEntry::Timeout(timeout) = &mut self[holder].entries_mut()[place] {
            timeout.spares = Some(number);
        }
    }

    /// Takes the exception that the fiber's outermost expired timeout raises.
    pub fn take_expired(&mut self, slot: Slot) -> Option<TimeoutError> {
        let (holder, place) = self.due_timeout(slot)?;
        let StrandEntry::Timeout(timeout) = &mut self[holder].entries_mut()[place] else {
            return None;
        };
        timeout.progress = TimeoutProgress::Raised;
        Some(timeout.raise)
    }

    /// The fiber continues without a wait of its own, but may have resumed another fiber that waits;
    /// [`FiberTable::next_indirect`] checks.
    pub(super) fn note_indirect(&mut self, fiber: FiberId) {
        if !self.indirect.contains(&fiber) {
            self.indirect.push(fiber);
        }
    }

    /// Whether there may be a fiber for [`FiberTable::next_indirect`].
    pub fn has_indirect(&self) -> bool {
        !self.indirect.is_empty()
    }

    /// The next fiber in which an expired timeout must be raised from outside, because the fiber has resumed another
    /// one that is parked. The VM passes the exception on to the parked fiber.
    pub fn next_indirect(&mut self) -> Option<(Slot, ObjectRef)> {
        let mut place = 0;
        while let Some(id) = self.indirect.get(place).copied() {
            let is_suspended = self.by_id(id).is_some_and(FiberRecord::is_suspended);
            if is_suspended && self.has_handler_on_behalf(id.index()) {
                place += 1; // raised after the handler
                continue;
            }
            self.indirect.swap_remove(place);
            // If the fiber is parked, queued or covered, it raises the timeout itself when it runs.
            if is_suspended && self.due_timeout(id.index()).is_some() {
                return Some((id.index(), self[id.index()].fiber));
            }
        }
        None
    }

    /// Called when a fiber is about to park: its resumer, or a fiber between the two, may have an expired timeout that it has
    /// not raised.
    pub fn note_indirect_resumer(&mut self, slot: Slot) {
        let resumer = self.resumer_or_self(slot);
        let is_suspended = self.resumer(slot).is_some_and(FiberRecord::is_suspended);
        if is_suspended && self.due_timeout(resumer.index()).is_some() {
            self.note_indirect(resumer);
        }
    }
}
