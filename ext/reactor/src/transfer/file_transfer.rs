//! Transfers to and from regular files: from the page cache under the GVL, in slices; the pool reads what is not cached.
//!
//! A small read: a worker only brings the bytes into the page cache. Then the fiber reads them from there, at the file's own
//! offset and into its own buffer. So the worker moves no offset and touches no memory of Ruby's, and a fiber that is
//! interrupted meanwhile has read nothing.
//!
//! A large read: a worker copies the bytes straight into the buffer, which the fiber keeps until the worker is done. So
//! the copying takes no time of the loop's thread.
//!
//! Where the kernel cannot promise not to block (RWF_NOWAIT: not on every file system) a worker reads into memory of its
//! own. Bytes that an interrupted fiber did not take are put back by moving the offset.
//!
//! A driver that carries out operations by itself (io_uring) makes small reads instead of a worker, and fsync(2). The rest
//! stays with the workers; `docs/measured.md` says what that gains.
//!
//! A write: a worker writes a copy. A fiber that is interrupted waits until the write that has begun is over, as it would in
//! write(2) itself: no worker ever writes late.

use std::os::fd::RawFd;

use magnus::Error;
use reactor::{Operation, WorkClass};
use reactor_scheduler::system::{
    descriptor::borrow,
    file::{is_cached, populate_page_cache},
    kind::DescriptorKind,
};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};

use crate::{
    control::hook_scope::HookScope,
    ruby::{error::closed_elsewhere, io_facts::IoFacts},
    transfer::request::Request,
    wait::{
        driver_operation,
        work::{Interrupted, on_pool},
    },
};

/// The most a worker reads into memory of its own or writes at once: that much is copied under the GVL.
pub const BOUNCE_MAX: usize = 512 << 10;

/// The outcome of a transfer.
pub enum FileOutcome {
    /// The hook's answer: bytes, or an error.
    Answer(Result<usize, Errno>),
    /// The descriptor is no regular file's any more: the transfer is to be made as its kind wants it.
    OtherKind,
}

/// The outcome of one step of a transfer.
pub enum Step {
    More,
    Over(FileOutcome),
}

/// A transfer to or from a file.
pub struct FileTransfer<'a> {
    pub scope: &'a HookScope<'a>,
    pub io: &'a IoFacts,
    pub request: &'a Request,
    /// The position in the file; `None`: the file's own offset.
    pub file_offset: Option<u64>,
    /// The bytes taken from the file at its own offset, which is beyond them now: their position and number.
    pub taken: Option<(u64, usize)>,
    pub done: usize,
}

impl<'a> FileTransfer<'a> {
    pub fn new(
        scope: &'a HookScope<'a>,
        io: &'a IoFacts,
        request: &'a Request,
        file_offset: Option<u64>,
    ) -> Self {
        Self {
            scope,
            io,
            request,
            file_offset,
            taken: None,
            done: 0,
        }
    }

    /// Lets other fibers run, one of which may close the file.
    pub fn yield_if_slice_spent(&self) -> Result<(), Error> {
        if self.scope.yield_if_slice_spent()? && self.io.io.is_closed() {
            return Err(closed_elsewhere());
        }
        Ok(())
    }

    /// `count` bytes of `asked` have been transferred, where there was room for `room`.
    pub fn moved(&mut self, count: usize, asked: usize, room: usize) -> Step {
        self.done += count;
        let slice = self.scope.scheduler.slice();
        match self.io.kind {
            DescriptorKind::NeverBlocks => slice.count_transfer(count),
            _ => slice.count_file_transfer(),
        }
        // A short count of the page cache's only means that the next page is not there.
        let is_short = count < asked && self.io.kind != DescriptorKind::File;
        if count == 0 || count == room || is_short {
            Step::Over(FileOutcome::Answer(Ok(self.done)))
        } else {
            Step::More
        }
    }

    /// The bytes transferred so far are the answer. The next call meets the error again. A call that a signal has interrupted
    /// is made again: Ruby raises what pread(2) and pwrite(2) report.
    pub fn failed(&self, errno: Errno) -> Step {
        if errno == Errno::INTR {
            return Step::More;
        }
        Step::Over(FileOutcome::Answer(match self.done {
            0 => Err(errno),
            done => Ok(done),
        }))
    }

    pub fn other_kind(&self) -> Step {
        Step::Over(match self.done {
            0 => FileOutcome::OtherKind,
            done => FileOutcome::Answer(Ok(done)),
        })
    }

    /// Whether the page cache cannot serve it, or the kernel cannot promise that it would not block.
    pub fn is_for_the_pool(&self, errno: Errno) -> bool {
        const NO_PROMISE: [Errno; 4] = [Errno::AGAIN, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
        self.io.kind == DescriptorKind::File && NO_PROMISE.contains(&errno)
    }

    pub fn descriptor(&self) -> RawFd {
        self.io.descriptor
    }

    /// Where the next byte is, if that is known.
    pub fn position(&self) -> Option<u64> {
        let start = self.file_offset.or(self.taken.map(|(start, _)| start));
        start.map(|start| start + self.done as u64)
    }

    /// The work uses the descriptor, which must not be closed meanwhile.
    pub fn interrupted(&self) -> Interrupted {
        Interrupted::Waits(self.io.io_number())
    }
}

/// Brings a range of a file into the page cache, by the pool if it is not there. False if it is no regular file.
///
/// The range begins at `start`, or at the descriptor's offset. The kernel is asked for `ahead` bytes as well, so that the disk
/// works meanwhile.
pub fn prefetch(
    scope: &HookScope,
    io: &IoFacts,
    start: Option<u64>,
    length: usize,
    ahead: u64,
) -> Result<bool, Error> {
    let descriptor = io.descriptor;
    if io.kind.never_blocks() {
        return Ok(true);
    }
    if DescriptorKind::of(descriptor) != DescriptorKind::File {
        return Ok(false);
    }
    let start = start.map_or_else(|| seek(borrow(descriptor), SeekFrom::Current(0)), Ok);
    let Ok(start) = start else { return Ok(true) };
    if !is_cached(descriptor, start, length) {
        let interrupted = Interrupted::Waits(io.io_number());
        let ended = on_pool(scope, WorkClass::Disk, interrupted, move || {
            populate_page_cache(descriptor, start, length, ahead)
        })?;
        // The read that follows meets an error again.
        ended.raised.map_or(Ok(()), Err)?;
    }
    Ok(true)
}

/// fsync(2) or fdatasync(2), by the driver: 0 or the error's number; `None` if the driver does not do that.
pub fn sync_by_driver(
    scope: &HookScope,
    io: &IoFacts,
    data_only: bool,
) -> Result<Option<i32>, Error> {
    let operation = match data_only {
        true => Operation::SyncData,
        false => Operation::Sync,
    };
    let Some(id) = driver_operation::begin(scope, io, operation) else {
        return Ok(None);
    };
    let interrupted = Interrupted::Waits(io.io_number());
    let ended = driver_operation::wait_for_end(scope, io, id, interrupted)?;
    Ok(Some(match ended.take(scope, &mut [])? {
        Ok(_) => 0,
        Err(errno) => errno.raw_os_error(),
    }))
}
