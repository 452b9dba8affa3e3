//! Transfers to and from regular files: through the page cache in slices, while holding the GVL. A pool worker does the
//! rest.
//!
//! A worker reads up to 256 KiB into its own memory, and the fiber copies the bytes from there. If the fiber was
//! interrupted meanwhile, the bytes are put back by moving the file's offset. Larger reads go straight into the buffer,
//! which the fiber keeps until the worker is done, so several workers copy in parallel. If the driver supports reads
//! (io_uring), the driver instead brings the ranges of small reads into the page cache, which takes less CPU than a
//! worker.
//!
//! A worker writes a copy. An interrupted fiber waits until a write in progress has ended, as it would in write(2) itself:
//! no worker ever writes late.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use magnus::Error;
use reactor::{Operation, pool::WorkClass};
use reactor_scheduler::system::{
    descriptor::file_size,
    errno::Errno,
    file::{self, is_cached, populate_page_cache, read_into, seek_by},
    kind::DescriptorKind,
    transfer::SLICE,
};

use crate::{
    control::hook_scope::HookScope,
    ruby::{error::closed_elsewhere, io_info::IoInfo},
    transfer::request::{Direction, Transfer},
    wait::work::{carry_out, on_pool},
};

/// The most bytes that a worker transfers at once. They may then be copied while holding the GVL.
const PIECE: usize = 1 << 20;

/// If the kernel cannot guarantee that a write finishes at once, a write of up to this size is still made directly, as
/// long as direct writes are quick.
const INLINE_WRITE_MAX: usize = 16 << 10;

/// How a worker makes its system calls: it may block.
const BLOCKING: DescriptorKind = DescriptorKind::NeverBlocks;

