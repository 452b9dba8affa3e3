//! A descriptor by Ruby's number of it: the C run-time knows the handle or the socket behind it.
#![allow(unsafe_code)]

use std::{
    ffi::c_int,
    io,
    os::windows::io::{BorrowedHandle, OwnedHandle},
};

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};

use crate::system::errno::Errno;

/// A descriptor that Ruby has named.
///
/// It may be closed since, by another fiber, and its number reused. Then a call fails, or is made on another file, as it would be if
/// Ruby made it: no memory depends on it. While a worker uses a descriptor, it is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor(c_int);

impl Descriptor {
    /// # Safety
    ///
    /// The number is not negative, and its IO object, or other owner, lets the caller use the descriptor.
    pub const unsafe fn new(number: c_int) -> Self {
        Self(number)
    }

    pub const fn number(self) -> c_int {
        self.0
    }

    /// The core's name of it: the socket, or the handle of another file, which the core refuses.
    pub fn polled(self) -> reactor::Descriptor {
        // SAFETY: any number may be asked for. The C run-time calls Ruby's handler for one that is no descriptor, which returns.
        unsafe { libc::get_osfhandle(self.0) as reactor::Descriptor }
    }

    /// The handle, or EBADF.
    pub(super) fn handle(self) -> Result<HANDLE, Errno> {
        let handle = self.polled() as HANDLE;
        let is_open = handle != INVALID_HANDLE_VALUE && handle as isize != NO_FILE;
        is_open.then_some(handle).ok_or(Errno::BADF)
    }
}

/// Another handle of the same file, which stays open with it.
pub(super) fn duplicate(handle: HANDLE) -> io::Result<OwnedHandle> {
    // SAFETY: an open handle, during this call.
    unsafe { BorrowedHandle::borrow_raw(handle) }.try_clone_to_owned()
}

/// What the C run-time says of a standard descriptor with nothing behind it.
const NO_FILE: isize = -2;

/// False, and nothing done: Ruby keeps a list of its sockets, from which only Ruby takes one (`rb_w32_close`).
///
/// # Safety
///
/// Its owner has given it up.
pub const unsafe fn close_unless_blocking(_: Descriptor) -> bool {
    false
}

/// 0, as if nothing were a regular file: what a range of the file becomes in a transfer, only the C run-time knows (text mode), so no
/// transfer may go past it.
pub const fn file_size(_: Descriptor) -> u64 {
    0
}

#[cfg(test)]
impl Descriptor {
    /// The handle is not the descriptor's, which is never closed.
    pub fn of(file: &impl std::os::windows::io::AsRawHandle) -> Self {
        Self::of_handle(file.as_raw_handle() as isize, libc::O_BINARY)
    }

    pub fn in_text_mode(file: &impl std::os::windows::io::AsRawHandle) -> Self {
        Self::of_handle(file.as_raw_handle() as isize, libc::O_TEXT)
    }

    pub fn of_socket(socket: &impl std::os::windows::io::AsRawSocket) -> Self {
        Self::of_handle(socket.as_raw_socket() as isize, libc::O_BINARY)
    }

    fn of_handle(handle: isize, mode: c_int) -> Self {
        // SAFETY: an open handle.
        let number = unsafe { libc::open_osfhandle(handle, mode) };
        assert!(number >= 0);
        Self(number)
    }
}

#[cfg(test)]
mod tests {
    use super::{Descriptor, Errno};

    #[test]
    fn a_number_that_is_no_descriptor_has_no_handle() {
        for number in [300, 1_000_000, i32::MAX] {
            assert_eq!(Descriptor(number).handle(), Err(Errno::BADF));
        }
    }
}
