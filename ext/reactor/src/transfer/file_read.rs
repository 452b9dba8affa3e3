//! Transfers to and from regular files: out of the page cache under the GVL, in slices; by the pool what is not there.
//!
//! Reading little, a worker only brings the bytes into the page cache: then the fiber reads them from there, at the file's
//! own offset and into its own buffer. So the worker's reading moves no offset and touches no memory of Ruby's, and a fiber
//! that is interrupted meanwhile has read nothing. Reading much, wherever it is, a worker copies it straight into the
//! buffer, which the fiber keeps for it until it is done ([`loans`]): so copying takes none of the loop's time, and all
//! the cores there are. Where the kernel cannot promise not to block (RWF_NOWAIT: not on every file system) a worker reads
//! into memory of its own. Whatever an interrupted fiber did not take is put back by moving the offset.
//!
//! A driver that carries out operations by itself (io_uring) does the first of these instead of a worker, into memory of
//! its own; and fsync(2). It takes less CPU, at the same rate: 400 cold files of 32 KiB 60 ms, 78 ms by workers; 200 writes
//! of 4 KiB with an fsync each 33 ms, 40 ms by workers. The rest stays with the workers: they copy on other cores, a ring on
//! ours (cold reads of 1 MiB: 327 MiB/s by the ring, 556 by workers; copy_stream of 128 MiB: CPU 429 ms, 300 by workers),
//! and it writes on threads of the kernel's, too (400 writes of 512 KiB: 525 MiB/s, 733 by workers), at the file's own
//! offset without the lock that keeps the writes of one open file apart (f_pos_lock). (Rows files-cold, sync, cold,
//! copy-cold and pwrite of `MODES="epoll uring" bin/bench stalls`, in part with smaller sizes; medians of 7, 7, 5, 7 and 4
//! interleaved rounds on two cores with other load; Linux 6.18, ext4, Ruby 3.4, for pwrite 4.0.)
//!
//! Writing, a worker writes a copy. A fiber that is interrupted waits until the write that has begun is over, as it would
//! in write(2) itself: no worker ever writes late.

use std::{
    os::fd::RawFd,
    time::{Duration, Instant},
};

use magnus::{Error, RString, Value};
use reactor::{Operation, OperationId, WorkClass};
use rustix::{
    fs::{FileType, SeekFrom},
    io::Errno,
};

use crate::{
    attempt::{self, Kind, SLICE},
    blocking::{Interrupted, on_pool},
    hooks,
    io::{Request, Watched},
    loans, raw, ring,
    selector::Visit,
};

/// The most a worker brings into the page cache at once.
const STRETCH: usize = 1 << 20;

/// The most a worker reads or writes for good at once: so much is copied under the GVL.
const COPY: usize = 512 << 10;

/// So much is read by a worker, straight into the buffer, even if it is in the page cache, when others are ready to go on
/// meanwhile: several copy at once. What comes when all workers for copying ([`Limits::copy`](reactor::Limits)) are busy
/// is copied here, in slices, and so is what a fiber reads that is alone.
///
/// Handing over costs some 10 us of CPU. 1, 2, 4 and 8 fibers, two processors, 1 MiB each time, in MiB/s: 6,200, 9,300, 15,500
/// and 14,600; plain threads 6,200, 9,400, 16,800 and 8,100. A sleep of 1 ms beside four of them was late by 1.2 ms (p99) when
/// as many read aside as there are processors, which leaves none to the loop, and by 0.5 ms since.
const LARGE: usize = 256 << 10;

/// So much is, if it is not in the page cache. What is smaller is only brought there, and no bytes but its own have to be
/// taken back from a fiber that is interrupted.
const MIDDLING: usize = 64 << 10;

/// One byte in so many is read: pages come from the disk in larger pieces.
const STEP: u64 = 32 << 10;

/// A write of at most so many bytes, which the kernel cannot promise to do at once, is done at once all the same, as long
/// as such writes do not take long; see [`Trust`].
const SMALL: usize = 16 << 10;

/// What a transfer has come to.
pub enum Made {
    /// The hook's answer: bytes, or an error.
    Answer(Result<usize, Errno>),
    /// No regular file is behind the descriptor any more: to be done again, by what is.
    OtherKind,
}

