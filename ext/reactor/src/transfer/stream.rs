//! `io_read` and `io_write` of what is not a file: the system call first, the wait only when the kernel says that it would block.
//!
//! Receives are system calls on every backend, `uring` as well: io_uring saves no time for them (docs/measured.md). Sends to
//! sockets may be queued for io_uring (`batched_send.rs`). The calls themselves are in `system::transfer` (`ext/scheduler`).
//!
//! A hook parks only if the method that called it waits (`may_park.rs`). Where the reactor already knows that the call would
//! block, it parks without a system call. Every other method gets -EAGAIN, and the VM calls `io_wait`.

use std::time::Duration;

use magnus::{Error, Ruby, Value, error::ErrorType, prelude::*, typed_data::Obj};
use reactor::{Deadline, Ready};
use reactor_scheduler::{
    state::{wait::WakeCause, wait_registration::Registered},
    system::{
        kind::DescriptorKind,
        terminal_timeout::{pause_limit, read_limit},
        transfer::{self as system, SLICE},
    },
};
use rustix::io::Errno;

use crate::{
    control::{
        hook_scope::{Entered, HookScope},
        scheduler::Scheduler,
    },
    ruby::{
        convert::{self, hook_result},
        error::{closed_elsewhere, io_timeout_error},
        io_facts::IoFacts,
    },
    transfer::{
        attempt::{attempt, attempt_without_scheduler, record_attempt},
        batched_send, file_read,
        file_transfer::FileOutcome,
        file_write,
        may_park::{MayPark, is_known_to_block, raises_eagain},
        request::{Direction, Request},
    },
    wait::readiness,
};

/// A transfer.
pub struct Transfer<'a> {
    pub io: Value,
    pub direction: Direction,
    pub request: &'a Request,
    /// The position in the file; `None`: the file's own offset, or no file.
    pub file_offset: Option<u64>,
}

/// How far it has come.
#[derive(Default)]
struct Progress {
    /// The IO object, once it has been looked at.
    io: Option<IoFacts>,
    /// The outcome of the last attempt: fewer bytes than are wanted, or an error, which may be that it would block.
    attempted: Option<Result<usize, Errno>>,
    done: usize,
    may_park: MayPark,
    /// Of the wait that is to come.
    deadline: Option<Deadline>,
    /// When the deadline has come, the transfer ends with what it has: a terminal's VTIME.
    ends_at_deadline: bool,
}

/// The hook's answer.
pub fn transfer(ruby: &Ruby, this: Obj<Scheduler>, transfer: &Transfer) -> Result<Value, Error> {
    let mut progress = Progress::default();
    if let Some(answer) = try_fast_path(ruby, this, transfer, &mut progress)? {
        return Ok(answer);
    }
    transfer_with_waits(ruby, this, transfer, &mut progress)
}

/// The IO of a transfer. Ruby looks at the buffer's size before it looks at the IO.
fn io_of(transfer: &Transfer) -> Result<IoFacts, Error> {
    IoFacts::new(transfer.io).map_err(|error| error_of(transfer, error))
}

/// The error of the buffer, or that of the IO. But a kill or a throw out of the IO's `to_io` goes on.
#[cold]
fn error_of(transfer: &Transfer, error: Error) -> Error {
    match error.error_type() {
        ErrorType::Jump(_) => error,
        _ => transfer.request.room().err().unwrap_or(error),
    }
}

