//! Calls that promise not to block: preadv2(2) and pwritev2(2) with RWF_NOWAIT, and more that only Linux has. Elsewhere reads
//! and writes answer EOPNOTSUPP, and the caller polls first.
#![cfg_attr(not(target_os = "linux"), allow(unused_variables))]

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
#[cfg(target_os = "linux")]
use {
    rustix::{
        fs::{Advice, Mode, OFlags, fadvise, fstat, fstatfs, major, open},
        io::{ReadWriteFlags, preadv2, pwritev2},
    },
    std::{
        io::{IoSlice, IoSliceMut},
        num::NonZeroU64,
        os::fd::AsRawFd,
    },
};

/// Of preadv2(2).
#[cfg(target_os = "linux")]
const CURRENT_POSITION: u64 = u64::MAX;

/// `None`: from the current position.
pub fn read(fd: BorrowedFd<'_>, bytes: &mut [u8], offset: Option<u64>) -> Result<usize, Errno> {
    #[cfg(target_os = "linux")]
    {
        let (offset, nowait) = (offset.unwrap_or(CURRENT_POSITION), ReadWriteFlags::NOWAIT);
        preadv2(fd, &mut [IoSliceMut::new(bytes)], offset, nowait)
    }
    #[cfg(not(target_os = "linux"))]
    Err(Errno::OPNOTSUPP)
}

/// `None`: to the current position.
pub fn write(fd: BorrowedFd<'_>, bytes: &[u8], offset: Option<u64>) -> Result<usize, Errno> {
    #[cfg(target_os = "linux")]
    {
        let (offset, nowait) = (offset.unwrap_or(CURRENT_POSITION), ReadWriteFlags::NOWAIT);
        pwritev2(fd, &[IoSlice::new(bytes)], offset, nowait)
    }
    #[cfg(not(target_os = "linux"))]
    Err(Errno::OPNOTSUPP)
}

/// The terminal behind `fd`, opened once more without blocking. `None` if `fd` is no terminal.
///
/// A terminal (the slave of a pseudo-terminal) that polls as writable may still block, because each line feed becomes two
/// bytes on the way. Setting O_NONBLOCK on `fd` itself would change it for every process that shares the description.
pub fn reopened_terminal(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    #[cfg(target_os = "linux")]
    {
        // See the kernel's Documentation/admin-guide/devices.txt.
        if !(136..=143).contains(&major(fstat(fd).ok()?.st_rdev)) {
            return None;
        }
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        open(path, flags, Mode::empty()).ok()
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// posix_fadvise(2) with POSIX_FADV_WILLNEED. Errors are ignored, because nothing depends on it.
pub fn advise_will_need(fd: BorrowedFd<'_>, offset: u64, length: u64) {
    #[cfg(target_os = "linux")]
    let _ = fadvise(fd, offset, NonZeroU64::new(length), Advice::WillNeed);
}

/// Whether the file lives in memory: on tmpfs, ramfs or hugetlbfs. See statfs(2).
pub fn lives_in_memory(fd: BorrowedFd<'_>) -> bool {
    #[cfg(target_os = "linux")]
    {
        const MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
        fstatfs(fd).is_ok_and(|system| MEMORY.contains(&(system.f_type as u32)))
    }
    #[cfg(not(target_os = "linux"))]
    false
}
