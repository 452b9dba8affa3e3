//! Transfers to and from regular files: from the page cache under the GVL, in slices. A worker of the pool does the rest.
//!
//! A worker reads up to 256 KiB into memory of its own, and the fiber copies that. If the fiber was interrupted meanwhile, the bytes
//! are put back by moving the offset. A larger read goes straight into the buffer, which the fiber keeps until the worker is
//! done: so several workers copy at once. If the driver carries out reads (io_uring), it brings small ones into the page cache
//! instead: that takes less CPU than a worker.
//!
//! A worker writes a copy. A fiber that is interrupted waits until the write that has begun is over, as it would in write(2)
//! itself: no worker ever writes late.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use magnus::Error;
use reactor::{Operation, WorkClass};
use reactor_scheduler::system::{
    descriptor::file_size,
    errno::Errno,
    file::{self, is_cached, populate_page_cache, read_into, seek_by},
    kind::DescriptorKind,
    transfer::SLICE,
};

use crate::{
    control::hook_scope::HookScope,
    ruby::{error::closed_elsewhere, io_facts::IoFacts},
    transfer::request::{Direction, Transfer},
    wait::work::{carry_out, on_pool},
};

/// The most a worker transfers at once: that much may be copied under the GVL.
const PIECE: usize = 1 << 20;

/// A write of at most this much that the kernel cannot promise to do at once is made directly all the same, while direct
/// writes do not take long.
const INLINE_WRITE_MAX: usize = 16 << 10;

/// How a worker makes its system calls: it may wait.
const BLOCKING: DescriptorKind = DescriptorKind::NeverBlocks;

/// Transfers all that was requested, or up to the end of the file: how many bytes, or the error. `None` if it is no
/// file any more, and nothing has been transferred. `done` bytes were transferred before.
pub fn transfer_file(
    scope: &HookScope,
    io: &IoFacts,
    transfer: &Transfer,
    done: usize,
) -> Result<Option<Result<usize, Errno>>, Error> {
    let mut file = FileTransfer {
        scope,
        io,
        transfer,
        start: file::start(io.descriptor),
        taken: None,
        is_populated: false,
        done,
    };
    loop {
        match file.step() {
            Ok(Step::More) => {}
            Ok(Step::Over(answer)) => {
                file.restore_offset(file.done);
                return Ok(answer);
            }
            Err(error) => {
                file.restore_offset(0);
                return Err(error);
            }
        }
    }
}

struct FileTransfer<'a> {
    scope: &'a HookScope<'a>,
    io: &'a IoFacts,
    transfer: &'a Transfer,
    start: file::Start,
    /// The bytes taken from the file at its own offset, which is beyond them now: their position and number.
    taken: Option<(u64, usize)>,
    /// The driver has been asked to bring it into the page cache.
    is_populated: bool,
    done: usize,
}

enum Step {
    More,
    /// `None`: it is no file any more.
    Over(Option<Result<usize, Errno>>),
}

