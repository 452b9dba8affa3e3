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
    driver::{Descriptor, Operations},
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
const NOBODY: u64 = u64::MAX;

/// The current position of a file.
const HERE: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    Queued,
    Flying,
    Landed(i32),
    Orphaned,
}

struct Flight {
    generation: u32,
    stage: Stage,
    token: Token,
    entry: squeue::Entry,
    /// What the kernel reads from or writes to. The allocation stays where it is although this record may move.
    buffer: Vec<u8>,
    reads: bool,
}

/// All operations of a driver.
pub(super) struct Flights {
    /// Before `flights`, so that a ring is closed before the memory it knows of is given back.
    ring: Ring,
    flights: Vec<Flight>,
    idle: Vec<u32>,
    /// Started and not yet in the submission queue.
    queue: VecDeque<u32>,
    /// Landed and not yet reported.
    landed: VecDeque<OperationId>,
    /// Flying or orphaned.
    airborne: usize,
    bell: bool,
}

impl Flights {
    pub(super) fn new(mut ring: Ring) -> Self {
        ring.set_bell(false);
        Self {
            ring,
            flights: Vec::new(),
            idle: Vec::new(),
            queue: VecDeque::new(),
            landed: VecDeque::new(),
            airborne: 0,
            bell: false,
        }
    }

