//! Pipes, for tests.
#![allow(unsafe_code)]

use std::{
    fs::File,
    os::windows::io::{AsRawHandle, FromRawHandle},
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use windows_sys::Win32::{
    Foundation::HANDLE,
    Storage::FileSystem::{
        CreateFileW, FILE_FLAG_OVERLAPPED, FILE_GENERIC_READ, FILE_GENERIC_WRITE, OPEN_EXISTING,
        PIPE_ACCESS_DUPLEX,
    },
    System::Pipes::{CreateNamedPipeW, CreatePipe, PIPE_NOWAIT, SetNamedPipeHandleState},
};

/// A pipe as Ruby creates it, or as `CreatePipe` does: its reading and its writing end.
pub fn pipe(is_overlapped: bool) -> (File, File) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (mut reader, mut writer): (HANDLE, HANDLE) = (ptr::null_mut(), ptr::null_mut());
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("\\\\.\\pipe\\reactor-{}-{number}\0", std::process::id());
    let name: Vec<u16> = name.encode_utf16().collect();
    // SAFETY: NUL-terminated names, and places for handles, which are new.
    unsafe {
        if is_overlapped {
            let (mode, size) = (PIPE_ACCESS_DUPLEX | FILE_FLAG_OVERLAPPED, 65_536);
            reader = CreateNamedPipeW(name.as_ptr(), mode, 0, 2, size, size, 0, ptr::null());
            let rights = FILE_GENERIC_READ | FILE_GENERIC_WRITE;
            let (none, flags) = (ptr::null(), FILE_FLAG_OVERLAPPED);
            writer = CreateFileW(
                name.as_ptr(),
                rights,
                0,
                none,
                OPEN_EXISTING,
                flags,
                ptr::null_mut(),
            );
        } else {
            assert_ne!(CreatePipe(&mut reader, &mut writer, ptr::null(), 0), 0);
        }
        (File::from_raw_handle(reader), File::from_raw_handle(writer))
    }
}

/// Sets the pipe to the mode that `IO#read_nonblock` sets.
pub fn never_block(end: &File) {
    // SAFETY: an open pipe, and a number that outlives the call.
    let is_set = unsafe {
        SetNamedPipeHandleState(end.as_raw_handle(), &PIPE_NOWAIT, ptr::null(), ptr::null())
    };
    assert_ne!(is_set, 0);
}
