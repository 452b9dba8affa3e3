//! All operations of a driver, and their path through the ring.

use std::{collections::VecDeque, io, mem, thread, time::Duration};

use io_uring::opcode;
use slab::Slab;

use super::{
    operation_slot::{OperationSlot, Stage, code_of},
    ring::Ring,
};
use crate::{
    descriptor::Descriptor,
    driver::Operations,
    event::{Event, Events, Ready},
    operation::{Operation, OperationId},
    token::Token,
};

/// The maximum number of operations; `start` refuses more.
const MOST: usize = 1 << 16;

/// How long to wait before retrying when the kernel accepted nothing (`EAGAIN`, `EBUSY`).
const PAUSE: Duration = Duration::from_millis(1);

/// Larger buffers are freed, in bytes.
const SPARE_MAX: usize = 1 << 16;

/// The user data of cancellations, whose completions are ignored.
const CANCEL_USER_DATA: u64 = u64::MAX;

pub(super) struct OperationTable {
    /// Declared before `slots`, so that the ring is closed before the memory it points to is freed.
    ring: Ring,
    slots: Slab<OperationSlot>,
    /// How many operations were started: the generation of the next id.
    started: u32,
    /// Buffers of operations that have ended, for later ones.
    spare: Vec<Vec<u8>>,
    /// Operations in stage queued that are not yet in the submission queue.
    queue: VecDeque<u32>,
    /// Operations in stage complete that are not yet reported.
    unreported: VecDeque<OperationId>,
    /// The number of operations in stages in flight and orphaned.
    in_flight: usize,
    /// Whether completions signal the eventfd.
    notifies: bool,
}

impl OperationTable {
    pub(super) fn new(mut ring: Ring) -> Self {
        ring.set_notification(false);
        Self {
            ring,
            slots: Slab::new(),
            started: 0,
            spare: Vec::new(),
            queue: VecDeque::new(),
            unreported: VecDeque::new(),
            in_flight: 0,
            notifies: false,
        }
    }

    /// Whether there is nothing to submit, collect or report.
    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.in_flight == 0 && self.unreported.is_empty()
    }

    /// Limits how long a poll may sleep. The sleep is bounded while the kernel is refusing operations, because nothing
    /// else would end it.
    pub(super) fn limit(&self, timeout: Option<Duration>) -> Option<Duration> {
        if self.queued() == 0 {
            return timeout;
        }
        timeout.into_iter().chain([PAUSE]).min()
    }

    /// Collects available completions.
    pub(super) fn collect(&mut self) -> io::Result<()> {
        if self.in_flight == 0 {
            return Ok(());
        }
        while let Some(completion) = self.ring.next_completion()? {
            if completion.user_data() != CANCEL_USER_DATA {
                self.complete(completion.user_data().into(), completion.result());
            }
        }
        Ok(())
    }

    /// Appends at most `limit` events for completed operations.
    pub(super) fn report(&mut self, events: &mut Events, limit: usize) {
        let start = events.len();
        while events.len() - start < limit {
            let Some(id) = self.unreported.pop_front() else {
                break;
            };
            // The outcome may have been taken in the meantime.
            if let Some(slot) = self.current(id) {
                events.push(Event {
                    token: slot.token(),
                    ready: Ready::COMPLETED,
                });
            }
        }
    }

    /// Asks the kernel to cancel an operation. If the kernel cannot, the operation ends when it completes. False if the
    /// submission queue is full.
    fn cancel(&mut self, id: OperationId) -> bool {
        let entry = opcode::AsyncCancel::new(id.into()).build();
        // SAFETY: a cancellation has no pointer.
        let pushed = unsafe { self.ring.push(&entry.user_data(CANCEL_USER_DATA)) };
        if pushed {
            // If the kernel cannot accept it now, it stays in the submission queue.
            _ = self.ring.enter(0);
        }
        pushed
    }

    /// Submits, waits for `wanted` completions, and collects those available. Pauses if the kernel accepts nothing.
    fn push_on(&mut self, wanted: usize) -> io::Result<()> {
        if !self.ring.enter(wanted)? {
            thread::sleep(PAUSE);
        }
        self.collect()
    }

    /// Moves queued operations to the submission queue until it is full.
    fn fill(&mut self) {
        while let Some(index) = self.queue.front() {
            let slot = &mut self.slots[*index as usize];
            // SAFETY: the entry points into the slot's buffer, which is not moved, accessed or freed before its
            // completion arrives. If necessary, `Drop` leaks it.
            if !unsafe { self.ring.push(slot.entry()) } {
                break;
            }
            slot.submitted();
            self.in_flight += 1;
            self.queue.pop_front();
        }
    }

    /// Has completions signal the eventfd while any operation is in flight, and only then.
    fn update_notification(&mut self) -> io::Result<()> {
        let needed = self.in_flight > 0;
        if needed != self.notifies {
            self.notifies = needed;
            self.ring.set_notification(needed);
            // Completions from before the switch did not signal the eventfd.
            self.collect()?;
        }
        Ok(())
    }

    fn complete(&mut self, id: OperationId, result: i32) {
        let Some(slot) = self.current(id) else {
            return;
        };
        self.in_flight -= match slot.stage() {
            Stage::InFlight => {
                slot.complete(result);
                self.unreported.push_back(id);
                1
            }
            Stage::Orphaned => {
                self.end(id);
                1
            }
            _ => 0,
        };
    }

    /// The slot of an operation that has not ended.
    fn current(&mut self, id: OperationId) -> Option<&mut OperationSlot> {
        let slot = self.slots.get_mut(id.slot() as usize)?;
        (slot.id() == id).then_some(slot)
    }

    /// Ends an operation whose buffer the kernel no longer has.
    fn end(&mut self, id: OperationId) {
        let buffer = self.slots.remove(id.slot() as usize).into_buffer();
        if buffer.capacity() <= SPARE_MAX {
            self.spare.push(buffer);
        }
    }
}

