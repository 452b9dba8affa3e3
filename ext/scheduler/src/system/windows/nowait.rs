//! Calls that do not block: they first query which bytes a pipe holds.
#![allow(unsafe_code)]

use std::{io, ptr};

use windows_sys::{
    Wdk::Storage::FileSystem::{
        FILE_PIPE_CLOSING_STATE, FILE_PIPE_LOCAL_INFORMATION, FilePipeLocalInformation,
        NtQueryInformationFile,
    },
    Win32::{
        Foundation::{ERROR_BROKEN_PIPE, ERROR_NOT_SUPPORTED, HANDLE},
        Networking::WinSock::{FIONBIO, MSG_PEEK, SOCKET, ioctlsocket, recv},
        System::{IO::IO_STATUS_BLOCK, Pipes::PeekNamedPipe},
    },
};

use crate::system::{
    descriptor::Descriptor,
    errno::Errno,
    file::{is_text, read_here},
};

const RETURN: u8 = b'\r';

/// Reads the bytes that are in a pipe: 0 if the pipe's other end is closed, EAGAIN if the pipe is empty. (A process
/// that shares this end could empty it in between; the read then blocks.)
pub fn read(descriptor: Descriptor, bytes: &mut [u8]) -> Result<usize, Errno> {
    let pipe = descriptor.handle()?;
    let count = match peek(pipe, bytes) {
        Err(error) if error.raw_os_error() == Some(ERROR_BROKEN_PIPE as i32) => return Ok(0),
        count => count?,
    };
    match bytes[..count] {
        [] => Err(Errno::AGAIN),
        [RETURN] if is_text(descriptor) && ends_with_return(pipe) => Err(Errno::AGAIN),
        [_, .., RETURN] if !is_closed(pipe) => read_here(descriptor, &mut bytes[..count - 1]),
        _ => read_here(descriptor, &mut bytes[..count]),
    }
}

/// Whether this is a native Windows pipe, which can be queried.
pub fn can_be_asked(pipe: HANDLE) -> bool {
    peek(pipe, &mut []).map_or_else(|error| !is_unsupported(&error), |_| true)
}

fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ERROR_NOT_SUPPORTED as i32)
}

/// Whether a read would return: with data, or an error.
pub fn is_readable(pipe: Descriptor) -> bool {
    let handle = pipe.handle();
    handle.map_or(true, |handle| !matches!(peek(handle, &mut [0]), Ok(0)))
}

/// Whether the pipe holds only a carriage return and more may come: in text mode, the C run-time would wait for that.
pub(super) fn ends_with_return(pipe: HANDLE) -> bool {
    let mut first = [0; 2];
    peek(pipe, &mut first).is_ok_and(|count| count == 1) && first[0] == RETURN && !is_closed(pipe)
}

/// Whether the other end is closed; there may still be data.
fn is_closed(pipe: HANDLE) -> bool {
    let mut status = IO_STATUS_BLOCK::default();
    let (mut answer, class) = (
        FILE_PIPE_LOCAL_INFORMATION::default(),
        FilePipeLocalInformation,
    );
    let (place, size) = ((&raw mut answer).cast(), size_of_val(&answer) as u32);
    // SAFETY: queries a property of a handle; the places for the answer outlive the call.
    let code = unsafe { NtQueryInformationFile(pipe, &mut status, place, size, class) };
    code >= 0 && answer.NamedPipeState == FILE_PIPE_CLOSING_STATE
}

/// Copies the bytes in a pipe without removing them.
pub(super) fn peek(pipe: HANDLE, bytes: &mut [u8]) -> io::Result<usize> {
    let (place, size) = (
        bytes.as_mut_ptr().cast(),
        bytes.len().min(i32::MAX as usize),
    );
    let (mut count, none) = (0, ptr::null_mut());
    // SAFETY: the memory of a slice of at least this size; any handle may be passed.
    match unsafe { PeekNamedPipe(pipe, place, size as u32, &mut count, none, none) } {
        0 => Err(io::Error::last_os_error()).or_else(|error| peek_socket(pipe, bytes, error)),
        _ => Ok(count as usize),
    }
}

/// Like [`peek`], for a socket duplicated by `IO#dup`: Wine's getsockopt and send reject it, so it counts as a pipe here.
/// Returns `refused` if it is no socket.
fn peek_socket(handle: HANDLE, bytes: &mut [u8], refused: io::Error) -> io::Result<usize> {
    let (socket, size) = (handle as SOCKET, bytes.len().min(i32::MAX as usize));
    // SAFETY: sets a flag; any number may be passed.
    if !is_unsupported(&refused) || unsafe { ioctlsocket(socket, FIONBIO, &mut 1) } != 0 {
        return Err(refused);
    }
    // SAFETY: the memory of a slice of at least this size.
    let count = unsafe { recv(socket, bytes.as_mut_ptr(), size as i32, MSG_PEEK) };
    match usize::try_from(count).map_err(|_| io::Error::last_os_error()) {
        Ok(0) => Err(io::Error::from_raw_os_error(ERROR_BROKEN_PIPE as i32)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        answer => answer,
    }
}