/// Reads up to the end of the buffer, of what was requested or of the file; from the file's own offset, or a given one.
#[inline(never)]
pub fn read(
    visit: &Visit,
    watched: &Watched,
    request: &Request,
    from: Option<u64>,
) -> Result<Made, Error> {
    let mut transfer = Transfer::new(visit, watched, request, from);
    loop {
        match transfer.read() {
            Ok(Step::More) => {}
            Ok(Step::Over(made)) => {
                transfer.give_back(transfer.done);
                return Ok(made);
            }
            Err(error) => {
                transfer.give_back(0);
                return Err(error);
            }
        }
    }
}

/// Writes all that was requested; at the file's own offset (or its end: O_APPEND), or at a given one.
#[inline(never)]
pub fn write(
    visit: &Visit,
    watched: &Watched,
    request: &Request,
    from: Option<u64>,
) -> Result<Made, Error> {
    let mut transfer = Transfer::new(visit, watched, request, from);
    loop {
        if let Step::Over(made) = transfer.write()? {
            return Ok(made);
        }
    }
}

/// Brings a stretch of a file into the page cache, by the pool if it is not there. False if it is no regular file.
///
/// `ahead`: what will be wanted after it is asked for as well, so that the disk works meanwhile.
pub fn fetch(
    visit: &Visit,
    watched: &Watched,
    from: u64,
    length: usize,
    ahead: u64,
) -> Result<bool, Error> {
    let descriptor = watched.descriptor;
    if watched.kind == Kind::Direct {
        return Ok(true);
    }
    if Kind::of(descriptor) != Kind::File {
        return Ok(false);
    }
    if !is_there(descriptor, from, length) {
        let lease = Interrupted::Waits(watched.identity.0);
        let settled = on_pool(visit, WorkClass::Disk, lease, move || {
            bring_in(descriptor, from, length, ahead)
        })?;
        // An error will be met again by whoever reads.
        settled.raised.map_or(Ok(()), Err)?;
    }
    Ok(true)
}

/// fsync(2) or fdatasync(2), by the driver: 0 or the error's number; None if the driver does not do that.
pub fn sync(visit: &Visit, watched: &Watched, data_only: bool) -> Result<Option<i32>, Error> {
    let operation = match data_only {
        true => Operation::SyncData,
        false => Operation::Sync,
    };
    let Some(id) = ring::begin(visit, watched, operation) else {
        return Ok(None);
    };
    let settled = ring::settle(visit, watched, id, Interrupted::Waits(watched.identity.0))?;
    Ok(Some(match settled.take(visit, &mut [])? {
        Ok(_) => 0,
        Err(errno) => errno.raw_os_error(),
    }))
}

/// Looks at one byte in each 64 KiB: the kernel reads ahead in larger pieces.
fn is_there(descriptor: RawFd, from: u64, length: usize) -> bool {
    let last = std::iter::once(length.saturating_sub(1));
    let mut places = (0..length).step_by(64 << 10).chain(last);
    places.all(|place| {
        let mut byte = [0];
        attempt::read_file(Kind::File, descriptor, &mut byte, Some(from + place as u64)).is_ok()
    })
}

/// `Reactor.fifo?(path)`: whether that String is the path of one.
pub fn is_fifo(path: Value) -> bool {
    RString::from_value(path).is_some_and(|path| attempt::is_fifo(raw::bytes(path)))
}

struct Transfer<'a> {
    visit: &'a Visit<'a>,
    watched: &'a Watched,
    request: &'a Request,
    from: Option<u64>,
    /// What was taken of the file at its own offset, which is beyond it now: from where on, and how much.
    taken: Option<(u64, usize)>,
    done: usize,
    /// How often the pool has brought something in without success.
    fetched: u32,
    /// Too little is left to be handed over.
    here: bool,
}

enum Step {
    More,
    Over(Made),
}

impl<'a> Transfer<'a> {
    fn new(
        visit: &'a Visit,
        watched: &'a Watched,
        request: &'a Request,
        from: Option<u64>,
    ) -> Self {
        Self {
            visit,
            watched,
            request,
            from,
            taken: None,
            done: 0,
            fetched: 0,
            here: false,
        }
    }

