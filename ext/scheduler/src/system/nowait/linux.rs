use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    io::{Errno, ReadWriteFlags},
};

/// Offset -1 means the current position, as in read(2). See preadv2(2).
const CURRENT_POSITION: u64 = u64::MAX;

pub fn read(fd: BorrowedFd<'_>, bytes: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
    read_at(fd, bytes, CURRENT_POSITION)
}

pub fn write(fd: BorrowedFd<'_>, bytes: &[IoSlice<'_>]) -> Result<usize, Errno> {
    write_at(fd, bytes, CURRENT_POSITION)
}

pub fn read_at(
    fd: BorrowedFd<'_>,
    bytes: &mut [IoSliceMut<'_>],
    offset: u64,
) -> Result<usize, Errno> {
    rustix::io::preadv2(fd, bytes, offset, ReadWriteFlags::NOWAIT)
}

pub fn write_at(fd: BorrowedFd<'_>, bytes: &[IoSlice<'_>], offset: u64) -> Result<usize, Errno> {
    rustix::io::pwritev2(fd, bytes, offset, ReadWriteFlags::NOWAIT)
}

/// The terminal behind `fd`, opened once more without blocking. `None` if `fd` is no terminal.
///
/// A terminal (the slave of a pseudo-terminal) that polls as writable may still block, because each line feed becomes two
/// bytes on the way. Setting O_NONBLOCK on `fd` itself would change it for every process that shares the description.
pub fn reopened_terminal(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    let stat = rustix::fs::fstat(fd).ok()?;
    // See the kernel's Documentation/admin-guide/devices.txt.
    if !(136..=143).contains(&rustix::fs::major(stat.st_rdev)) {
        return None;
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

/// posix_fadvise(2) with POSIX_FADV_WILLNEED. Errors are ignored, because nothing depends on it.
pub fn advise_will_need(fd: BorrowedFd<'_>, offset: u64, length: u64) {
    let length = std::num::NonZeroU64::new(length);
    _ = rustix::fs::fadvise(fd, offset, length, rustix::fs::Advice::WillNeed);
}

/// Whether the file lives in memory: on tmpfs, ramfs or hugetlbfs. See statfs(2).
pub fn lives_in_memory(fd: BorrowedFd<'_>) -> bool {
    const MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
    rustix::fs::fstatfs(fd).is_ok_and(|system| MEMORY.contains(&(system.f_type as u32)))
}
