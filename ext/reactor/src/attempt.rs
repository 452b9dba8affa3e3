//! One non-blocking attempt at a transfer, whatever kind of descriptor it is: never a readiness question first where
//! the kernel offers a call that cannot block, never a change of the O_NONBLOCK flag others may share.

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::RawFd,
};

use reactor::Interest;
use rustix::{
    fs::{FileType, OFlags},
    io::Errno,
    net::{RecvFlags, SendFlags, SocketType},
};

use crate::raw;

/// Without waiting, and without SIGPIPE. Apple has no flag for the latter; Ruby's own handler of it does nothing.
#[cfg(not(target_vendor = "apple"))]
const QUIETLY: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
#[cfg(target_vendor = "apple")]
const QUIETLY: SendFlags = SendFlags::DONTWAIT;

/// How to read from and write to a descriptor without blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// recv(2), send(2) with MSG_DONTWAIT; a short count means drained.
    StreamSocket,
    /// The same; a short count means nothing.
    OtherSocket,
    /// Pipe or FIFO: a short count means drained. preadv2(2) with RWF_NOWAIT (Linux 6.4), O_NONBLOCK otherwise.
    Pipe,
    /// read(2), write(2): what never blocks, a memory device (null, zero, full, random) or a file that lives in memory.
    Direct,
    /// Terminals and other devices: without O_NONBLOCK it asks poll(2) first.
    Cautious,
    /// Regular files, directories, block devices: may take long, never "would block". See `files`.
    File,
}

impl Kind {
    pub fn of(descriptor: RawFd) -> Self {
        let fd = raw::borrow(descriptor);
        match rustix::net::sockopt::socket_type(fd) {
            Ok(SocketType::STREAM) => return Kind::StreamSocket,
            Ok(_) => return Kind::OtherSocket,
            Err(_) => {}
        }
        let Ok(stat) = rustix::fs::fstat(fd) else {
            return Kind::Cautious;
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => Kind::Pipe,
            FileType::RegularFile if nowait::in_memory(fd) => Kind::Direct,
            FileType::RegularFile | FileType::Directory | FileType::BlockDevice => Kind::File,
            // Major 1 holds the memory devices: null, zero, full, random, urandom.
            FileType::CharacterDevice if rustix::fs::major(stat.st_rdev) == 1 => Kind::Direct,
            _ => Kind::Cautious,
        }
    }

    pub fn from_bits(bits: u64) -> Self {
        match bits & 7 {
            0 => Kind::StreamSocket,
            1 => Kind::OtherSocket,
            2 => Kind::Pipe,
            3 => Kind::Direct,
            4 => Kind::Cautious,
            _ => Kind::File,
        }
    }

    pub fn bits(self) -> u64 {
        self as u64
    }

    /// Whether a short count tells that the kernel has no more.
    pub fn short_means_drained(self) -> bool {
        matches!(self, Kind::StreamSocket | Kind::Pipe)
    }
}

/// About 40 us of copying.
pub const SLICE: usize = 256 << 10;

/// Outside of a scheduler's reach: read(2) as it is, with the GVL released where it may block.
pub fn plain_read(bytes: &mut [u8], descriptor: RawFd, from: Option<u64>) -> Result<usize, Errno> {
    raw::blocking_call(|| read_file(Kind::Direct, descriptor, bytes, from))
        .unwrap_or(Err(Errno::INTR))
}

/// write(2), likewise.
pub fn plain_write(bytes: &[u8], descriptor: RawFd, from: Option<u64>) -> Result<usize, Errno> {
    raw::blocking_call(|| write_file(Kind::Direct, descriptor, bytes, from))
        .unwrap_or(Err(Errno::INTR))
}

