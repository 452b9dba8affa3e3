//! Reads from regular files; `file_transfer` says how they are made.

use magnus::Error;
use reactor::{Operation, OperationId, WorkClass};
use reactor_scheduler::system::{
    descriptor::{borrow, file_size},
    file::{self, populate_page_cache, read_into},
    kind::DescriptorKind,
    transfer::SLICE,
};
use rustix::{fs::SeekFrom, io::Errno};

use crate::{
    control::hook_scope::HookScope,
    ruby::io_facts::IoFacts,
    transfer::{
        file_transfer::{BOUNCE_MAX, FileOutcome, FileTransfer, Step},
        request::Request,
    },
    wait::{
        driver_operation,
        work::{Interrupted, on_pool},
    },
};

/// The most a worker brings into the page cache at once.
const PREFETCH_MAX: usize = 1 << 20;

/// A read of this much is made by a worker, straight into the buffer, even if it is in the page cache, when other fibers are
/// ready to go on meanwhile: several workers copy at once. A read that comes when all workers for copying
/// ([`Limits::cpu`](reactor::Limits)) are busy is made here, in slices, and so is one of a fiber that is alone
/// (`docs/measured.md`).
const OFFLOAD_MIN: usize = 256 << 10;

/// A read of this much is, if it is not in the page cache. A smaller one only brings the bytes there, so that none but its
/// own have to be put back when the fiber is interrupted.
const OFFLOAD_UNCACHED_MIN: usize = 64 << 10;

/// After this many prefetches that did not help, a worker reads into memory of its own.
const MAX_PREFETCHES: u32 = 2;

/// Reads up to the end of the buffer, of what was requested or of the file; from the file's own offset, or a given one.
pub fn read(
    scope: &HookScope,
    io: &IoFacts,
    request: &Request,
    file_offset: Option<u64>,
) -> Result<FileOutcome, Error> {
    let mut read = FileRead {
        transfer: FileTransfer::new(scope, io, request, file_offset),
        prefetches: 0,
        stays_here: false,
    };
    loop {
        match read.step() {
            Ok(Step::More) => {}
            Ok(Step::Over(outcome)) => {
                read.restore_offset(read.transfer.done);
                return Ok(outcome);
            }
            Err(error) => {
                read.restore_offset(0);
                return Err(error);
            }
        }
    }
}

struct FileRead<'a> {
    transfer: FileTransfer<'a>,
    /// Prefetches since the last read from the page cache that had success.
    prefetches: u32,
    /// Too little is left to be handed over.
    stays_here: bool,
}

