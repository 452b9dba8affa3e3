//! The operations: their memory, their stages, and who still owns them.
//!
//! | stage    | who owns the memory  | leaves it by |
//! |----------|----------------------|--------------|
//! | idle     | nobody               | `start`: queued |
//! | queued   | whoever started it   | `submit`: flying; `withdraw`, `abandon`: idle |
//! | flying   | both                 | its completion: landed; `abandon`: orphaned |
//! | landed   | whoever started it   | `take`, `abandon`: idle |
//! | orphaned | the kernel           | its completion: idle |

use std::{collections::VecDeque, io, mem, thread, time::Duration};

use io_uring::{opcode, squeue, types};

use super::ring::Ring;
use crate::{
    descriptor::Descriptor,
    driver::Operations,
    event::{Event, Events, Ready},
    operation::{Operation, OperationId},
    token::Token,
};

/// So many operations at a time; one more is refused.
const MOST: usize = 1 << 16;

/// A buffer larger than this is given back to the allocator after use.
const KEPT: usize = 1 << 16;

/// How long to leave a kernel alone that takes nothing now.
const PAUSE: Duration = Duration::from_millis(1);

/// The number of a cancellation, whose own outcome nobody wants.
const CANCEL_USER_DATA: u64 = u64::MAX;

/// The current position of a file.
const HERE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Queued,
    InFlight,
    Complete(i32),
    Orphaned,
}

struct OperationSlot {
    generation: u32,
    stage: Stage,
    token: Token,
    entry: squeue::Entry,
    /// What the kernel reads from or writes to. The allocation stays where it is although this record may move.
    buffer: Vec<u8>,
    reads: bool,
}

/// All operations of a driver.
pub(super) struct OperationTable {
    /// Before `slots`, so that a ring is closed before the memory it knows of is given back.
    ring: Ring,
    slots: Vec<OperationSlot>,
    idle: Vec<u32>,
    /// Started and not yet in the submission queue.
    queue: VecDeque<u32>,
    /// Landed and not yet reported.
    unreported: VecDeque<OperationId>,
    /// Flying or orphaned.
    in_flight: usize,
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

