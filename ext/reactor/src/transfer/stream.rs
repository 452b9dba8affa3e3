//! `io_read` and `io_write`: the system call first, a wait only if it would block.
//!
//! Receives are system calls on every backend, `uring` included: io_uring saves no time for them (bench/NOTES.md, "What
//! io_uring does, and what it does not"). Sends to sockets may be queued for io_uring (`batched_send.rs`). The calls
//! themselves are in `system::transfer` (`ext/scheduler`).
//!
//! A hook parks only if the method that called it waits (`attempt.rs`). If the reactor already knows that the call
//! would block, the hook parks without a system call. Other methods get -EAGAIN, and the VM calls `io_wait`.

use std::time::Duration;

use magnus::{Error, Ruby, Value, error::ErrorType, prelude::*, typed_data::Obj};
use reactor::{Deadline, Ready};
use reactor_scheduler::{
    state::wait::WakeCause,
    system::{
        errno::Errno,
        kind::DescriptorKind,
        terminal_timeout::{pause_limit, read_limit},
        transfer::SLICE,
    },
};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        convert::{self, hook_result},
        error::{closed_elsewhere, io_timeout_error},
        io_info::IoInfo,
    },
    transfer::{
        attempt::{MayPark, attempt, is_known_to_block, record_attempt},
        batched_send,
        file::transfer_file,
        request::{Direction, Transfer},
        worker_write,
    },
    wait::readiness::wait_once,
};

/// The progress of a transfer.
#[derive(Default)]
struct Progress {
    /// The IO object, once examined.
    io: Option<IoInfo>,
    /// The outcome of the last attempt: fewer bytes than requested, or an error, which may be EAGAIN.
    attempted: Option<Result<usize, Errno>>,
    done: usize,
    may_park: MayPark,
    /// The deadline of the next wait.
    deadline: Option<Deadline>,
    /// Whether the transfer ends at the deadline with the bytes it has: a terminal's VTIME.
    ends_at_deadline: bool,
}

/// Returns the hook's result.
#[inline(always)] // shares one frame with its caller on every parked fiber's stack
pub fn transfer(ruby: &Ruby, this: Obj<Scheduler>, transfer: &Transfer) -> Result<Value, Error> {
    let mut progress = Progress::default();
    if let Some(answer) = try_fast_path(ruby, this, transfer, &mut progress)? {
        return Ok(answer);
    }
    transfer_with_waits(ruby, this, transfer, &mut progress)
}

/// The IO of a transfer. Ruby checks the buffer's size before the IO, but a kill or throw out of the IO's `to_io` comes
/// before both.
fn io_of(transfer: &Transfer) -> Result<IoInfo, Error> {
    IoInfo::new(transfer.io).map_err(|error| match error.error_type() {
        ErrorType::Jump(_) => error,
        _ => transfer.room().err().unwrap_or(error),
    })
}

/// The usual case: one system call, without a wait and so without a fiber record. Returns the hook's result if that
/// call was enough.
fn try_fast_path(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    transfer: &Transfer,
    progress: &mut Progress,
) -> Result<Option<Value>, Error> {
    let scheduler: &Scheduler = &this;
    if transfer.file_offset.is_some() || !scheduler.can_skip_entry(ruby, this.as_value())? {
        return Ok(None);
    }
    let direction = transfer.direction;
    let io = progress.io.insert(io_of(transfer)?);
    if is_known_to_block(scheduler, io, direction, &mut progress.may_park) && transfer.has_room()? {
        progress.attempted = Some(Err(Errno::AGAIN));
        return Ok(None);
    }
    let is_batched = direction == Direction::Write && scheduler.state_mut().should_batch();
    if io.kind == DescriptorKind::File || is_batched || transfer.is_for_worker(io.kind) {
        return Ok(None);
    }
    let attempted = attempt(io, transfer, 0)?;
    let (answer, room) = attempted;
    if answer == Err(Errno::NOTSOCK) {
        return Ok(None); // another kind than cached
    }
    record_attempt(scheduler, io, direction, attempted);
    let is_over = match answer {
        Ok(count) if io.kind.never_blocks() => count < room.min(SLICE) || count == room,
        Ok(count) => count == 0 || count >= transfer.minimum && !is_read_of_device(transfer, io),
        Err(_) => io.kind.never_blocks(),
    };
    let count = answer.unwrap_or(0);
    if is_over || io.kind.never_blocks() {
        match io.kind {
            DescriptorKind::MemoryFile => scheduler.slice.count_file_transfer(),
            _ => scheduler.slice.count_transfer(count),
        }
    }
    if is_over {
        return Ok(Some(hook_result(answer)));
    }
    match io.kind.never_blocks() {
        true => progress.done = count,
        false => progress.attempted = Some(answer),
    }
    Ok(None)
}

/// Makes a transfer that may wait and may already have begun. The code before and after a wait has its own frames, so a
/// parked fiber's stack is small.
fn transfer_with_waits(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    transfer: &Transfer,
    progress: &mut Progress,
) -> Result<Value, Error> {
    let scope = match progress.io {
        Some(_) => HookScope::enter_checked(&this)?, // try_fast_path came this far
        None => HookScope::enter(ruby, &this)?,
    };
    transfer.locked(|| transfer_to_the_end(&scope, transfer, progress))
}

