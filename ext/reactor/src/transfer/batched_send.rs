//! Sends by way of the driver (io_uring): what several fibers write to stream sockets in one turn reaches the kernel with
//! one system call.
//!
//! Only where somebody else is ready to run, or such sends are queued already: a fiber that is alone makes its system call
//! itself, at once. The kernel is asked not to block and has answered by the end of the turn, so nothing is in its hands
//! while a fiber unwinds; and it only sees memory of the driver's own.
//!
//! Where no more than three sends shared a turn, the next 64 are made directly: a busy writer that gives up its turn for
//! each send costs more than it saves. (Four tasks on one socket pair, 4 kB a message: 4.54 system calls a message and 24.4
//! us of CPU when all were queued, 2.82 and 16.7 so; on epoll 2.81 and 17.1. `bin/bench --calls mixed`.)
//!
//! Small reads of regular files and fsync(2) as well, for `files`: these may take long, and are parked for like work of the
//! pool's.
//!
//! Reads of sockets are always made directly: receiving by way of the driver as well made no difference that could be
//! measured (9.1 us of CPU a round trip instead of 9.3 over 20 connections, 10.7 both ways over 100).
//!
//! What the ring could do besides, and does not. Microseconds of CPU an operation, medians of seven interleaved runs of
//! plain loops around the system calls on a busy machine, Linux 6.18 (they vary by a third, those of waitid by more). The
//! ring's outcomes ring an eventfd below epoll, as the driver's do.
//!
//! | operation                                | by readiness | ring | ring, multishot |
//! |------------------------------------------|--------------|------|-----------------|
//! | accept, 1 connection at a time           | 18.8         | 23.9 | 18.1            |
//! | accept, 20 at a time                     | 16.3         | 17.8 | 13.6            |
//! | connect                                  | 28.7         | 24.9 |                 |
//! | send and receive 100 B, 1 socket         | 10.2         |      | 10.3            |
//! | the same, 20 sockets a turn              | 8.8          |      | 9.5             |
//! | the same, 100 sockets a turn             | 8.8          |      | 8.6             |
//! | send and receive 4 kB, 20 sockets a turn | 8.7          |      | 10.4            |
//! | to learn of a child's end, and waitid    | 10.7         | 7.3  |                 |
//!
//! - accept and connect: a single one gains nothing that stands out (connect's least: 18.9 and 21.6). Multishot accept gains
//!   3 us in bursts, but takes connections that nobody asked for: another process with the same listener never gets them,
//!   and a close loses them. And Ruby has no hook for either: it makes the call itself and asks only to wait.
//! - Multishot receive into provided buffers, copied out: as dear, and dearer with 4 kB. It too takes what nobody asked
//!   for, which `read_nonblock`, `IO.select`, a child and whoever else has the socket would then miss.
//! - waitid: 3 us of a child that costs its parent alone 400 us to start. Without WNOWAIT it is 5.5 in the ring, but then the
//!   status is gone, which a timeout must leave to the next `Process.wait`.
//! - open, close and statx of files: Ruby asks no scheduler before them. What it hands to `blocking_operation_wait` (3.4)
//!   is a C function that makes the call, of which the ring could only be told the result. What we close ourselves never waits:
//!   sockets without linger, and pipes.

use std::io;

use magnus::Error;
use reactor::{Operation, OperationId, Operations, Token};
use rustix::io::Errno;

use crate::{
    attempt::{self, Kind},
    blocking::Interrupted,
    fibers::{Pending, Purpose},
    io::{Request, Watched},
    raw::{self, Pinned},
    selector::{Inner, Selector, Visit},
};

/// Larger writes are made directly: they would be copied once more, and one system call is little beside them. (CPU per
/// HTTP request, the least of twelve runs, direct and queued: bodies of 4 kB 14.1 and 11.5 us, 8 kB 13.5 and 12.2, 16 kB
/// 13.5 and 14.5.)
const LARGEST: usize = 8 << 10;

/// With fewer sends in a turn than this, each of which takes its fiber's turn away from it, there is nothing to gain.
const FEW: u32 = 4;

/// So many sends are made directly then, before a turn's are counted again; twice as many each time it is no better, up
/// to `LONGEST`.
const SHORTEST: u32 = 64;
const LONGEST: u32 = 1024;

/// How many sends share a turn, as far as that is worth knowing.
#[derive(Debug)]
pub struct Company {
    /// Queued since the turn began.
    joined: u32,
    /// Still to be made directly.
    alone: u32,
    /// Were there some when the turn began? Then not all of its sends were counted.
    partial: bool,
    /// How many are to be made directly when next a turn has few.
    pause: u32,
}

