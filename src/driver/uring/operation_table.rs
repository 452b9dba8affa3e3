//! All operations of a driver, and the way of each through the ring.

use std::{collections::VecDeque, io, mem, thread, time::Duration};

use io_uring::opcode;

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

/// Operations at a time; `start` refuses one more.
const MOST: usize = 1 << 16;

/// How long to wait before the kernel is asked again, after it has taken nothing (`EAGAIN`, `EBUSY`).
const PAUSE: Duration = Duration::from_millis(1);

/// The user data of a cancellation. Its completion is dropped.
const CANCEL_USER_DATA: u64 = u64::MAX;

pub(super) struct OperationTable {
    /// Before `slots`: the ring is closed before the memory is freed that the kernel has pointers to.
    ring: Ring,
    slots: Vec<OperationSlot>,
    /// The indexes of the idle slots.
    idle: Vec<u32>,
    /// Stage queued, and not in the submission queue.
    queue: VecDeque<u32>,
    /// Stage complete, and not reported.
    unreported: VecDeque<OperationId>,
    /// How many are in the stages in flight and orphaned.
    in_flight: usize,
    /// Do completions add to the eventfd?
    notifies: bool,
}

impl OperationTable {
    pub(super) fn new(mut ring: Ring) -> Self {
        ring.set_notification(false);
        Self {
            ring,
            slots: Vec::new(),
            idle: Vec::new(),
            queue: VecDeque::new(),
            unreported: VecDeque::new(),
            in_flight: 0,
            notifies: false,
        }
    }

    /// Is there nothing to submit, to collect or to report?
    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.in_flight == 0 && self.unreported.is_empty()
    }

    /// How long a poll may sleep: not without limit while the kernel has refused operations, because nothing else ends the sleep.
    pub(super) fn limit(&self, timeout: Option<Duration>) -> Option<Duration> {
        if self.queued() == 0 {
            return timeout;
        }
        timeout.into_iter().chain([PAUSE]).min()
    }

    /// Takes the completions that are there.
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
            // An operation is not reported if its outcome was taken meanwhile.
            if let Some(slot) = self.current(id) {
                events.push(Event {
                    token: slot.token(),
                    ready: Ready::COMPLETED,
                });
            }
        }
    }

    /// Asks the kernel to end an operation early. If it does not, the completion comes later and ends it. False if the
    /// submission queue is full.
    fn cancel(&mut self, id: OperationId) -> bool {
        let entry = opcode::AsyncCancel::new(id.into()).build();
        // SAFETY: a cancellation has no pointer.
        let pushed = unsafe { self.ring.push(&entry.user_data(CANCEL_USER_DATA)) };
        if pushed {
            // If the kernel does not take it now, it stays in the submission queue.
            _ = self.ring.enter(0);
        }
        pushed
    }

    /// Submits, waits for `wanted` completions, and takes those that are there. Pauses if the kernel takes nothing.
    fn push_on(&mut self, wanted: usize) -> io::Result<()> {
        if !self.ring.enter(wanted)? {
            thread::sleep(PAUSE);
        }
        self.collect()
    }

    /// Moves operations from our queue to the submission queue until that is full.
    fn fill(&mut self) {
        while let Some(index) = self.queue.front() {
            let slot = &mut self.slots[*index as usize];
            // SAFETY: the entry points into the slot's buffer, which is not moved, touched or freed before the completion
            // has come. `Drop` leaks it if need be.
            if !unsafe { self.ring.push(slot.entry()) } {
                break;
            }
            slot.submitted();
            self.in_flight += 1;
            self.queue.pop_front();
        }
    }

    /// Has completions add to the eventfd exactly while an operation is in flight.
    fn update_notification(&mut self) -> io::Result<()> {
        let needed = self.in_flight > 0;
        if needed != self.notifies {
            self.notifies = needed;
            self.ring.set_notification(needed);
            // A completion that came before the switch has not added to the eventfd.
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
                self.release(id.slot());
                1
            }
            _ => 0,
        };
    }

    /// The slot of an operation that has not ended.
    fn current(&mut self, id: OperationId) -> Option<&mut OperationSlot> {
        let slot = self.slots.get_mut(id.slot() as usize)?;
        slot.has(id).then_some(slot)
    }

    /// The index of an idle slot.
    fn claim(&mut self) -> u32 {
        self.idle.pop().unwrap_or_else(|| {
            self.slots.push(OperationSlot::new());
            (self.slots.len() - 1) as u32
        })
    }

    fn release(&mut self, index: u32) {
        self.slots[index as usize].release();
        self.idle.push(index);
    }
}

impl Operations for OperationTable {
    fn knows(&self, operation: &Operation<'_>) -> bool {
        self.ring.knows(code_of(operation))
    }

    fn start(
        &mut self,
        descriptor: Descriptor,
        operation: Operation<'_>,
        token: Token,
    ) -> io::Result<OperationId> {
        if !self.knows(&operation) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if self.slots.len() - self.idle.len() >= MOST {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let index = self.claim();
        let started = self.slots[index as usize].start(index, descriptor, operation, token);
        match started {
            Ok(_) => self.queue.push_back(index),
            Err(_) => self.idle.push(index),
        }
        started
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
        self.release(id.slot());
        Some(usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)))
    }

    fn is_complete(&self, id: OperationId) -> bool {
        let slot = self.slots.get(id.slot() as usize);
        slot.is_some_and(|slot| slot.has(id) && matches!(slot.stage(), Stage::Complete(_)))
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
        self.release(id.slot());
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
                // If this fails, the notification stays as it is, and the next submission sets it.
                _ = self.collect().and_then(|()| self.update_notification());
            }
            Stage::Orphaned => {} // it was abandoned before, and the kernel still has the buffer
            _ => self.release(id.slot()),
        }
    }
}

impl Drop for OperationTable {
    /// Cancels what is in flight, and does not wait for it, because the drop may be that of a garbage collection. Buffers that
    /// the kernel still has are leaked.
    fn drop(&mut self) {
        if self.in_flight == 0 || !self.ring.is_ours() {
            return;
        }
        let in_flight: Vec<OperationId> = (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| matches!(slot.stage(), Stage::InFlight | Stage::Orphaned))
            .map(|(index, slot)| slot.id(index))
            .collect();
        let taken = in_flight.into_iter().all(|id| self.cancel(id));
        if !taken || self.collect().is_err() || self.in_flight > 0 {
            mem::forget(mem::take(&mut self.slots));
        }
    }
}

#[cfg(test)]
mod tests;
