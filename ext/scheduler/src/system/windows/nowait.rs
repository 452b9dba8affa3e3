//! Calls that do not block: a pipe is asked first what lies in it.
#![allow(unsafe_code)]

use std::{io, ptr};

use windows_sys::{
    Wdk::Storage::FileSystem::{
        FILE_PIPE_CLOSING_STATE, FILE_PIPE_LOCAL_INFORMATION, FilePipeLocalInformation,
        NtQueryInformationFile,
    },
    Win32::{
        Foundation::{ERROR_BROKEN_PIPE, ERROR_NOT_SUPPORTED, HANDLE},
        System::{IO::IO_STATUS_BLOCK, Pipes::PeekNamedPipe},
    },
};

use crate::system::{
    descriptor::Descriptor,
    errno::Errno,
    file::{is_text, read_here},
};

const RETURN: u8 = b'\r';

/// Reads what is in a pipe: 0 if its other end is closed, EAGAIN if nothing is there. (A process that shares this end could take it
/// in between. Then it blocks.)
pub fn read(descriptor: Descriptor, bytes: &mut [u8]) -> Result<usize, Errno> {
    let pipe = descriptor.handle()?;
    let count = match peek(pipe, bytes) {
        Err(error) if error.raw_os_error() == Some(ERROR_BROKEN_PIPE as i32) => return Ok(0),
        count => count?,
    };
    match bytes[..count] {
        [] => Err(Errno::AGAIN),
        [RETURN] if is_text(descriptor) && ends_with_return(pipe) => Err(Errno::AGAIN),
        [_, .., RETURN] => read_here(descriptor, &mut bytes[..count - 1]),
        _ => read_here(descriptor, &mut bytes[..count]),
    }
}

/// False for what is no pipe of Windows'.
pub fn can_be_asked(pipe: HANDLE) -> bool {
    let unsupported = Some(ERROR_NOT_SUPPORTED as i32);
    peek(pipe, &mut []).map_or_else(|error| error.raw_os_error() != unsupported, |_| true)
}

/// Whether a read would return: what is there, or an error.
pub fn is_readable(pipe: Descriptor) -> bool {
    let handle = pipe.handle();
    handle.map_or(true, |handle| !matches!(peek(handle, &mut [0]), Ok(0)))
}

/// Whether nothing but a return is there, and more may come: in text mode the C run-time would wait for that.
pub(super) fn ends_with_return(pipe: HANDLE) -> bool {
    let mut first = [0; 2];
    peek(pipe, &mut first).is_ok_and(|count| count == 1) && first[0] == RETURN && !is_closed(pipe)
}

/// Whether the other end is closed; something may be there nevertheless.
fn is_closed(pipe: HANDLE) -> bool {
    let mut status = IO_STATUS_BLOCK::default();
    let (mut answer, class) = (
        FILE_PIPE_LOCAL_INFORMATION::default(),
        FilePipeLocalInformation,
    );
    let (place, size) = ((&raw mut answer).cast(), size_of_val(&answer) as u32);
    // SAFETY: asks for a property of a handle; the places for the answer outlive the call.
    let code = unsafe { NtQueryInformationFile(pipe, &mut status, place, size, class) };
    code >= 0 && answer.NamedPipeState == FILE_PIPE_CLOSING_STATE
}

/// Copies what is in a pipe, and leaves it there.
pub(super) fn peek(pipe: HANDLE, bytes: &mut [u8]) -> io::Result<usize> {
    let (place, size) = (
        bytes.as_mut_ptr().cast(),
        bytes.len().min(i32::MAX as usize),
    );
    let (mut count, none) = (0, ptr::null_mut());
    // SAFETY: the memory of a slice of at least this size; any handle may be given.
    match unsafe { PeekNamedPipe(pipe, place, size as u32, &mut count, none, none) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(count as usize),
    }
}