impl Default for Company {
    fn default() -> Self {
        Self {
            joined: 0,
            alone: 0,
            partial: false,
            pause: SHORTEST,
        }
    }
}

impl Company {
    /// A turn ends.
    pub fn leave(&mut self) {
        if self.joined >= FEW {
            self.pause = SHORTEST;
        } else if self.joined > 0 && !self.partial {
            self.alone = self.pause;
            self.pause = LONGEST.min(2 * self.pause);
        }
        self.joined = 0;
        self.partial = self.alone > 0;
    }

    /// Is this send to be made directly, because few shared a turn not long ago?
    fn is_missed(&mut self) -> bool {
        let missed = self.alone > 0;
        self.alone = self.alone.saturating_sub(1);
        missed
    }
}

/// What the kernel said, and how many bytes it could have taken.
type Answer = (Result<usize, Errno>, usize);

/// Sends what is left of the buffer, if there is anybody to share a system call with. None: the caller shall do it.
///
/// Whatever interrupts the fiber meanwhile is raised here if nothing was sent, and by its next wait otherwise: what has
/// gone to the peer has to be accounted for.
#[inline(never)]
pub fn send(
    visit: &Visit,
    watched: &Watched,
    request: &Request,
    done: usize,
) -> Result<Option<Answer>, Error> {
    if !is_crowded(visit.selector) {
        return Ok(None);
    }
    let (kind, descriptor) = (watched.kind, watched.descriptor);
    let stream = watched.parkable && kind == Kind::StreamSocket;
    let mut started = None;
    let (answer, size) = request.drain(done, |bytes| {
        if stream && bytes.len() <= LARGEST {
            started = start(visit, descriptor, bytes);
        }
        if started.is_some() {
            return Ok(0);
        }
        // What others wanted to send before us goes before us.
        visit.selector.inner.borrow_mut().submit();
        attempt::write(kind, descriptor, bytes)
    })?;
    let Some(id) = started else {
        return Ok(Some((answer, size)));
    };
    let parked = visit.selector.park_through(visit.slot);
    let outcome = visit.selector.inner.borrow_mut().outcome(id);
    match (parked, outcome) {
        (Ok(_), Some(answer)) => Ok(Some((answer, size))),
        // Taken back before the kernel saw it, because there is something to raise.
        (Ok(_), None) => visit.selector.raise_pending(visit.slot).map(|()| None),
        (Err(error), Some(Ok(count))) if count > 0 => {
            defer(visit, error)?;
            Ok(Some((Ok(count), size)))
        }
        (Err(error), _) => Err(error),
    }
}

/// Queues the operation, and begins a wait of the fiber's for its outcome. None if the driver does not take it.
fn start(visit: &Visit, descriptor: i32, bytes: &[u8]) -> Option<OperationId> {
    let mut inner = visit.selector.inner.borrow_mut();
    let token = inner.fibers.begin(visit.slot, Purpose::Send);
    let id = inner.start(descriptor, Operation::Send(bytes), token);
    match id {
        Some(_) => {
            inner.counters.queued += 1;
            inner.company.joined += 1;
        }
        None => inner.fibers.finish(visit.slot),
    }
    id
}

/// Raises what another fiber raised in this one (Fiber#raise) with its next wait instead.
fn defer(visit: &Visit, error: Error) -> Result<(), Error> {
    let Some(exception) = error.value() else {
        return Err(error); // killed: nobody will ask for the result
    };
    let exception = Pinned::new(exception);
    raw::wrote(visit.object, exception);
    let mut inner = visit.selector.inner.borrow_mut();
    if let Some(record) = inner.fibers.get_mut(visit.slot) {
        record.pending = Some(Pending::Raise(exception));
    }
    Ok(())
}

/// Whether a send is better queued than made at once.
pub fn is_crowded(selector: &Selector) -> bool {
    selector.inner.borrow_mut().is_crowded()
}

/// An operation on a file that is over, and what was raised in the fiber meanwhile.
pub struct Settled {
    id: OperationId,
    raised: Option<Error>,
}

impl Settled {
    /// The outcome; `into` gets what was read. Whatever was raised in the fiber is raised here.
    pub fn take(self, visit: &Visit, into: &mut [u8]) -> Result<Result<usize, Errno>, Error> {
        let mut inner = visit.selector.inner.borrow_mut();
        let outcome = inner.take(self.id, into).unwrap_or(Err(Errno::CANCELED));
        drop(inner);
        self.raised.map_or(Ok(outcome), Err)
    }