    fn read(&mut self) -> Result<Step, Error> {
        self.give_way()?;
        let (kind, descriptor, request) = (self.watched.kind, self.descriptor(), self.request);
        let (answer, room) = request.fill(self.done, |bytes| {
            let large = kind == Kind::File && bytes.len() >= LARGE;
            if large && !self.here && self.is_better_aside() {
                return Err(Errno::INPROGRESS);
            }
            if kind == Kind::File && bytes.len() > SLICE {
                self.take(bytes.len());
            }
            let slice = bytes.len().min(SLICE);
            attempt::read_file(kind, descriptor, &mut bytes[..slice], self.position())
        })?;
        match answer {
            Err(Errno::INPROGRESS) => {
                let step = self.read_aside(room, LARGE, WorkClass::Cpu)?;
                self.here = step.is_none();
                Ok(step.unwrap_or(Step::More))
            }
            Ok(count) => {
                self.fetched = 0;
                Ok(self.moved(count, room.min(SLICE), room))
            }
            Err(errno) if !self.is_for_the_pool(errno) => Ok(self.failed(errno)),
            Err(_) if Kind::of(descriptor) != Kind::File => Ok(self.other_kind()),
            // What was fetched may be gone again, or never count (O_DIRECT): twice without success is enough.
            Err(Errno::AGAIN) if self.fetched < 2 => {
                match self.read_aside(room, MIDDLING, WorkClass::Disk)? {
                    Some(step) => Ok(step),
                    None => self.fetch(room),
                }
            }
            Err(_) => self.read_for_good(room),
        }
    }

    /// Lets others run, one of whom may close the file.
    fn give_way(&self) -> Result<(), Error> {
        if self.visit.give_way_when_due()? && self.watched.io.is_closed() {
            return Err(hooks::closed_elsewhere());
        }
        Ok(())
    }

    /// A worker brings what comes next into the page cache.
    fn fetch(&mut self, room: usize) -> Result<Step, Error> {
        self.fetched += 1;
        let descriptor = self.descriptor();
        let position = match self.position() {
            Some(position) => Ok(position),
            None => rustix::fs::seek(raw::borrow(descriptor), SeekFrom::Current(0)),
        };
        let position = match position {
            Ok(position) => position,
            Err(errno) => return Ok(self.failed(errno)),
        };
        if room < LARGE {
            let operation = Operation::Read(Some(position), room);
            if let Some(id) = ring::begin(self.visit, self.watched, operation) {
                return self.receive(id, room);
            }
        }
        let settled = on_pool(self.visit, WorkClass::Disk, self.lease(), move || {
            bring_in(descriptor, position, room.min(STRETCH), 0)
        })?;
        settled.raised.map_or(Ok(()), Err)?;
        match settled.result {
            Some(Err(errno)) => Ok(self.failed(errno)),
            _ => Ok(Step::More),
        }
    }

    /// The driver reads, into memory of its own: where the position is known, that is all; else the fiber reads
    /// once more, from the page cache and at the file's own offset, which the ring does not guard against other readers.
    fn receive(&mut self, id: OperationId, room: usize) -> Result<Step, Error> {
        let settled = ring::settle(self.visit, self.watched, id, Interrupted::Leaves)?;
        let placed = self.position().is_some();
        let outcome = match placed {
            true => settled.fill(self.visit, self.request, self.done)?,
            false => settled.take(self.visit, &mut [])?,
        };
        Ok(match outcome {
            Ok(count) if placed => self.moved(count, room, room),
            Ok(_) => Step::More,
            Err(_) => {
                self.fetched = u32::MAX; // a worker reads for good, and meets the error again
                Step::More
            }
        })
    }

    /// A worker reads into the buffer itself, on another core. None if it cannot be lent, or too little is left in it or in
    /// the file.
    fn read_aside(
        &mut self,
        room: usize,
        least: usize,
        pace: WorkClass,
    ) -> Result<Option<Step>, Error> {
        if room < least {
            return Ok(None);
        }
        self.take(room);
        let Some(place) = self.position() else {
            return Ok(None);
        };
        if self.size().saturating_sub(place) < least as u64 {
            return Ok(None);
        }
        let wanted = room.min(STRETCH);
        let Some(mut lent) = self.request.lend(self.done, wanted)? else {
            return Ok(None);
        };
        let loan = self.visit.selector.inner.borrow().loans.lend();
        let descriptor = self.descriptor();
        let settled = on_pool(self.visit, pace, self.lease(), move || {
            let _loan = loan;
            loans::read(descriptor, &mut lent, place)
        })?;
        settled.raised.map_or(Ok(()), Err)?;
        Ok(Some(match settled.result {
            Some(Ok(count)) => self.moved(count, wanted, room),
            Some(Err(errno)) => self.failed(errno),
            None => Step::More,
        }))
    }