    /// Is there something to submit, or to report?
    pub(super) fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.airborne == 0 && self.landed.is_empty()
    }

    /// Takes in what the kernel has completed.
    pub(super) fn collect(&mut self) -> io::Result<()> {
        if self.airborne == 0 {
            return Ok(());
        }
        while let Some(completion) = self.ring.next_completion()? {
            if completion.user_data() != NOBODY {
                self.land(completion.user_data().into(), completion.result());
            }
        }
        Ok(())
    }

    /// Appends at most `limit` events for what has landed.
    pub(super) fn report(&mut self, events: &mut Events, limit: usize) {
        let start = events.len();
        while events.len() - start < limit {
            let Some(id) = self.landed.pop_front() else {
                break;
            };
            // Its outcome may have been taken since.
            if let Some(flight) = self.current(id) {
                events.push(Event {
                    token: flight.token,
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
        let pushed = unsafe { self.ring.push(&entry.user_data(NOBODY)) };
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
        while let Some(slot) = self.queue.front() {
            let flight = &mut self.flights[*slot as usize];
            // SAFETY: the entry points into the flight's buffer, which is neither moved nor touched nor freed until the
            // flight has landed; and `Drop` waits for those that are in the air.
            if !unsafe { self.ring.push(&flight.entry) } {
                break;
            }
            flight.stage = Stage::Flying;
            self.airborne += 1;
            self.queue.pop_front();
        }
    }

    /// The bell is on just while something is in the air that may land later.
    fn listen(&mut self) -> io::Result<()> {
        let needed = self.airborne > 0;
        if needed != self.bell {
            self.bell = needed;
            self.ring.set_bell(needed);
            // What landed before the bell was on has not rung it.
            self.collect()?;
        }
        Ok(())
    }

    fn land(&mut self, id: OperationId, result: i32) {
        let Some(flight) = self.current(id) else {
            return;
        };
        self.airborne -= match flight.stage {
            Stage::Flying => {
                flight.stage = Stage::Landed(result);
                self.landed.push_back(id);
                1
            }
            Stage::Orphaned => {
                self.release(id.slot());
                1
            }
            _ => 0,
        };
    }

    fn current(&mut self, id: OperationId) -> Option<&mut Flight> {
        let flight = self.flights.get_mut(id.slot() as usize)?;
        (flight.generation == id.generation() && flight.stage != Stage::Idle).then_some(flight)
    }

    fn claim(&mut self) -> u32 {
        self.idle.pop().unwrap_or_else(|| {
            self.flights.push(Flight {
                generation: 0,
                stage: Stage::Idle,
                token: Token::WAKE,
                entry: opcode::Nop::new().build(),
                buffer: Vec::new(),
                reads: false,
            });
            (self.flights.len() - 1) as u32
        })
    }

    fn release(&mut self, slot: u32) {
        let flight = &mut self.flights[slot as usize];
        flight.generation = flight.generation.wrapping_add(1);
        flight.stage = Stage::Idle;
        flight.buffer.clear();
        if flight.buffer.capacity() > KEPT {
            flight.buffer = Vec::new();
        }
        self.idle.push(slot);
    }
}

impl Operations for Flights {
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
        if self.flights.len() - self.idle.len() >= MOST {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let slot = self.claim();
        let flight = &mut self.flights[slot as usize];
        flight.stage = Stage::Queued;
        flight.token = token;
        flight.prepare(descriptor, operation);
        let id = OperationId::new(slot, flight.generation);
        flight.entry.set_user_data(id.into());
        self.queue.push_back(slot);
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
        let Some(flight) = self.current(id) else {
            return Some(Err(io::Error::from_raw_os_error(libc::EINVAL)));
        };
        let Stage::Landed(result) = flight.stage else {
            return None;
        };
        let outcome = match usize::try_from(result) {
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
            Ok(count) => {
                if flight.reads {
                    flight.copy_to(into, count);
                }
                Ok(count)
            }
        };
        self.release(id.slot());
        Some(outcome)
    }

    fn is_complete(&self, id: OperationId) -> bool {
        let flight = self.flights.get(id.slot() as usize);
        flight.is_some_and(|flight| {
            flight.generation == id.generation() && matches!(flight.stage, Stage::Landed(_))
        })
    }

    fn redirect(&mut self, id: OperationId, token: Token) {
        if let Some(flight) = self.current(id) {
            flight.token = token;
        }
    }

    fn withdraw(&mut self, id: OperationId) -> bool {
        let is_queued = |flight: &Flight| flight.stage == Stage::Queued;
        if !self.current(id).is_some_and(|flight| is_queued(flight)) {
            return false;
        }
        self.queue.retain(|slot| *slot != id.slot());
        self.release(id.slot());
        true
    }

    fn wait(&mut self, id: OperationId) -> io::Result<()> {
        self.submit()?;
        let is_flying = |flight: &Flight| matches!(flight.stage, Stage::Flying | Stage::Queued);
        while self.current(id).is_some_and(|flight| is_flying(flight)) {
            self.fill();
            self.push_on(1)?;
        }
        self.listen()
    }

    fn abandon(&mut self, id: OperationId) {
        if self.withdraw(id) {
            return;
        }
        let Some(flight) = self.current(id) else {
            return;
        };
        if flight.stage == Stage::Flying {
            flight.stage = Stage::Orphaned;
            self.cancel(id);
            // Should it fail, the bell stays as it was, and the next submission sets it.
            _ = self.collect().and_then(|()| self.listen());
        } else {
            self.release(id.slot());
        }
    }
}

impl Drop for Flights {
    /// Waits for the kernel to let go of all memory. What it does not let go of is leaked rather than freed under it.
    fn drop(&mut self) {
        if self.airborne == 0 || !self.ring.is_ours() {
            return;
        }
        let flying: Vec<OperationId> = (0..)
            .zip(&self.flights)
            .filter(|(_, flight)| matches!(flight.stage, Stage::Flying | Stage::Orphaned))
            .map(|(slot, flight)| OperationId::new(slot, flight.generation))
            .collect();
        let mut flown = Ok(());
        for id in flying {
            while flown.is_ok() && !self.cancel(id) {
                flown = self.push_on(0);
            }
        }
        while self.airborne > 0 && flown.is_ok() {
            flown = self.push_on(1);
        }
        if flown.is_err() {
            mem::forget(mem::take(&mut self.flights));
        }
    }
}

impl Flight {
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