    /// The same into what is left of the buffer.
    pub fn fill(
        self,
        visit: &Visit,
        request: &Request,
        done: usize,
    ) -> Result<Result<usize, Errno>, Error> {
        let mut taken = None;
        let filled = request.fill(done, |bytes| {
            taken = visit.selector.inner.borrow_mut().take(self.id, bytes);
            Ok(0)
        });
        // The buffer may have gone meanwhile.
        visit.selector.inner.borrow_mut().abandon(self.id);
        _ = filled?;
        self.raised
            .map_or(Ok(taken.unwrap_or(Err(Errno::INVAL))), Err)
    }
}

/// Begins to have the driver carry out an operation on a file; [`settle`] follows. None if it does not do that.
pub fn begin(visit: &Visit, watched: &Watched, operation: Operation<'_>) -> Option<OperationId> {
    let mut inner = visit.selector.inner.borrow_mut();
    let number = watched.identity.0;
    let token = inner.fibers.await_work(visit.slot, number);
    let id = inner.start(watched.descriptor, operation, token);
    match id {
        Some(_) => {
            inner.counters.carried += 1;
            inner.leases.take((number, visit.slot));
        }
        None => inner.fibers.finish(visit.slot),
    }
    id
}

/// Parks until the operation is over. Interrupted, a fiber leaves what only reads, and waits for what changes something.
pub fn settle(
    visit: &Visit,
    watched: &Watched,
    id: OperationId,
    interrupted: Interrupted,
) -> Result<Settled, Error> {
    let number = watched.identity.0;
    let settled = land(visit, number, id, interrupted);
    visit
        .selector
        .inner
        .borrow_mut()
        .release((number, visit.slot));
    settled
}

fn land(
    visit: &Visit,
    number: u64,
    id: OperationId,
    interrupted: Interrupted,
) -> Result<Settled, Error> {
    let mut raised = None;
    loop {
        let parked = visit.selector.park(visit.slot);
        let mut inner = visit.selector.inner.borrow_mut();
        if let Err(error) = parked {
            if interrupted == Interrupted::Leaves || inner.withdraw(id) {
                inner.abandon(id);
                return Err(error);
            }
            // What unwinds without an exception (a kill, a throw) is not to be kept while other Ruby code runs.
            if error.value().is_none() {
                inner.await_landing(id);
            }
            raised = Some(error);
        }
        if !inner.is_flying(id) {
            return Ok(Settled { id, raised });
        }
        let token = inner.fibers.await_work(visit.slot, number);
        if let Some(operations) = inner.operations() {
            operations.redirect(id, token);
        }
    }
}

impl Inner {
    fn operations(&mut self) -> Option<&mut dyn Operations> {
        self.reactor.as_mut()?.operations()
    }

    fn take(&mut self, id: OperationId, into: &mut [u8]) -> Option<Result<usize, Errno>> {
        let outcome = self.operations()?.take(id, into)?;
        Some(outcome.map_err(|error| errno(&error)))
    }

    fn withdraw(&mut self, id: OperationId) -> bool {
        let operations = self.operations();
        operations.is_some_and(|operations| operations.withdraw(id))
    }

    fn abandon(&mut self, id: OperationId) {
        if let Some(operations) = self.operations() {
            operations.abandon(id);
        }
    }

    fn is_flying(&mut self, id: OperationId) -> bool {
        let operations = self.operations();
        operations.is_some_and(|operations| !operations.is_complete(id))
    }

    fn await_landing(&mut self, id: OperationId) {
        if let Some(operations) = self.operations() {
            _ = operations.wait(id);
        }
    }

    /// Is there anybody to share a system call with? Never where the driver carries out nothing.
    fn is_crowded(&mut self) -> bool {
        match self.operations().map(|operations| operations.queued()) {
            Some(0) if self.company.is_missed() => false,
            Some(0) => self.somebody_is_ready(),
            queued => queued.is_some(),
        }
    }

    fn start(
        &mut self,
        descriptor: i32,
        operation: Operation<'_>,
        token: Token,
    ) -> Option<OperationId> {
        let operations = self.operations()?;
        operations.start(descriptor, operation, token).ok()
    }

    /// The outcome; None if the operation was taken back instead.
    fn outcome(&mut self, id: OperationId) -> Option<Result<usize, Errno>> {
        if let Some(outcome) = self.take(id, &mut []) {
            return Some(outcome);
        }
        if self.withdraw(id) {
            return None;
        }
        // The kernel has it, and does not let it wait.
        match self.operations()?.wait(id) {
            Ok(()) => self.take(id, &mut []),
            Err(error) => Some(Err(errno(&error))),
        }
    }

    /// Hands over what is queued. Before a descriptor is closed: its number may be another's a moment later.
    pub fn submit(&mut self) {
        if let Some(operations) = self
            .operations()
            .filter(|operations| operations.queued() > 0)
        {
            // Should that fail, so will the next turn, and say so.
            _ = operations.submit();
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