    /// Whether somebody else has a use for the loop while a worker reads, and a worker would not have to wait long: as many as
    /// are at it, and one more that is next, so that none of them waits for the loop either.
    fn is_better_aside(&self) -> bool {
        let mut inner = self.visit.selector.inner.borrow_mut();
        let Some(reactor) = &inner.reactor else {
            return false;
        };
        let room = inner.loans.count() <= reactor.pool().limits().cpu;
        room && (reactor.has_notifications() || inner.somebody_is_ready())
    }

    /// The size of a regular file; others have none.
    fn size(&self) -> u64 {
        match rustix::fs::fstat(raw::borrow(self.descriptor())) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                stat.st_size as u64
            }
            _ => 0,
        }
    }

    /// What is to be read at the file's own offset, in more than one piece, is taken from there first: others who read
    /// meanwhile get what comes after it, as with read(2). (Not from what seems to be small, as all in proc(5) does: there
    /// are files whose offset cannot be moved without a trace.)
    fn take(&mut self, count: usize) {
        if self.from.is_none() && self.taken.is_none() && self.size() >= LARGE as u64 {
            let forward = SeekFrom::Current(count as i64);
            let whole = self.done + count;
            let beyond = rustix::fs::seek(raw::borrow(self.descriptor()), forward);
            self.taken = beyond.ok().map(|beyond| (beyond - whole as u64, whole));
        }
    }

    /// Puts back what was taken, or read, beyond so many bytes, which somebody got: it is read again by whoever reads next.
    ///
    /// (Somebody else who has read from the same open file since then gets some of them twice: there is no telling them
    /// apart. In read(2) they would have been lost.)
    fn give_back(&self, used: usize) {
        let taken = self.taken.map_or(self.done, |(_, count)| count);
        if self.from.is_none() && taken > used {
            let back = SeekFrom::Current(-((taken - used) as i64));
            _ = rustix::fs::seek(raw::borrow(self.descriptor()), back);
        }
    }

    /// A worker reads, into memory of its own.
    fn read_for_good(&mut self, room: usize) -> Result<Step, Error> {
        let (descriptor, position, wanted) = (self.descriptor(), self.position(), room.min(COPY));
        let settled = on_pool(self.visit, WorkClass::Disk, self.lease(), move || {
            let mut bytes = vec![0; wanted];
            let count = attempt::read_file(Kind::Direct, descriptor, &mut bytes, position)?;
            bytes.truncate(count);
            Ok::<_, Errno>(bytes)
        })?;
        let bytes = match settled.result {
            Some(Ok(bytes)) => bytes,
            Some(Err(errno)) if settled.raised.is_none() => return Ok(self.failed(errno)),
            _ => Vec::new(),
        };
        if let Some(error) = settled.raised {
            self.done += bytes.len(); // to be put back
            return Err(error);
        }
        let (copied, _) = self.request.fill(self.done, |room| {
            let count = bytes.len().min(room.len());
            room[..count].copy_from_slice(&bytes[..count]);
            Ok(count)
        })?;
        Ok(self.moved(copied.unwrap_or(0), wanted, room))
    }

    fn write(&mut self) -> Result<Step, Error> {
        self.give_way()?;
        let (kind, descriptor, position) = (self.watched.kind, self.descriptor(), self.position());
        let (answer, room) = self.request.drain(self.done, |bytes| {
            let slice = &bytes[..bytes.len().min(SLICE)];
            attempt::write_file(kind, descriptor, slice, position)
        })?;
        match answer {
            Ok(count) => Ok(self.moved(count, room.min(SLICE), room)),
            Err(errno) if !self.is_for_the_pool(errno) => Ok(self.failed(errno)),
            Err(_) if Kind::of(descriptor) != Kind::File => Ok(self.other_kind()),
            Err(errno) if errno != Errno::AGAIN && room <= SMALL && self.is_trusted() => {
                self.write_at_once()
            }
            Err(_) => self.write_for_good(room),
        }
    }

    fn write_at_once(&mut self) -> Result<Step, Error> {
        let (descriptor, position, start) = (self.descriptor(), self.position(), Instant::now());
        let (answer, room) = self.request.drain(self.done, |bytes| {
            attempt::write_file(Kind::Direct, descriptor, bytes, position)
        })?;
        let took = start.elapsed();
        let mut inner = self.visit.selector.inner.borrow_mut();
        inner.trust.took(took, start);
        drop(inner);
        Ok(match answer {
            Ok(count) => self.moved(count, room, room),
            Err(errno) => self.failed(errno),
        })
    }

    fn is_trusted(&self) -> bool {
        let inner = self.visit.selector.inner.borrow();
        inner.trust.holds(Instant::now())
    }

    /// A worker writes a copy.
    fn write_for_good(&mut self, room: usize) -> Result<Step, Error> {
        let (descriptor, position, wanted) = (self.descriptor(), self.position(), room.min(COPY));
        let mut copy = Vec::new();
        _ = self.request.drain(self.done, |bytes| {
            copy.extend_from_slice(&bytes[..bytes.len().min(wanted)]);
            Ok(0)
        })?;
        let settled = on_pool(self.visit, WorkClass::Disk, self.lease(), move || {
            attempt::write_file(Kind::Direct, descriptor, &copy, position)
        })?;
        settled.raised.map_or(Ok(()), Err)?;
        Ok(match settled.result {
            Some(Ok(count)) => self.moved(count, wanted, room),
            Some(Err(errno)) => self.failed(errno),
            None => Step::More,
        })
    }

    /// So many bytes of those asked for have been transferred, and there was room for more.
    fn moved(&mut self, count: usize, asked: usize, room: usize) -> Step {
        self.done += count;
        self.visit.selector.spent(count);
        // A short count of the page cache's only means that the next page is not there.
        let short = count < asked && self.watched.kind != Kind::File;
        if count == 0 || count == room || short {
            Step::Over(Made::Answer(Ok(self.done)))
        } else {
            Step::More
        }
    }

    /// What has been transferred is the answer; the error will come again.
    fn failed(&self, errno: Errno) -> Step {
        Step::Over(Made::Answer(match self.done {
            0 => Err(errno),
            done => Ok(done),
        }))
    }

    fn other_kind(&self) -> Step {
        Step::Over(match self.done {
            0 => Made::OtherKind,
            done => Made::Answer(Ok(done)),
        })
    }

    /// The page cache cannot serve it, or the kernel cannot promise that it would not block.
    fn is_for_the_pool(&self, errno: Errno) -> bool {
        const NO_PROMISE: [Errno; 4] = [Errno::AGAIN, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL];
        self.watched.kind == Kind::File && NO_PROMISE.contains(&errno)
    }

    fn descriptor(&self) -> RawFd {
        self.watched.descriptor
    }

    fn position(&self) -> Option<u64> {
        let from = self.from.or(self.taken.map(|(from, _)| from));
        from.map(|from| from + self.done as u64)
    }

    fn lease(&self) -> Interrupted {
        Interrupted::Waits(self.watched.identity.0)
    }
}

