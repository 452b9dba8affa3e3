//! A descriptor by Ruby's number: the C run-time knows the handle or socket behind it.
#![allow(unsafe_code)]

use std::{
    ffi::c_int,
    io,
    os::windows::io::{BorrowedHandle, OwnedHandle},
};

use windows_sys::Win32::Foundation::{HANDLE, INVALID_HANDLE_VALUE};

use crate::system::errno::Errno;

/// A descriptor named by Ruby.
///
/// Another fiber may have closed it, and its number may have been reused. A call then fails, or acts on another file, just
/// as it would in plain Ruby; memory safety does not depend on it. While a worker uses a descriptor, it is marked as in
/// use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor(c_int);

impl Descriptor {
    /// # Safety
    ///
    /// The number is not negative, and its IO object, or whoever else owns it, allows the caller to use the descriptor.
    pub const unsafe fn new(number: c_int) -> Self {
        Self(number)
    }

    pub const fn number(self) -> c_int {
        self.0
    }

    /// The number by which the core knows it: the socket, or the handle of a file of another kind. The core refuses
    /// such a handle.
    pub fn polled(self) -> reactor::Descriptor {
        // SAFETY: any number may be passed. For an invalid number the C run-time calls Ruby's handler, and the handler
        // returns.
        unsafe { libc::get_osfhandle(self.0) as reactor::Descriptor }
    }

    /// The handle, or EBADF.
    pub(super) fn handle(self) -> Result<HANDLE, Errno> {
        let handle = self.polled() as HANDLE;
        let is_open = handle != INVALID_HANDLE_VALUE && handle as isize != NO_FILE;
        is_open.then_some(handle).ok_or(Errno::BADF)
    }
}

/// Another handle to the same file. It keeps the file open.
pub(super) fn duplicate(handle: HANDLE) -> io::Result<OwnedHandle> {
    // SAFETY: an open handle, during this call.
    unsafe { BorrowedHandle::borrow_raw(handle) }.try_clone_to_owned()
}

/// What the C run-time returns for a standard descriptor with nothing behind it.
const NO_FILE: isize = -2;

/// Returns false and does nothing: Ruby keeps a list of its sockets, from which only Ruby can remove one (`rb_w32_close`).
///
/// # Safety
///
/// The descriptor's owner has given it up.
pub const unsafe fn close_unless_blocking(_: Descriptor) -> bool {
    false
}

/// Returns 0, as if the descriptor were no regular file: in text mode only the C run-time knows how many bytes a range
/// of the file becomes in a transfer, so no transfer may bypass the C run-time.
pub const fn file_size(_: Descriptor) -> u64 {
    0
}

#[cfg(test)]
impl Descriptor {
    /// The handle stays the file's: the descriptor is never closed.
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