/// Reads what is there: bytes, 0 at the end, EAGAIN if it would block.
pub fn read(kind: Kind, descriptor: RawFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    let fd = raw::borrow(descriptor);
    match kind {
        Kind::StreamSocket | Kind::OtherSocket => {
            rustix::net::recv(fd, bytes, RecvFlags::DONTWAIT).map(|(_, count)| count)
        }
        Kind::Pipe => match nowait::read(fd, &mut [IoSliceMut::new(bytes)]) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                if !flagged(descriptor) {
                    ready(descriptor, Interest::READABLE)?;
                }
                rustix::io::read(fd, bytes)
            }
            answer => answer,
        },
        Kind::Cautious => {
            if !flagged(descriptor) {
                ready(descriptor, Interest::READABLE)?;
            }
            rustix::io::read(fd, bytes)
        }
        Kind::Direct | Kind::File => rustix::io::read(fd, bytes),
    }
}

/// Writes what fits: bytes, EAGAIN if nothing does.
pub fn write(kind: Kind, descriptor: RawFd, bytes: &[u8]) -> Result<usize, Errno> {
    let fd = raw::borrow(descriptor);
    match kind {
        Kind::StreamSocket | Kind::OtherSocket => rustix::net::send(fd, bytes, QUIETLY),
        Kind::Pipe => match nowait::write(fd, &[IoSlice::new(bytes)]) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                if flagged(descriptor) {
                    return rustix::io::write(fd, bytes);
                }
                ready(descriptor, Interest::WRITABLE)?;
                rustix::io::write(fd, portion(bytes))
            }
            answer => answer,
        },
        Kind::Cautious => {
            if flagged(descriptor) {
                return rustix::io::write(fd, bytes);
            }
            if let Some(own) = nowait::terminal(fd) {
                return rustix::io::write(own, bytes);
            }
            ready(descriptor, Interest::WRITABLE)?;
            rustix::io::write(fd, mouthful(bytes))
        }
        Kind::Direct | Kind::File => rustix::io::write(fd, bytes),
    }
}

/// A device that polls as writable is taken to accept this much without blocking; the master of a pseudo-terminal does.
fn mouthful(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(32)]
}

/// A pipe that polls as writable takes this much without blocking: PIPE_BUF, see pipe(7).
fn portion(bytes: &[u8]) -> &[u8] {
    const PIPE_BUF: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };
    &bytes[..bytes.len().min(PIPE_BUF)]
}