    /// Is there something to submit, or to report?
    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.in_flight == 0 && self.unreported.is_empty()
    }

    /// Takes in what the kernel has completed.
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

    /// Appends at most `limit` events for what has landed.
    pub(super) fn report(&mut self, events: &mut Events, limit: usize) {
        let start = events.len();
        while events.len() - start < limit {
            let Some(id) = self.unreported.pop_front() else {
                break;
            };
            // Its outcome may have been taken since.
            if let Some(slot) = self.current(id) {
                events.push(Event {
                    token: slot.token,
                    ready: Ready::COMPLETED,
                });
            }
        }
    }

    /// Asks the kernel to end an operation early. Should it not, the memory waits for the completion all the same. False
    /// if the queue is full.
    fn cancel(&mut self, id: OperationId) -> bool {
        let entry = opcode::AsyncCancel::new(id.into()).build();
        // SAFETY: a cancellation points to nothing.
        let pushed = unsafe { self.ring.push(&entry.user_data(CANCEL_USER_DATA)) };
        if pushed {
            // Should the kernel refuse it now, it stays in the queue.
            _ = self.ring.enter(0);
        }
        pushed
    }

    /// Hands over what is in the submission queue, waits for `wanted` outcomes, and takes in those that are there. If the
    /// kernel takes nothing now, that is asked again after a pause.
    fn push_on(&mut self, wanted: usize) -> io::Result<()> {
        if !self.ring.enter(wanted)? {
            thread::sleep(PAUSE);
        }
        self.collect()
    }

    /// Moves what is queued into the submission queue, as far as there is room.
    fn fill(&mut self) {
        while let Some(index) = self.queue.front() {
            let slot = &mut self.slots[*index as usize];
            // SAFETY: the entry points into the slot's buffer, which is neither moved nor touched nor freed until the
            // slot has landed; and `Drop` waits for those that are in the air.
            if !unsafe { self.ring.push(&slot.entry) } {
                break;
            }
            slot.stage = Stage::InFlight;
            self.in_flight += 1;
            self.queue.pop_front();
        }
    }

    /// The bell is on just while something is in the air that may land later.
    fn listen(&mut self) -> io::Result<()> {
        let needed = self.in_flight > 0;
        if needed != self.notifies {
            self.notifies = needed;
            self.ring.set_notification(needed);
            // What landed before the bell was on has not rung it.
            self.collect()?;
        }
        Ok(())
    }

    fn complete(&mut self, id: OperationId, result: i32) {
        let Some(slot) = self.current(id) else {
            return;
        };
        self.in_flight -= match slot.stage {
            Stage::InFlight => {
                slot.stage = Stage::Complete(result);
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

    fn current(&mut self, id: OperationId) -> Option<&mut OperationSlot> {
        let slot = self.slots.get_mut(id.slot() as usize)?;
        (slot.generation == id.generation() && slot.stage != Stage::Idle).then_some(slot)
    }

    fn claim(&mut self) -> u32 {
        self.idle.pop().unwrap_or_else(|| {
            self.slots.push(OperationSlot {
                generation: 0,
                stage: Stage::Idle,
                token: Token::WAKE,
                entry: opcode::Nop::new().build(),
                buffer: Vec::new(),
                reads: false,
            });
            (self.slots.len() - 1) as u32
        })
    }

    fn release(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.stage = Stage::Idle;
        slot.buffer.clear();
        if slot.buffer.capacity() > KEPT {
            slot.buffer = Vec::new();
        }
        self.idle.push(index);
    }
}

impl Operations for OperationTable {
    fn knows(&self, operation: &Operation<'_>) -> bool {
        let here = matches!(
            operation,
            Operation::Read(None, _) | Operation::Write(None, _)
        );
        self.ring.knows(code_of(operation)) && (!here || self.ring.knows_positions())
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
        let slot = &mut self.slots[index as usize];
        slot.stage = Stage::Queued;
        slot.token = token;
        slot.prepare(descriptor, operation);
        let id = OperationId::new(index, slot.generation);
        slot.entry.set_user_data(id.into());
        self.queue.push_back(index);
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
        self.listen()
    }

    fn take(&mut self, id: OperationId, into: &mut [u8]) -> Option<io::Result<usize>> {
        let Some(slot) = self.current(id) else {
            return Some(Err(io::Error::from_raw_os_error(libc::EINVAL)));
        };
        let Stage::Complete(result) = slot.stage else {
            return None;
        };
        let outcome = match usize::try_from(result) {
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
            Ok(count) => {
                if slot.reads {
                    slot.copy_to(into, count);
                }
                Ok(count)
            }
        };
        self.release(id.slot());
        Some(outcome)
    }

    fn is_complete(&self, id: OperationId) -> bool {
        let slot = self.slots.get(id.slot() as usize);
        slot.is_some_and(|slot| {
            slot.generation == id.generation() && matches!(slot.stage, Stage::Complete(_))
        })
    }

    fn redirect(&mut self, id: OperationId, token: Token) {
        if let Some(slot) = self.current(id) {
            slot.token = token;
        }
    }

    fn withdraw(&mut self, id: OperationId) -> bool {
        let is_queued = |slot: &OperationSlot| slot.stage == Stage::Queued;
        if !self.current(id).is_some_and(|slot| is_queued(slot)) {
            return false;
        }
        self.queue.retain(|index| *index != id.slot());
        self.release(id.slot());
        true
    }

    fn wait(&mut self, id: OperationId) -> io::Result<()> {
        self.submit()?;
        let is_pending =
            |slot: &OperationSlot| matches!(slot.stage, Stage::InFlight | Stage::Queued);
        while self.current(id).is_some_and(|slot| is_pending(slot)) {
            self.fill();
            self.push_on(1)?;
        }
        self.listen()
    }

    fn abandon(&mut self, id: OperationId) {
        if self.withdraw(id) {
            return;
        }
        let Some(slot) = self.current(id) else {
            return;
        };
        if slot.stage == Stage::InFlight {
            slot.stage = Stage::Orphaned;
            self.cancel(id);
            // Should it fail, the bell stays as it was, and the next submission sets it.
            _ = self.collect().and_then(|()| self.listen());
        } else {
            self.release(id.slot());
        }
    }
}

impl Drop for OperationTable {
    /// Waits for the kernel to let go of all memory. What it does not let go of is leaked rather than freed under it.
    fn drop(&mut self) {
        if self.in_flight == 0 || !self.ring.is_ours() {
            return;
        }
        let unfinished: Vec<OperationId> = (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| matches!(slot.stage, Stage::InFlight | Stage::Orphaned))
            .map(|(index, slot)| OperationId::new(index, slot.generation))
            .collect();
        let mut result = Ok(());
        for id in unfinished {
            while result.is_ok() && !self.cancel(id) {
                result = self.push_on(0);
            }
        }
        while self.in_flight > 0 && result.is_ok() {
            result = self.push_on(1);
        }
        if result.is_err() {
            mem::forget(mem::take(&mut self.slots));
        }
    }
}

impl OperationSlot {
    fn prepare(&mut self, descriptor: Descriptor, operation: Operation<'_>) {
        let fd = types::Fd(descriptor);
        self.buffer.clear();
        self.reads = false;
        match operation {
            Operation::Send(bytes) | Operation::Write(_, bytes) => {
                self.buffer.extend_from_slice(bytes);
            }
            Operation::Receive(room) | Operation::Read(_, room) => {
                self.buffer.reserve(room);
                self.reads = true;
            }
            Operation::Sync | Operation::SyncData => {}
        }
        let size = operation.size().try_into().unwrap_or(i32::MAX as u32);
        let place = self.buffer.as_mut_ptr();
        let quietly = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        self.entry = match operation {
            Operation::Send(_) => opcode::Send::new(fd, place, size).flags(quietly).build(),
            Operation::Receive(_) => opcode::Recv::new(fd, place, size)
                .flags(libc::MSG_DONTWAIT)
                .build(),
            Operation::Read(offset, _) => opcode::Read::new(fd, place, size)
                .offset(offset.unwrap_or(HERE))
                .build(),
            Operation::Write(offset, _) => opcode::Write::new(fd, place, size)
                .offset(offset.unwrap_or(HERE))
                .build(),
            Operation::Sync => opcode::Fsync::new(fd).build(),
            Operation::SyncData => opcode::Fsync::new(fd)
                .flags(types::FsyncFlags::DATASYNC)
                .build(),
        };
    }

    /// Copies the first `count` bytes of what the kernel wrote.
    fn copy_to(&mut self, into: &mut [u8], count: usize) {
        let count = count.min(into.len()).min(self.buffer.capacity());
        // SAFETY: the kernel said that it has written `count` bytes at the beginning of the buffer, which had room for
        // them when it was asked to.
        unsafe { self.buffer.set_len(count) };
        into[..count].copy_from_slice(&self.buffer);
    }
}

fn code_of(operation: &Operation<'_>) -> u8 {
    match operation {
        Operation::Send(_) => opcode::Send::CODE,
        Operation::Receive(_) => opcode::Recv::CODE,
        Operation::Read(..) => opcode::Read::CODE,
        Operation::Write(..) => opcode::Write::CODE,
        Operation::Sync | Operation::SyncData => opcode::Fsync::CODE,
    }
}
