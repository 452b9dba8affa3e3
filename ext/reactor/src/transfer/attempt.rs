//! One attempt at a transfer, what the reactor learns from it, and whether the hook may wait.
//!
//! A hook may wait if the method that called it does. `read_nonblock` and similar must not wait.

use magnus::Error;
use reactor::{Attempt, CachedReadiness};
use reactor_scheduler::system::{
    errno::Errno, file, kind::DescriptorKind, transfer as system, unpolled::BlockingWrite,
};

use crate::{
    control::scheduler::Scheduler,
    ruby::{caller::WAITING, io_info::IoInfo, thread::blocking_call},
    transfer::request::{Attempted, Direction, Transfer},
    wait::readiness::watch,
};

/// One non-blocking system call on the rest of the buffer.
pub fn attempt(io: &IoInfo, transfer: &Transfer, done: usize) -> Result<Attempted, Error> {
    let mut is_cut = false;
    let read = |bytes: &mut [u8]| match io.kind {
        DescriptorKind::UnixSocket if !bytes.is_empty() => {
            let (count, cut) = system::receive_unix(io.descriptor, bytes)?;
            is_cut = cut;
            Ok(count)
        }
        kind => system::read(kind, io.descriptor, bytes),
    };
    let write = |bytes: &[u8]| system::write(io.kind, io.descriptor, bytes);
    let (answer, room) = transfer.call(done, read, write)?;
    // A read that was cut had no room for more.
    Ok((answer, if is_cut { 0 } else { room }))
}

/// One system call for a loop without fibers. Files are read and written with the GVL released and the buffer locked, so
/// that no other thread frees its memory.
pub fn attempt_without_scheduler(io: &IoInfo, transfer: &Transfer) -> Result<Attempted, Error> {
    const KIND: DescriptorKind = DescriptorKind::NeverBlocks;
    let (descriptor, position) = (io.descriptor, transfer.file_offset);
    let blocks = transfer.is_for_worker(io.kind);
    if position.is_none() && !io.is_file() && !blocks {
        return attempt(io, transfer, 0);
    }
    transfer.locked(|| {
        transfer.call(
            0,
            |bytes| {
                let answer = blocking_call(|| file::read(KIND, descriptor, bytes, position));
                answer.unwrap_or(Err(Errno::INTR))
            },
            |bytes| {
                let answer = blocking_call(|| match blocks {
                    true => BlockingWrite::new(descriptor, bytes)?.block(),
                    false => file::write(KIND, descriptor, bytes, position),
                });
                answer.unwrap_or(Err(Errno::INTR))
            },
        )
    })
}

/// Whether the kernel said "would block" and no event has come since. If so, another system call would find nothing
/// new.
fn is_drained(scheduler: &Scheduler, io: &IoInfo, direction: Direction) -> bool {
    let known = scheduler.state().cached_readiness(io.polled(), io.owner_id);
    known.is_some_and(|known| match direction {
        Direction::Read => known.readable == CachedReadiness::Drained,
        Direction::Write => known.writable == CachedReadiness::Drained,
    })
}

/// Reports the outcome of a system call to the reactor.
pub fn record_attempt(
    scheduler: &Scheduler,
    io: &IoInfo,
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

/// The [`Attempt`] that a system call's outcome amounts to; `None` if it says nothing new about the descriptor.
pub fn seen(io: &IoInfo, (answer, room): Attempted) -> Option<Attempt> {
    match answer {
        Err(Errno::AGAIN) => Some(Attempt::WouldBlock),
        Ok(count) if count < room && io.kind.short_means_drained() => Some(Attempt::Short),
        _ => None,
    }
}

/// Whether the hook may wait, because the method that called it waits. The VM is asked once per transfer.
#[derive(Default)]
pub struct MayPark(Option<bool>);

impl MayPark {
    pub fn ask(&mut self) -> bool {
        *self.0.get_or_insert_with(|| WAITING.have_called())
    }
}

/// Whether the call is known to block, and this hook may wait for it.
pub fn is_known_to_block(
    scheduler: &Scheduler,
    io: &IoInfo,
    direction: Direction,
    may_park: &mut MayPark,
) -> bool {
    (io.is_ruby_socket || io.kind == DescriptorKind::StreamPipe)
        && is_drained(scheduler, io, direction)
        && may_park.ask()
}