impl FileRead<'_> {
    fn step(&mut self) -> Result<Step, Error> {
        self.transfer.yield_if_slice_spent()?;
        let (kind, descriptor) = (self.transfer.io.kind, self.transfer.descriptor());
        let request = self.transfer.request;
        let (answer, room) = request.with_writable(self.transfer.done, |bytes| {
            let is_large = kind == DescriptorKind::File && bytes.len() >= OFFLOAD_MIN;
            if is_large && !self.stays_here && self.is_better_on_pool() {
                return Err(Errno::INPROGRESS);
            }
            if kind == DescriptorKind::File && bytes.len() > SLICE {
                self.take(bytes.len());
            }
            let slice = bytes.len().min(SLICE);
            let position = self.transfer.position();
            file::read(kind, descriptor, &mut bytes[..slice], position)
        })?;
        match answer {
            Err(Errno::INPROGRESS) => {
                let step = self.read_on_pool(room, OFFLOAD_MIN, WorkClass::Cpu)?;
                self.stays_here = step.is_none();
                Ok(step.unwrap_or(Step::More))
            }
            Ok(count) => {
                self.prefetches = 0;
                Ok(self.transfer.moved(count, room.min(SLICE), room))
            }
            Err(errno) if !self.transfer.is_for_the_pool(errno) => Ok(self.transfer.failed(errno)),
            Err(_) if DescriptorKind::of(descriptor) != DescriptorKind::File => {
                Ok(self.transfer.other_kind())
            }
            // Prefetched pages may be gone again, or never count (O_DIRECT).
            Err(Errno::AGAIN) if self.prefetches < MAX_PREFETCHES => {
                match self.read_on_pool(room, OFFLOAD_UNCACHED_MIN, WorkClass::Disk)? {
                    Some(step) => Ok(step),
                    None => self.prefetch(room),
                }
            }
            Err(_) => self.read_through_copy(room),
        }
    }

    /// A worker brings what comes next into the page cache.
    fn prefetch(&mut self, room: usize) -> Result<Step, Error> {
        self.prefetches += 1;
        let (scope, descriptor) = (self.transfer.scope, self.transfer.descriptor());
        let position = match self.transfer.position() {
            Some(position) => Ok(position),
            None => rustix::fs::seek(borrow(descriptor), SeekFrom::Current(0)),
        };
        let position = match position {
            Ok(position) => position,
            Err(errno) => return Ok(self.transfer.failed(errno)),
        };
        if room < OFFLOAD_MIN {
            let operation = Operation::Read(position, room);
            if let Some(id) = driver_operation::begin(scope, self.transfer.io, operation) {
                return self.await_driver_read(id, room);
            }
        }
        let ended = on_pool(
            scope,
            WorkClass::Disk,
            self.transfer.interrupted(),
            move || populate_page_cache(descriptor, position, room.min(PREFETCH_MAX), 0),
        )?;
        ended.raised.map_or(Ok(()), Err)?;
        match ended.result {
            Some(Err(errno)) => Ok(self.transfer.failed(errno)),
            _ => Ok(Step::More),
        }
    }

    /// The driver reads into memory of its own. If the position is known, that is all. Otherwise the fiber reads once more,
    /// from the page cache and at the file's own offset, which the ring does not guard against other readers.
    fn await_driver_read(&mut self, id: OperationId, room: usize) -> Result<Step, Error> {
        let (scope, io) = (self.transfer.scope, self.transfer.io);
        let ended = driver_operation::wait_for_end(scope, io, id, Interrupted::Leaves)?;
        let is_placed = self.transfer.position().is_some();
        let outcome = match is_placed {
            true => ended.take_with(scope, |take| {
                let filled = self
                    .transfer
                    .request
                    .with_writable(self.transfer.done, |bytes| {
                        take(bytes);
                        Ok(0)
                    });
                filled.map(drop)
            })?,
            false => ended.take(scope, &mut [])?,
        };
        Ok(match outcome {
            Ok(count) if is_placed => self.transfer.moved(count, room, room),
            Ok(_) => Step::More,
            Err(_) => {
                self.prefetches = u32::MAX; // a worker reads into memory of its own, and meets the error again
                Step::More
            }
        })
    }

    /// A worker reads into the buffer itself, on another core. `None` if it cannot be sent there, or if too little is left
    /// in it or in the file.
    fn read_on_pool(
        &mut self,
        room: usize,
        least: usize,
        class: WorkClass,
    ) -> Result<Option<Step>, Error> {
        if room < least {
            return Ok(None);
        }
        self.take(room);
        let Some(position) = self.transfer.position() else {
            return Ok(None);
        };
        let descriptor = self.transfer.descriptor();
        if file_size(descriptor).saturating_sub(position) < least as u64 {
            return Ok(None);
        }
        let wanted = room.min(PREFETCH_MAX);
        let request = self.transfer.request;
        let Some(mut buffer) = request.sendable(self.transfer.done, wanted)? else {
            return Ok(None);
        };
        let scope = self.transfer.scope;
        let guard = scope.scheduler.state().buffers.lend();
        let ended = on_pool(scope, class, self.transfer.interrupted(), move || {
            let _guard = guard;
            buffer.with_writable(|bytes| read_into(descriptor, bytes, position))
        })?;
        ended.raised.map_or(Ok(()), Err)?;
        Ok(Some(match ended.result {
            Some(Ok(count)) => self.transfer.moved(count, wanted, room),
            Some(Err(errno)) => self.transfer.failed(errno),
            None => Step::More,
        }))
    }

    fn is_better_on_pool(&self) -> bool {
        let mut state = self.transfer.scope.scheduler.state_mut();
        state.should_read_on_pool()
    }

    /// A read at the file's own offset, in more than one piece, takes all of it from there first, so that other readers
    /// meanwhile get what comes after it, as with read(2). (Not if the file seems to be small, as all files in proc(5) do, because
    /// moving the offset of some of them leaves a trace.)
    fn take(&mut self, count: usize) {
        let transfer = &mut self.transfer;
        if transfer.file_offset.is_none()
            && transfer.taken.is_none()
            && file_size(transfer.descriptor()) >= OFFLOAD_MIN as u64
        {
            let forward = SeekFrom::Current(count as i64);
            let whole = transfer.done + count;
            let beyond = rustix::fs::seek(borrow(transfer.descriptor()), forward);
            transfer.taken = beyond.ok().map(|beyond| (beyond - whole as u64, whole));
        }
    }

    /// Puts back what was taken, or read, beyond the `used` bytes that the caller gets: the next read gets it again.
    ///
    /// (Another reader of the same open file since then gets some of them twice: there is no telling them apart. In read(2)
    /// they would have been lost.)
    fn restore_offset(&self, used: usize) {
        let taken = self
            .transfer
            .taken
            .map_or(self.transfer.done, |(_, count)| count);
        if self.transfer.file_offset.is_none() && taken > used {
            let back = SeekFrom::Current(-((taken - used) as i64));
            _ = rustix::fs::seek(borrow(self.transfer.descriptor()), back);
        }
    }

    /// A worker reads into memory of its own, and the fiber copies that.
    fn read_through_copy(&mut self, room: usize) -> Result<Step, Error> {
        let (descriptor, position) = (self.transfer.descriptor(), self.transfer.position());
        let wanted = room.min(BOUNCE_MAX);
        let interrupted = self.transfer.interrupted();
        let ended = on_pool(
            self.transfer.scope,
            WorkClass::Disk,
            interrupted,
            move || {
                let mut bytes = vec![0; wanted];
                let kind = DescriptorKind::NeverBlocks;
                let count = file::read(kind, descriptor, &mut bytes, position)?;
                bytes.truncate(count);
                Ok::<_, Errno>(bytes)
            },
        )?;
        let bytes = match ended.result {
            Some(Ok(bytes)) => bytes,
            Some(Err(errno)) if ended.raised.is_none() => {
                return Ok(self.transfer.failed(errno));
            }
            _ => Vec::new(),
        };
        if let Some(error) = ended.raised {
            self.transfer.done += bytes.len(); // to be put back
            return Err(error);
        }
        let request = self.transfer.request;
        let (copied, _) = request.with_writable(self.transfer.done, |room| {
            let count = bytes.len().min(room.len());
            room[..count].copy_from_slice(&bytes[..count]);
            Ok(count)
        })?;
        Ok(self.transfer.moved(copied.unwrap_or(0), wanted, room))
    }
}
