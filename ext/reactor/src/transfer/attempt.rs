//! One attempt at a transfer, and the news of the descriptor that the reactor gets from it.

use std::os::fd::RawFd;

use magnus::Error;
use reactor::{Attempt, CachedReadiness};
use reactor_scheduler::system::{file, kind::DescriptorKind, transfer};
use rustix::io::Errno;

use crate::{
    control::scheduler::Scheduler,
    ruby::{io_facts::IoFacts, thread::blocking_call},
    transfer::request::{Attempted, Direction, Request},
    wait::readiness::watch,
};

/// One system call that does not block, on what is left of the buffer.
pub fn attempt(
    io: &IoFacts,
    direction: Direction,
    request: &Request,
    done: usize,
) -> Result<Attempted, Error> {
    let (kind, descriptor) = (io.kind, io.descriptor);
    match direction {
        Direction::Read => {
            request.with_writable(done, |bytes| transfer::read(kind, descriptor, bytes))
        }
        Direction::Write => {
            request.with_readable(done, |bytes| transfer::write(kind, descriptor, bytes))
        }
    }
}

/// One system call outside of a scheduler's reach: in a forked child, or for a loop without fibers. A file is read and
/// written with the GVL released. The buffer is locked meanwhile, so that no other thread frees its memory.
pub fn attempt_without_scheduler(
    io: &IoFacts,
    direction: Direction,
    request: &Request,
    file_offset: Option<u64>,
) -> Result<Result<usize, Errno>, Error> {
    if file_offset.is_none() && !io.is_file() {
        return attempt(io, direction, request, 0).map(|(answer, _)| answer);
    }
    let is_locked = request.lock(direction)?;
    let attempted = attempt_without_gvl(io.descriptor, direction, request, file_offset);
    if is_locked {
        request.unlock();
    }
    attempted.map(|(answer, _)| answer)
}

fn attempt_without_gvl(
    descriptor: RawFd,
    direction: Direction,
    request: &Request,
    file_offset: Option<u64>,
) -> Result<Attempted, Error> {
    const KIND: DescriptorKind = DescriptorKind::NeverBlocks;
    match direction {
        Direction::Read => request.with_writable(0, |bytes| {
            blocking_call(|| file::read(KIND, descriptor, bytes, file_offset))
                .unwrap_or(Err(Errno::INTR))
        }),
        Direction::Write => request.with_readable(0, |bytes| {
            blocking_call(|| file::write(KIND, descriptor, bytes, file_offset))
                .unwrap_or(Err(Errno::INTR))
        }),
    }
}

/// Whether the kernel said "would block" and no event has come since: then a system call cannot tell more.
pub fn is_drained(scheduler: &Scheduler, io: &IoFacts, direction: Direction) -> bool {
    let known = scheduler
        .state()
        .cached_readiness(io.descriptor, io.owner_id);
    known.is_some_and(|known| match direction {
        Direction::Read => known.readable == CachedReadiness::Drained,
        Direction::Write => known.writable == CachedReadiness::Drained,
    })
}

/// Tells the reactor what a system call has seen.
pub fn record_attempt(
    scheduler: &Scheduler,
    io: &IoFacts,
    direction: Direction,
    attempted: Attempted,
) {
    if let Some(seen) = seen(io, attempted) {
        let is_empty = seen == Attempt::WouldBlock && io.kind == DescriptorKind::Pipe;
        if is_empty && is_drained(scheduler, io, direction) {
            io.note_stream_pipe();
        }
        let watch = watch(io, direction.interest());
        scheduler.state_mut().record_attempt(watch, seen);
    }
}

/// The news of the descriptor in the outcome of a system call; `None` if there is none.
pub fn seen(io: &IoFacts, (answer, room): Attempted) -> Option<Attempt> {
    match answer {
        Err(Errno::AGAIN) => Some(Attempt::WouldBlock),
        Ok(count) if count < room && io.kind.short_means_drained() => Some(Attempt::Short),
        _ => None,
    }
}
