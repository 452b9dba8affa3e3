//! Writes to regular files; `file_transfer` says how they are made.

use std::time::Instant;

use magnus::Error;
use reactor::WorkClass;
use reactor_scheduler::system::{file, kind::DescriptorKind, transfer::SLICE};
use rustix::io::Errno;

use crate::{
    control::hook_scope::HookScope,
    ruby::io_facts::IoFacts,
    transfer::{
        file_transfer::{BOUNCE_MAX, FileOutcome, FileTransfer, Step},
        request::Request,
    },
    wait::work::on_pool,
};

/// A write of at most this much that the kernel cannot promise to do at once is made directly all the same, while direct
/// writes do not take long.
const INLINE_WRITE_MAX: usize = 16 << 10;

/// Writes all that was requested; at the file's own offset (or its end: O_APPEND), or at a given one.
pub fn write(
    scope: &HookScope,
    io: &IoFacts,
    request: &Request,
    file_offset: Option<u64>,
) -> Result<FileOutcome, Error> {
    let mut transfer = FileTransfer::new(scope, io, request, file_offset);
    loop {
        if let Step::Over(outcome) = step(&mut transfer)? {
            return Ok(outcome);
        }
    }
}

fn step(transfer: &mut FileTransfer) -> Result<Step, Error> {
    transfer.yield_if_slice_spent()?;
    let (kind, descriptor) = (transfer.io.kind, transfer.descriptor());
    let position = transfer.position();
    let request = transfer.request;
    let (answer, room) = request.with_readable(transfer.done, |bytes| {
        let slice = &bytes[..bytes.len().min(SLICE)];
        file::write(kind, descriptor, slice, position)
    })?;
    match answer {
        Ok(count) => Ok(transfer.moved(count, room.min(SLICE), room)),
        Err(errno) if !transfer.is_for_the_pool(errno) => Ok(transfer.failed(errno)),
        Err(_) if DescriptorKind::of(descriptor) != DescriptorKind::File => {
            Ok(transfer.other_kind())
        }
        Err(errno) if errno != Errno::AGAIN && room <= INLINE_WRITE_MAX && is_quick(transfer) => {
            write_inline(transfer)
        }
        Err(_) => write_copy(transfer, room),
    }
}

/// Whether small writes are likely to be done at once.
fn is_quick(transfer: &FileTransfer) -> bool {
    let state = transfer.scope.scheduler.state();
    state.write_latency.is_quick(Instant::now())
}

fn write_inline(transfer: &mut FileTransfer) -> Result<Step, Error> {
    let (descriptor, position) = (transfer.descriptor(), transfer.position());
    let (request, start) = (transfer.request, Instant::now());
    let (answer, room) = request.with_readable(transfer.done, |bytes| {
        file::write(DescriptorKind::NeverBlocks, descriptor, bytes, position)
    })?;
    let took = start.elapsed();
    transfer
        .scope
        .scheduler
        .state_mut()
        .write_latency
        .record(took, start);
    Ok(match answer {
        Ok(count) => transfer.moved(count, room, room),
        Err(errno) => transfer.failed(errno),
    })
}

/// A worker writes a copy.
fn write_copy(transfer: &mut FileTransfer, room: usize) -> Result<Step, Error> {
    let (descriptor, position) = (transfer.descriptor(), transfer.position());
    let wanted = room.min(BOUNCE_MAX);
    let mut copy = Vec::new();
    _ = transfer.request.with_readable(transfer.done, |bytes| {
        copy.extend_from_slice(&bytes[..bytes.len().min(wanted)]);
        Ok(0)
    })?;
    let interrupted = transfer.interrupted();
    let ended = on_pool(transfer.scope, WorkClass::Disk, interrupted, move || {
        file::write(DescriptorKind::NeverBlocks, descriptor, &copy, position)
    })?;
    ended.raised.map_or(Ok(()), Err)?;
    Ok(match ended.result {
        Some(Ok(count)) => transfer.moved(count, wanted, room),
        Some(Err(errno)) => transfer.failed(errno),
        None => Step::More,
    })
}
