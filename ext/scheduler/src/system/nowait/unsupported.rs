use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::io::Errno;

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

pub fn reopened_terminal(_: BorrowedFd<'_>) -> Option<OwnedFd> {
    None
}

pub fn advise_will_need(_: BorrowedFd<'_>, _: u64, _: u64) {}

pub fn lives_in_memory(_: BorrowedFd<'_>) -> bool {
    false
}