/// Asks for a stretch of a file, and for as much again after it or for all that will be wanted, and waits until the stretch
/// is there: by reading a byte here and there, which copies next to nothing.
fn bring_in(descriptor: RawFd, from: u64, length: usize, ahead: u64) -> Result<(), Errno> {
    attempt::will_need(descriptor, from, ahead.max(2 * length as u64));
    let end = from + length as u64;
    let mut place = from;
    while place < end {
        match attempt::read_file(Kind::Direct, descriptor, &mut [0], Some(place)) {
            Ok(0) => break,
            Ok(_) => place += STEP,
            Err(Errno::INTR) => {}
            Err(_) if place > from => break, // who reads so far meets it again
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Whether small writes are likely to be done at once.
///
/// Most of them only copy into the page cache; but now and then the kernel makes a writer wait for the disk. One that took
/// longer than a millisecond sends those that follow to the pool, for a hundred times as long as it took: so at most a
/// hundredth of the time can be lost to them.
#[derive(Debug, Default)]
pub struct Trust {
    lost_until: Option<Instant>,
}

impl Trust {
    fn took(&mut self, duration: Duration, now: Instant) {
        self.lost_until = if duration > Duration::from_millis(1) {
            now.checked_add(duration * 100)
        } else {
            None
        };
    }

    fn holds(&self, now: Instant) -> bool {
        self.lost_until.is_none_or(|until| now >= until)
    }
}