#[inline(always)] // shares one frame with its caller on every parked fiber's stack
fn transfer_to_the_end(
    scope: &HookScope,
    transfer: &Transfer,
    progress: &mut Progress,
) -> Result<Value, Error> {
    let mut woken = None;
    loop {
        if let Some(answer) = continue_transfer(scope, transfer, progress, woken.take())? {
            return Ok(answer);
        }
        let Some(io) = &progress.io else { continue };
        let interest = transfer.direction.interest();
        woken = wait_once(scope, io, interest, progress.deadline)?;
        if woken.is_none() {
            progress.io = None; // it would block but cannot be polled: the descriptor has become a file
        }
    }
}

/// Continues until the transfer ends or must wait. The end of the transfer gives the hook's result. `woken`: how the
/// last wait ended.
fn continue_transfer(
    scope: &HookScope,
    transfer: &Transfer,
    progress: &mut Progress,
    woken: Option<(Ready, WakeCause)>,
) -> Result<Option<Value>, Error> {
    if let (Some((ready, cause)), Some(io)) = (woken, &progress.io) {
        if io.io.is_closed() {
            return Err(closed_elsewhere());
        }
        if ready.answers(transfer.direction.interest()).is_none() {
            return match cause {
                // The bytes transferred so far are this call's result.
                WakeCause::Elapsed if progress.ends_at_deadline || progress.done > 0 => {
                    Ok(Some(hook_result(Ok(progress.done))))
                }
                WakeCause::Elapsed => Err(io_timeout_error()),
                _ => Ok(None),
            };
        }
    }
    loop {
        let io = match &mut progress.io {
            Some(io) => io,
            none => none.insert(examine(scope, transfer)?),
        };
        let attempted = match progress.attempted.take() {
            Some(answer) => Some(answer),
            None if io.is_file() || transfer.file_offset.is_some() => {
                match transfer_file(scope, io, transfer, progress.done)? {
                    Some(answer) => return Ok(Some(hook_result(answer))),
                    None => None,
                }
            }
            None => attempt_stream(scope, io, transfer, progress.done, &mut progress.may_park)?,
        };
        let Some(answer) = attempted else {
            io.recheck_kind();
            progress.io = None;
            continue;
        };
        if let Ok(count) = answer {
            scope.scheduler.slice.count_transfer(count);
            progress.done += count;
        }
        let limit = match is_read_of_device(transfer, io) {
            true => device_limit(transfer, io, answer, progress.done)?,
            false => None,
        };
        if limit.is_some() {
            progress.ends_at_deadline = true;
            progress.deadline = scope.scheduler.state().event_loop.deadline(limit);
            return Ok(None);
        }
        match answer {
            Ok(count) if count > 0 && progress.done < transfer.minimum => {}
            Err(Errno::AGAIN) if transfer.minimum > 0 || progress.may_park.ask() => {
                let timeout = convert::timeout(io.io.timeout())?;
                progress.deadline = scope.scheduler.state().event_loop.deadline(timeout);
                return Ok(None);
            }
            Err(errno) if progress.done == 0 => return Ok(Some(hook_result(Err(errno)))),
            _ => return Ok(Some(hook_result(Ok(progress.done)))),
        }
    }
}

/// The IO of a transfer that the fast path has not examined.
#[cold]
fn examine(scope: &HookScope, transfer: &Transfer) -> Result<IoInfo, Error> {
    match transfer.direction {
        Direction::Read => scope.yield_if_slice_spent()?,
        Direction::Write => scope.yield_in_write()?,
    };
    io_of(transfer)
}

/// Attempts to transfer the rest. `None` if the descriptor is no longer of the cached kind.
#[inline(never)] // its frame is on no parked fiber's stack
fn attempt_stream(
    scope: &HookScope,
    io: &IoInfo,
    transfer: &Transfer,
    done: usize,
    may_park: &mut MayPark,
) -> Result<Option<Result<usize, Errno>>, Error> {
    if transfer.is_for_worker(io.kind) {
        return worker_write::write(scope, io, transfer, done).map(Some);
    }
    let direction = transfer.direction;
    if is_known_to_block(scope.scheduler, io, direction, may_park) && transfer.has_room()? {
        return Ok(Some(Err(Errno::AGAIN)));
    }
    let attempted = match batched_send::send(scope, io, transfer, done)? {
        Some(attempted) => attempted,
        None => attempt(io, transfer, done)?,
    };
    if attempted.0 == Err(Errno::NOTSOCK) {
        return Ok(None);
    }
    record_attempt(scope.scheduler, io, direction, attempted);
    Ok(Some(attempted.0))
}

/// How long a terminal waits for the next byte before it ends the read.
#[cold]
fn device_limit(
    transfer: &Transfer,
    io: &IoInfo,
    answer: Result<usize, Errno>,
    done: usize,
) -> Result<Option<Duration>, Error> {
    Ok(match answer {
        Err(Errno::AGAIN) if done == 0 => read_limit(io.descriptor),
        Ok(1..) | Err(Errno::AGAIN) => pause_limit(io.descriptor, done, transfer.room()?),
        _ => None,
    })
}

/// Whether this reads from a terminal or another device. A terminal may end a read before it is readable.
fn is_read_of_device(transfer: &Transfer, io: &IoInfo) -> bool {
    const DEVICES: [DescriptorKind; 2] = [DescriptorKind::PollFirst, DescriptorKind::Terminal];
    transfer.direction == Direction::Read && DEVICES.contains(&io.kind)
}