/// Transfers all requested bytes, or those up to the end of the file. Returns how many, or the error. `None` if the
/// descriptor no longer refers to a file, and nothing was transferred. `done` bytes were transferred before.
pub fn transfer_file(
    scope: &HookScope,
    io: &IoInfo,
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
            Ok(Step::Done(answer)) => {
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
    io: &'a IoInfo,
    transfer: &'a Transfer,
    start: file::Start,
    /// The position and number of the bytes taken from the file at its own offset. The offset is past these bytes now.
    taken: Option<(u64, usize)>,
    /// The driver was already asked to bring the rest into the page cache.
    is_populated: bool,
    done: usize,
}

enum Step {
    More,
    /// `None` if the descriptor no longer refers to a file.
    Done(Option<Result<usize, Errno>>),
}

impl FileTransfer<'_> {
    fn step(&mut self) -> Result<Step, Error> {
        let (kind, descriptor) = (self.io.kind, self.io.descriptor);
        let is_read = self.transfer.direction == Direction::Read;
        let has_yielded = match is_read {
            true => self.scope.yield_if_slice_spent()?,
            false => self.scope.yield_in_write()?,
        };
        if has_yielded && self.io.io.is_closed() {
            return Err(closed_elsewhere());
        }
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
                Ok(Step::Done((self.done > 0).then_some(Ok(self.done))))
            }
            Err(errno) if is_read => self.read_uncached(room, errno),
            Err(_) if self.scope.must_write_at_once() => self.write_here(),
            Err(errno) if errno != Errno::AGAIN && self.is_quick_write(room) => self.write_here(),
            Err(_) => self.write_on_worker(room),
        }
    }

    /// Accounts for `count` bytes transferred of `asked`, with `room` bytes of buffer left.
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
            true => Step::Done(Some(Ok(self.done))),
            false => Step::More,
        }
    }

    /// Returns the bytes transferred so far; the next call gets the error again. A call interrupted by a signal is
    /// repeated, because Ruby raises whatever pread(2) and pwrite(2) return.
    fn failed(&self, errno: Errno) -> Step {
        match (errno, self.done) {
            (Errno::INTR, _) => Step::More,
            (_, 0) => Step::Done(Some(Err(errno))),
            (_, done) => Step::Done(Some(Ok(done))),
        }
    }

    /// Whether the data is not in the page cache, or the kernel cannot guarantee not to block.
    fn is_for_worker(&self, errno: Errno) -> bool {
        const NO_PROMISE: [Errno; 4] = [Errno::AGAIN, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
        self.io.kind == DescriptorKind::File && NO_PROMISE.contains(&errno)
    }

    /// The position of the next byte, if known.
    fn position(&self) -> Option<u64> {
        let start = self.transfer.file_offset;
        let start = start.or(self.taken.map(|(start, _)| start))?;
        Some(start.wrapping_add(self.done as u64))
    }

    // --- reads ---------------------------------------------------------------------------------------------------

    /// A read of this size at the file's own offset first moves the offset past all of it, so that concurrent readers
    /// get the bytes after it, as with read(2). If other fibers are ready, a worker makes the read, even from the page
    /// cache. The read is made here if the fiber is alone, or all workers for copying
    /// ([`Limits::cpu`](reactor::pool::Limits)) are busy (`bench/NOTES.md`, "Which file reads go to a worker").
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

    /// (The offset is not moved for files that seem small, such as all files in proc(5), because moving it has side
    /// effects for some of them.)
    fn take(&mut self, count: usize) {
        let descriptor = self.io.descriptor;
        if self.position().is_none() && file_size(descriptor) >= SLICE as u64 {
            let whole = self.done + count;
            let beyond = seek_by(descriptor, count as i64);
            self.taken = beyond.ok().map(|beyond| (beyond - whole as u64, whole));
        }
    }

    /// Puts back the bytes that were taken or read beyond the `used` bytes that the caller gets, so that the next read
    /// gets them again.
    ///
    /// (Another reader that has used the same open file since then gets some of the bytes twice, because the two
    /// readers' bytes cannot be told apart. With read(2) they would have been lost.)
    fn restore_offset(&self, used: usize) {
        let taken = self.taken.map_or(self.done, |(_, count)| count);
        let is_own_offset = self.transfer.file_offset.is_none();
        if is_own_offset && self.transfer.direction == Direction::Read && taken > used {
            file::put_back(self.io.descriptor, self.start, taken - used);
        }
    }

    /// A driver is not asked to read a file for which the kernel makes no promise. Afterwards the bytes would have to be
    /// read again, by a worker. And io_uring reads such a file while it is submitted, if it can be polled: all of FUSE.
    fn read_uncached(&mut self, room: usize, errno: Errno) -> Result<Step, Error> {
        let step = match room >= SLICE {
            true => self.read_into_buffer(room, WorkClass::Disk)?,
            false if errno == Errno::AGAIN => self.populate_by_driver(room)?,
            false => None,
        };
        step.map_or_else(|| self.read_copy(room), Ok)
    }

    /// Makes the driver read the range, and so bring it into the page cache. `None` if the driver cannot, or has
    /// already done so: the prefetched pages may have been evicted, or never used (O_DIRECT).
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

    /// Makes a worker read into the buffer itself, on another core. `None` if the buffer cannot be sent there, or too
    /// little is left in the file.
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
        let lent = self.scope.scheduler.state().worker_buffers.clone();
        let answer = self.on_worker(class, move || {
            let _lent = lent;
            buffer.with_writable(|bytes| read_into(descriptor, bytes, position))
        })?;
        Ok(Some(self.ended(answer, wanted, room)))
    }

    /// Makes a worker read into its own memory, from which the fiber then copies.
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

    /// Whether small writes are likely to finish at once.
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

    /// Makes a worker write a copy.
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

/// Brings a range of a file into the page cache, by a pool worker unless it is there already. False if the IO is no
/// regular file.
///
/// The range begins at `start`, or at the current position. The kernel is asked for `ahead` bytes too, so that the disk
/// works in parallel.
pub fn prefetch(
    scope: &HookScope,
    io: &IoInfo,
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
        // The next read will get the error again.
        _ = on_pool(scope, WorkClass::Disk, io.io_number(), populate)?;
    }
    Ok(true)
}