fn flagged(descriptor: RawFd) -> bool {
    rustix::fs::fcntl_getfl(raw::borrow(descriptor))
        .is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

fn ready(descriptor: RawFd, interest: Interest) -> Result<(), Errno> {
    match reactor::poll_now(descriptor, interest) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(Errno::AGAIN),
        Err(error) => Err(error
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}

/// Reads from a regular file, at its own offset or at a given one: EAGAIN for what is not in the page cache. From what is
/// no regular file, as read(2) and pread(2).
pub fn read_file(
    kind: Kind,
    descriptor: RawFd,
    bytes: &mut [u8],
    from: Option<u64>,
) -> Result<usize, Errno> {
    let fd = raw::borrow(descriptor);
    match (kind, from) {
        (Kind::File, Some(from)) => nowait::read_at(fd, &mut [IoSliceMut::new(bytes)], from),
        (Kind::File, None) => nowait::read(fd, &mut [IoSliceMut::new(bytes)]),
        (_, Some(from)) => rustix::io::pread(fd, bytes, from),
        (_, None) => rustix::io::read(fd, bytes),
    }
}

/// Writes to a regular file likewise: EAGAIN if that might take long.
pub fn write_file(
    kind: Kind,
    descriptor: RawFd,
    bytes: &[u8],
    from: Option<u64>,
) -> Result<usize, Errno> {
    let fd = raw::borrow(descriptor);
    match (kind, from) {
        (Kind::File, Some(from)) => nowait::write_at(fd, &[IoSlice::new(bytes)], from),
        (Kind::File, None) => nowait::write(fd, &[IoSlice::new(bytes)]),
        (_, Some(from)) => rustix::io::pwrite(fd, bytes, from),
        (_, None) => rustix::io::write(fd, bytes),
    }
}

/// Whether opening it waits for somebody who opens its other end.
pub fn is_fifo(path: Vec<u8>) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// Closes a socket or a pipe; false for what may have to wait: files whose data must be written, and sockets that linger
/// (SO_LINGER in socket(7)). As Ruby itself does it: no error is told, and the descriptor is gone either way.
pub fn close(descriptor: RawFd) -> bool {
    let at_once = match Kind::of(descriptor) {
        Kind::StreamSocket | Kind::OtherSocket => {
            let linger = rustix::net::sockopt::socket_linger(raw::borrow(descriptor));
            matches!(linger, Ok(None))
        }
        Kind::Pipe => true,
        _ => false,
    };
    if at_once {
        raw::close(descriptor);
    }
    at_once
}

/// Tells the kernel that a stretch of a file will be read; it begins to, as far as it likes.
pub fn will_need(descriptor: RawFd, from: u64, length: u64) {
    nowait::will_need(raw::borrow(descriptor), from, length);
}

#[cfg(target_os = "linux")]
mod nowait {
    use super::{Errno, IoSlice, IoSliceMut, OFlags};
    use rustix::{fs::Mode, io::ReadWriteFlags};
    use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

    /// Offset -1: the current position, as read(2). See preadv2(2).
    const HERE: u64 = u64::MAX;

    pub fn read(fd: BorrowedFd<'_>, bytes: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        read_at(fd, bytes, HERE)
    }

    pub fn write(fd: BorrowedFd<'_>, bytes: &[IoSlice<'_>]) -> Result<usize, Errno> {
        write_at(fd, bytes, HERE)
    }

    pub fn read_at(
        fd: BorrowedFd<'_>,
        bytes: &mut [IoSliceMut<'_>],
        from: u64,
    ) -> Result<usize, Errno> {
        rustix::io::preadv2(fd, bytes, from, ReadWriteFlags::NOWAIT)
    }

    pub fn write_at(fd: BorrowedFd<'_>, bytes: &[IoSlice<'_>], from: u64) -> Result<usize, Errno> {
        rustix::io::pwritev2(fd, bytes, from, ReadWriteFlags::NOWAIT)
    }

    /// A terminal (the slave of a pseudo-terminal) that polls as writable may still block: each line feed becomes two bytes
    /// on the way. So it is opened once more, without blocking, which leaves the description that others share as it is.
    pub fn terminal(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
        let stat = rustix::fs::fstat(fd).ok()?;
        // See the kernel's Documentation/admin-guide/devices.txt.
        if !(136..=143).contains(&rustix::fs::major(stat.st_rdev)) {
            return None;
        }
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).ok()
    }

    /// posix_fadvise(2): nothing depends on it.
    pub fn will_need(fd: BorrowedFd<'_>, from: u64, length: u64) {
        let length = std::num::NonZeroU64::new(length);
        _ = rustix::fs::fadvise(fd, from, length, rustix::fs::Advice::WillNeed);
    }

    /// Does the file live in memory, on tmpfs, ramfs or hugetlbfs? See statfs(2).
    pub fn in_memory(fd: BorrowedFd<'_>) -> bool {
        const MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
        rustix::fs::fstatfs(fd).is_ok_and(|system| MEMORY.contains(&(system.f_type as u32)))
    }
}

#[cfg(not(target_os = "linux"))]
mod nowait {
    use super::{Errno, IoSlice, IoSliceMut};
    use std::os::fd::{BorrowedFd, OwnedFd};

    pub fn read(_: BorrowedFd<'_>, _: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    pub fn write(_: BorrowedFd<'_>, _: &[IoSlice<'_>]) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    pub fn read_at(_: BorrowedFd<'_>, _: &mut [IoSliceMut<'_>], _: u64) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    pub fn write_at(_: BorrowedFd<'_>, _: &[IoSlice<'_>], _: u64) -> Result<usize, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    pub fn terminal(_: BorrowedFd<'_>) -> Option<OwnedFd> {
        None
    }

    pub fn will_need(_: BorrowedFd<'_>, _: u64, _: u64) {}

    pub fn in_memory(_: BorrowedFd<'_>) -> bool {
        false
    }
}