/// The usual case, which needs no wait and therefore no record of the fiber: one system call. The hook's answer, if that was
/// all.
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
    let (direction, request) = (transfer.direction, transfer.request);
    let io = io_of(transfer)?;
    let (kind, descriptor) = (io.kind, io.descriptor);
    if kind == DescriptorKind::File {
        return Ok(None);
    }
    if is_known_to_block(scheduler, &io, direction, &mut progress.may_park) && request.has_room()? {
        progress.io = Some(io);
        progress.attempted = Some(Err(Errno::AGAIN));
        return Ok(None);
    }
    let never_blocks = kind.never_blocks();
    let is_sliced = |size: usize| never_blocks && size > SLICE;
    let attempted = match direction {
        Direction::Write if scheduler.state_mut().should_batch() => {
            progress.io = Some(io);
            return Ok(None);
        }
        Direction::Read => request.with_writable(0, |bytes| match is_sliced(bytes.len()) {
            true => Err(Errno::NOTSOCK),
            false => system::read(kind, descriptor, bytes),
        }),
        Direction::Write => request.with_readable(0, |bytes| match is_sliced(bytes.len()) {
            true => Err(Errno::NOTSOCK),
            false => system::write(kind, descriptor, bytes),
        }),
    }?;
    let answer = attempted.0;
    if answer == Err(Errno::NOTSOCK) {
        return Ok(None); // another kind than remembered, or to be done in slices
    }
    record_attempt(scheduler, &io, direction, attempted);
    let is_over = match answer {
        Ok(count) => count == 0 || may_be_enough(transfer, &io, count) || never_blocks,
        Err(_) => never_blocks,
    };
    if is_over {
        match kind {
            DescriptorKind::MemoryFile => scheduler.slice().count_file_transfer(),
            _ => scheduler.slice().count_transfer(answer.unwrap_or(0)),
        }
        return Ok(Some(hook_result(answer)));
    }
    progress.io = Some(io);
    progress.attempted = Some(answer);
    Ok(None)
}

/// The transfer as one that may wait, and may have begun. What happens before and after a wait has frames of its own, so
/// little is on the fiber's stack while it is parked.
fn transfer_with_waits(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    transfer: &Transfer,
    progress: &mut Progress,
) -> Result<Value, Error> {
    let entered = match progress.io {
        Some(_) => HookScope::enter_checked(&this)?, // try_fast_path has come this far
        None => HookScope::enter(ruby, &this)?,
    };
    let Entered::Usable(scope) = entered else {
        return transfer_in_forked_child(transfer);
    };
    let is_locked = transfer.request.lock(transfer.direction)?;
    let answer = transfer_to_the_end(&scope, transfer, progress);
    if is_locked {
        transfer.request.unlock();
    }
    answer
}

fn transfer_to_the_end(
    scope: &HookScope,
    transfer: &Transfer,
    progress: &mut Progress,
) -> Result<Value, Error> {
    let mut woken = None;
    loop {
        if let Some(answer) = continue_transfer(scope, transfer, progress, woken)? {
            return Ok(answer);
        }
        woken = match begin_wait(scope, transfer, progress)? {
            None => look_again(transfer, progress).map(|()| None)?,
            Some(registered) => {
                let parked = scope.scheduler.park(scope.slot);
                let ready = readiness::end_wait(scope.scheduler, registered);
                Some((ready, parked?))
            }
        }
    }
}

/// One attempt. If it would block, the VM calls `io_wait`, which blocks in a forked child.
#[cold]
fn transfer_in_forked_child(transfer: &Transfer) -> Result<Value, Error> {
    let io = io_of(transfer)?;
    let (direction, request) = (transfer.direction, transfer.request);
    attempt_without_scheduler(&io, direction, request, transfer.file_offset).map(hook_result)
}

fn begin_wait(
    scope: &HookScope,
    transfer: &Transfer,
    progress: &Progress,
) -> Result<Option<Registered>, Error> {
    let Some(io) = &progress.io else {
        return Ok(None);
    };
    readiness::begin_wait(scope, io, transfer.direction.interest(), progress.deadline)
}

/// It would block and is not polled: the descriptor has become a file, which is read and written in another way.
#[cold]
fn look_again(transfer: &Transfer, progress: &mut Progress) -> Result<(), Error> {
    progress.io = Some(IoFacts::new(transfer.io)?);
    Ok(())
}