impl FileTransfer<'_> {
    fn step(&mut self) -> Result<Step, Error> {
        if self.scope.yield_if_slice_spent()? && self.io.io.is_closed() {
            return Err(closed_elsewhere());
        }
        let (kind, descriptor) = (self.io.kind, self.io.descriptor);
        let is_read = self.transfer.direction == Direction::Read;
        if is_read && kind == DescriptorKind::File {
            let room = self.transfer.room()?.saturating_sub(self.done);
            if let Some(step) = self.begin_large_read(room)? {
                return Ok(step);
            }
        }
        let position = self.position();
        let (answer, room) = self.transfer.call(
            self.done,
            |bytes| {
                let size = bytes.len().min(SLICE);
                file::read(kind, descriptor, &mut bytes[..size], position)
            },
            |bytes| file::write(kind, descriptor, &bytes[..bytes.len().min(SLICE)], position),
        )?;
        match answer {
            Ok(count) => Ok(self.moved(count, room.min(SLICE), room)),
            Err(errno) if !self.is_for_worker(errno) => Ok(self.failed(errno)),
            Err(_) if DescriptorKind::of(descriptor) != DescriptorKind::File => {
                Ok(Step::Over((self.done > 0).then_some(Ok(self.done))))
            }
            Err(_) if is_read => self.read_uncached(room),
            Err(errno) if errno != Errno::AGAIN && self.is_quick_write(room) => self.write_here(),
            Err(_) => self.write_on_worker(room),
        }
    }

    /// `count` bytes of `asked` have been transferred, where there was room for `room`.
    fn moved(&mut self, count: usize, asked: usize, room: usize) -> Step {
        self.done += count;
        let slice = &self.scope.scheduler.slice;
        match self.io.kind {
            DescriptorKind::NeverBlocks => slice.count_transfer(count),
            _ => slice.count_file_transfer(),
        }
        let may_end_short = match self.io.kind {
            DescriptorKind::File => file::SHORT_IS_END && self.done >= self.transfer.minimum,
            _ => true,
        };
        let is_short = count < asked && may_end_short;
        match count == 0 || count == room || is_short {
            true => Step::Over(Some(Ok(self.done))),
            false => Step::More,
        }
    }

    /// The bytes transferred so far are the answer. The next call meets the error again. A call that a signal has interrupted
    /// is made again: Ruby raises what pread(2) and pwrite(2) report.
    fn failed(&self, errno: Errno) -> Step {
        match (errno, self.done) {
            (Errno::INTR, _) => Step::More,
            (_, 0) => Step::Over(Some(Err(errno))),
            (_, done) => Step::Over(Some(Ok(done))),
        }
    }

    /// Whether the page cache cannot serve it, or the kernel cannot promise that it would not block.
    fn is_for_worker(&self, errno: Errno) -> bool {
        const NO_PROMISE: [Errno; 4] = [Errno::AGAIN, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
        self.io.kind == DescriptorKind::File && NO_PROMISE.contains(&errno)
    }

    /// Where the next byte is, if that is known.
    fn position(&self) -> Option<u64> {
        let start = self.transfer.file_offset;
        let start = start.or(self.taken.map(|(start, _)| start))?;
        Some(start.wrapping_add(self.done as u64))
    }

    // --- reads ---------------------------------------------------------------------------------------------------

    /// A read of this much at the file's own offset takes all of it from there first, so that other readers meanwhile get what
    /// comes after it, as with read(2). If other fibers are ready to go on, a worker makes it, also from the page cache. If all
    /// workers for copying ([`Limits::cpu`](reactor::Limits)) are busy, it is made here, and so is one of a fiber that is
    /// alone (`bench/NOTES.md`, "Which file reads go to a worker").
    fn begin_large_read(&mut self, room: usize) -> Result<Option<Step>, Error> {
        if room < SLICE {
            return Ok(None);
        }
        self.take(room);
        let is_better_on_worker = self.scope.scheduler.state_mut().should_read_on_pool();
        match is_better_on_worker {
            true => self.read_into_buffer(room, WorkClass::Cpu),
            false => Ok(None),
        }
    }

    /// (Not if the file seems to be small, as all files in proc(5) do, because moving the offset of some of them leaves a trace.)
    fn take(&mut self, count: usize) {
        let descriptor = self.io.descriptor;
        if self.position().is_none() && file_size(descriptor) >= SLICE as u64 {
            let whole = self.done + count;
            let beyond = seek_by(descriptor, count as i64);
            self.taken = beyond.ok().map(|beyond| (beyond - whole as u64, whole));
        }
    }

    /// Puts back what was taken, or read, beyond the `used` bytes that the caller gets: the next read gets it again.
    ///
    /// (Another reader of the same open file since then gets some of them twice: there is no telling them apart. In read(2)
    /// they would have been lost.)
    fn restore_offset(&self, used: usize) {
        let taken = self.taken.map_or(self.done, |(_, count)| count);
        let is_own_offset = self.transfer.file_offset.is_none();
        if is_own_offset && self.transfer.direction == Direction::Read && taken > used {
            file::put_back(self.io.descriptor, self.start, taken - used);
        }
    }

    fn read_uncached(&mut self, room: usize) -> Result<Step, Error> {
        let step = match room >= SLICE {
            true => self.read_into_buffer(room, WorkClass::Disk)?,
            false => self.populate_by_driver(room)?,
        };
        step.map_or_else(|| self.read_copy(room), Ok)
    }

    /// The driver reads it, and so brings it into the page cache. `None` if it does not do that, or has done so before: prefetched
    /// pages may be gone again, or never count (O_DIRECT).
    fn populate_by_driver(&mut self, room: usize) -> Result<Option<Step>, Error> {
        let here = || seek_by(self.io.descriptor, 0);
        let position = self.position().map_or_else(here, Ok);
        let (false, Ok(position)) = (self.is_populated, position) else {
            return Ok(None);
        };
        self.is_populated = true;
        let operation = Operation::Read(position, room);
        let answer = carry_out(self.scope, self.io, operation)?;
        Ok(answer
            .is_some_and(|answer| answer.is_ok())
            .then_some(Step::More))
    }

    /// A worker reads into the buffer itself, on another core. `None` if it cannot be sent there, or if too little is left
    /// in the file.
    fn read_into_buffer(&mut self, room: usize, class: WorkClass) -> Result<Option<Step>, Error> {
        let Some(position) = self.position() else {
            return Ok(None);
        };
        let descriptor = self.io.descriptor;
        if file_size(descriptor).saturating_sub(position) < SLICE as u64 {
            return Ok(None);
        }
        let wanted = room.min(PIECE);
        let Some(mut buffer) = self.transfer.sendable(self.done, wanted)? else {
            return Ok(None);
        };
        let lent = self.scope.scheduler.state().lent_buffers.clone();
        let answer = self.on_worker(class, move || {
            let _lent = lent;
            buffer.with_writable(|bytes| read_into(descriptor, bytes, position))
        })?;
        Ok(Some(self.ended(answer, wanted, room)))
    }

    /// A worker reads into memory of its own, and the fiber copies that.
    fn read_copy(&mut self, room: usize) -> Result<Step, Error> {
        let (descriptor, position) = (self.io.descriptor, self.position());
        let wanted = room.min(PIECE);
        let read = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&read);
        let ended = self.on_worker(WorkClass::Disk, move || {
            let mut bytes = vec![0; wanted];
            let count = file::read(BLOCKING, descriptor, &mut bytes, position)?;
            counter.store(count, Ordering::Relaxed);
            bytes.truncate(count);
            Ok::<_, Errno>(bytes)
        });
        if ended.is_err() {
            self.done += read.load(Ordering::Relaxed); // to be put back
        }
        let bytes = match ended? {
            Ok(bytes) => bytes,
            Err(errno) => return Ok(self.failed(errno)),
        };
        let copy = |room: &mut [u8]| {
            let count = bytes.len().min(room.len());
            room[..count].copy_from_slice(&bytes[..count]);
            Ok(count)
        };
        let (copied, _) = self.transfer.call(self.done, copy, |_| Ok(0))?;
        Ok(self.ended(copied, wanted, room))
    }

    // --- writes --------------------------------------------------------------------------------------------------

    /// Whether small writes are likely to be done at once.
    fn is_quick_write(&self, room: usize) -> bool {
        let state = self.scope.scheduler.state();
        room <= INLINE_WRITE_MAX && state.is_write_quick(Instant::now())
    }

    fn write_here(&mut self) -> Result<Step, Error> {
        let (descriptor, position) = (self.io.descriptor, self.position());
        let start = Instant::now();
        let (answer, room) = self.transfer.call(
            self.done,
            |_| Ok(0),
            |bytes| file::write(BLOCKING, descriptor, bytes, position),
        )?;
        let took = start.elapsed();
        self.scope.scheduler.state_mut().record_write(start, took);
        Ok(self.ended(answer, room, room))
    }

    /// A worker writes a copy.
    fn write_on_worker(&mut self, room: usize) -> Result<Step, Error> {
        let (descriptor, position) = (self.io.descriptor, self.position());
        let wanted = room.min(PIECE);
        let mut copy = Vec::new();
        let copied = |bytes: &[u8]| {
            copy.extend_from_slice(&bytes[..bytes.len().min(wanted)]);
            Ok(0)
        };
        _ = self.transfer.call(self.done, |_| Ok(0), copied)?;
        let answer = self.on_worker(WorkClass::Disk, move || {
            file::write(BLOCKING, descriptor, &copy, position)
        })?;
        Ok(self.ended(answer, wanted, room))
    }

    // --- workers -------------------------------------------------------------------------------------------------

    fn on_worker<T: Send + 'static>(
        &self,
        class: WorkClass,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        on_pool(self.scope, class, self.io.io_number(), work)
    }

    fn ended(&mut self, answer: Result<usize, Errno>, asked: usize, room: usize) -> Step {
        match answer {
            Ok(count) => self.moved(count, asked, room),
            Err(errno) => self.failed(errno),
        }
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
    let start = start.map_or_else(|| seek_by(descriptor, 0), Ok);
    let Ok(start) = start else { return Ok(true) };
    if !is_cached(descriptor, start, length) {
        let populate = move || populate_page_cache(descriptor, start, length, ahead);
        // The read that follows meets an error again.
        _ = on_pool(scope, WorkClass::Disk, io.io_number(), populate)?;
    }
    Ok(true)
}
