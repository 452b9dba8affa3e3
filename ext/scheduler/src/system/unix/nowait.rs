//! Calls guaranteed not to block: preadv2(2) and pwritev2(2) with RWF_NOWAIT, and others that only Linux has. Elsewhere
//! reads and writes return EOPNOTSUPP, and the caller polls first.
#![cfg_attr(not(target_os = "linux"), allow(unused_variables))]

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::LazyLock,
};

#[cfg(target_os = "linux")]
use {
    rustix::{
        fs::{Advice, Mode, OFlags, fadvise, fstatfs, open},
        io::{ReadWriteFlags, preadv2, pwritev2},
    },
    std::{
        io::{IoSlice, IoSliceMut},
        num::NonZeroU64,
    },
};

use crate::system::{descriptor::Descriptor, errno::Errno};

/// The flag for preadv2(2) and pwritev2(2).
#[cfg(target_os = "linux")]
const CURRENT_POSITION: u64 = u64::MAX;

/// `None`: from the current position.
pub fn read(descriptor: impl AsFd, bytes: &mut [u8], offset: Option<u64>) -> Result<usize, Errno> {
    #[cfg(target_os = "linux")]
    {
        let (offset, nowait) = (offset.unwrap_or(CURRENT_POSITION), ReadWriteFlags::NOWAIT);
        let bytes = &mut [IoSliceMut::new(bytes)];
        Ok(preadv2(descriptor, bytes, offset, nowait)?)
    }
    #[cfg(not(target_os = "linux"))]
    Err(Errno::OPNOTSUPP)
}

/// `None`: to the current position.
pub fn write(descriptor: Descriptor, bytes: &[u8], offset: Option<u64>) -> Result<usize, Errno> {
    #[cfg(target_os = "linux")]
    {
        let (offset, nowait) = (offset.unwrap_or(CURRENT_POSITION), ReadWriteFlags::NOWAIT);
        let bytes = &[IoSlice::new(bytes)];
        Ok(pwritev2(descriptor, bytes, offset, nowait)?)
    }
    #[cfg(not(target_os = "linux"))]
    Err(Errno::OPNOTSUPP)
}

/// Whether the kernel makes no such promise for pipes: before Linux 6.4, and on other systems.
pub fn refuses_pipes() -> bool {
    static REFUSES: LazyLock<bool> = LazyLock::new(|| {
        let pipe = rustix::pipe::pipe();
        pipe.is_ok_and(|(reader, _writer)| read(&reader, &mut [0], None) != Err(Errno::AGAIN))
    });
    *REFUSES
}

/// Opens the terminal behind the descriptor again, in non-blocking mode. `None` if that is impossible.
///
/// A terminal (the slave of a pseudo-terminal) that polls as writable may still block, because each line feed becomes two
/// bytes on the way. Setting O_NONBLOCK on the descriptor itself would affect every process that shares the open file
/// description. The new one is closed after each write: it would keep the terminal open, and write to the old terminal
/// after a dup2(2).
pub fn reopened_terminal(descriptor: Descriptor) -> Option<OwnedFd> {
    #[cfg(target_os = "linux")]
    {
        let path = format!("/proc/self/fd/{}", descriptor.number());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        open(path, flags, Mode::empty()).ok()
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// posix_fadvise(2) with POSIX_FADV_WILLNEED. Errors are ignored: it is only a hint.
pub fn advise_will_need(descriptor: Descriptor, offset: u64, length: u64) {
    #[cfg(target_os = "linux")]
    let _ = fadvise(
        descriptor,
        offset,
        NonZeroU64::new(length),
        Advice::WillNeed,
    );
}

/// Whether the file is in memory: on tmpfs, ramfs or hugetlbfs. See statfs(2).
pub fn lives_in_memory(descriptor: Descriptor) -> bool {
    #[cfg(target_os = "linux")]
    {
        const MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
        fstatfs(descriptor).is_ok_and(|system| MEMORY.contains(&(system.f_type as u32)))
    }
    #[cfg(not(target_os = "linux"))]
    false
}