/// Goes on until it is over, which is the hook's answer, or has to wait. `woken`: how the last wait ended.
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
                WakeCause::Elapsed if progress.ends_at_deadline => {
                    Ok(Some(hook_result(Ok(progress.done))))
                }
                WakeCause::Elapsed => time_is_up(progress.done).map(Some),
                _ => Ok(None),
            };
        }
    }
    if progress.io.is_none() {
        scope.yield_if_slice_spent()?;
        progress.io = Some(io_of(transfer)?);
    }
    let Some(io) = &mut progress.io else {
        return Ok(None);
    };
    let minimum = transfer.request.minimum();
    loop {
        let answer = match progress.attempted.take() {
            Some(answer) => answer,
            None => {
                match attempt_again(scope, transfer, io, progress.done, &mut progress.may_park)? {
                    Again::Over(answer) => return Ok(Some(hook_result(answer))),
                    Again::Attempted(answer) => answer,
                }
            }
        };
        if let Ok(count) = answer {
            scope.scheduler.slice().count_transfer(count);
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
            Ok(count) => {
                if count == 0 || progress.done >= minimum {
                    return Ok(Some(hook_result(Ok(progress.done))));
                }
            }
            Err(Errno::AGAIN) if progress.may_park.ask(io) || minimum > 0 || raises_eagain() => {
                let timeout = convert::timeout(io.io.timeout())?;
                if timeout != Some(Duration::ZERO) {
                    progress.deadline = scope.scheduler.state().event_loop.deadline(timeout);
                    return Ok(None);
                }
                let interest = transfer.direction.interest();
                let ready = readiness::wait_until_ready(scope, io, interest, timeout)?;
                if ready.is_none() {
                    return time_is_up(progress.done).map(Some);
                }
            }
            Err(_) if progress.done > 0 => return Ok(Some(hook_result(Ok(progress.done)))),
            Err(errno) => return Ok(Some(hook_result(Err(errno)))),
        }
    }
}

/// Whether the call may have all that is asked for. A terminal may wait for more.
fn may_be_enough(transfer: &Transfer, io: &IoFacts, count: usize) -> bool {
    count >= transfer.request.minimum() && !is_read_of_device(transfer, io)
}

/// How long a terminal waits for the next byte before it ends the read.
#[cold]
fn device_limit(
    transfer: &Transfer,
    io: &IoFacts,
    answer: Result<usize, Errno>,
    done: usize,
) -> Result<Option<Duration>, Error> {
    Ok(match answer {
        Err(Errno::AGAIN) if done == 0 => read_limit(io.descriptor),
        Ok(1..) | Err(Errno::AGAIN) => pause_limit(io.descriptor, done, transfer.request.room()?),
        _ => None,
    })
}

/// A terminal may end a read before it is readable.
fn is_read_of_device(transfer: &Transfer, io: &IoFacts) -> bool {
    transfer.direction == Direction::Read && io.kind == DescriptorKind::PollFirst
}

/// The bytes transferred before are this call's answer.
#[cold]
fn time_is_up(done: usize) -> Result<Value, Error> {
    match done {
        0 => Err(io_timeout_error()),
        _ => Ok(hook_result(Ok(done))),
    }
}

/// The outcome of a further attempt.
enum Again {
    /// The whole transfer is over: it was a file's.
    Over(Result<usize, Errno>),
    Attempted(Result<usize, Errno>),
}

/// An attempt at what is left, as the kind of the descriptor wants it now.
fn attempt_again(
    scope: &HookScope,
    transfer: &Transfer,
    io: &mut IoFacts,
    done: usize,
    may_park: &mut MayPark,
) -> Result<Again, Error> {
    let (direction, request) = (transfer.direction, transfer.request);
    loop {
        if io.is_file() || transfer.file_offset.is_some() {
            let outcome = match direction {
                Direction::Read => file_read::read(scope, io, request, transfer.file_offset)?,
                Direction::Write => file_write::write(scope, io, request, transfer.file_offset)?,
            };
            match outcome {
                FileOutcome::Answer(answer) => return Ok(Again::Over(answer)),
                FileOutcome::OtherKind => {
                    io.recheck_kind();
                    *io = IoFacts::new(transfer.io)?;
                }
            }
        }
        if is_known_to_block(scope.scheduler, io, direction, may_park) && request.has_room()? {
            return Ok(Again::Attempted(Err(Errno::AGAIN)));
        }
        let sent = match direction {
            Direction::Write => batched_send::send(scope, io, request, done)?,
            Direction::Read => None,
        };
        let attempted = match sent {
            Some(attempted) => attempted,
            None => attempt(io, direction, request, done)?,
        };
        if attempted.0 == Err(Errno::NOTSOCK) {
            io.recheck_kind();
            *io = IoFacts::new(transfer.io)?;
            continue;
        }
        record_attempt(scope.scheduler, io, direction, attempted);
        return Ok(Again::Attempted(attempted.0));
    }
}