impl Operations for OperationTable {
    fn start(
        &mut self,
        descriptor: Descriptor,
        operation: Operation<'_>,
        token: Token,
    ) -> io::Result<OperationId> {
        if !self.ring.knows(code_of(&operation)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if self.slots.len() >= MOST {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let vacant = self.slots.vacant_entry();
        let id = OperationId::new(vacant.key() as u32, self.started);
        let buffer = self.spare.pop().unwrap_or_default();
        let slot = OperationSlot::start(id, descriptor, operation, token, buffer)?;
        vacant.insert(slot);
        self.started = self.started.wrapping_add(1);
        self.queue.push_back(id.slot());
        Ok(id)
    }

    fn queued(&self) -> usize {
        self.queue.len() + self.ring.unsubmitted()
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.queued() == 0 {
            return Ok(());
        }
        loop {
            let before = self.queued();
            self.fill();
            self.ring.enter(0)?;
            self.collect()?;
            let left = self.queued();
            if left == 0 || left == before {
                break;
            }
        }
        self.update_notification()
    }

    fn take(&mut self, id: OperationId) -> Option<io::Result<usize>> {
        let Some(slot) = self.current(id) else {
            return Some(Err(io::Error::from_raw_os_error(libc::EINVAL)));
        };
        let Stage::Complete(result) = slot.stage() else {
            return None;
        };
        self.end(id);
        Some(usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)))
    }

    fn is_complete(&self, id: OperationId) -> bool {
        let slot = self.slots.get(id.slot() as usize);
        slot.is_some_and(|slot| slot.id() == id && matches!(slot.stage(), Stage::Complete(_)))
    }

    fn has_unreported(&self) -> bool {
        !self.unreported.is_empty()
    }

    fn redirect(&mut self, id: OperationId, token: Token) {
        if let Some(slot) = self.current(id) {
            slot.set_token(token);
        }
    }

    fn withdraw(&mut self, id: OperationId) -> bool {
        let stage = self.current(id).map(|slot| slot.stage());
        if stage != Some(Stage::Queued) {
            return false;
        }
        self.queue.retain(|index| *index != id.slot());
        self.end(id);
        true
    }

    fn wait(&mut self, id: OperationId) -> io::Result<()> {
        self.submit()?;
        let is_pending =
            |slot: &mut OperationSlot| matches!(slot.stage(), Stage::InFlight | Stage::Queued);
        while self.current(id).is_some_and(is_pending) {
            self.fill();
            self.push_on(1)?;
        }
        self.update_notification()
    }

    fn abandon(&mut self, id: OperationId) {
        if self.withdraw(id) {
            return;
        }
        let Some(slot) = self.current(id) else {
            return;
        };
        match slot.stage() {
            Stage::InFlight => {
                slot.orphan();
                self.cancel(id);
                // If this fails, the notification setting stays as it is until the next submission updates it.
                _ = self.collect().and_then(|()| self.update_notification());
            }
            Stage::Orphaned => {} // abandoned earlier; the kernel still has the buffer
            _ => self.end(id),
        }
    }
}

impl Drop for OperationTable {
    /// Cancels operations in flight without waiting for them, because the drop may run during garbage collection.
    /// Buffers that the kernel may still write to or read from are leaked.
    fn drop(&mut self) {
        if self.in_flight == 0 || !self.ring.is_ours() {
            return;
        }
        let in_flight: Vec<OperationId> = self
            .slots
            .iter()
            .filter(|(_, slot)| matches!(slot.stage(), Stage::InFlight | Stage::Orphaned))
            .map(|(_, slot)| slot.id())
            .collect();
        let taken = in_flight.into_iter().all(|id| self.cancel(id));
        if !taken || self.collect().is_err() || self.in_flight > 0 {
            mem::forget(mem::take(&mut self.slots));
        }
    }
}

#[cfg(test)]
mod tests;
