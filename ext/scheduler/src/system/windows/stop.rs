//! Ends the call in which a worker blocks.
#![allow(unsafe_code)]

use std::{
    io,
    os::windows::io::{AsRawHandle, BorrowedHandle, FromRawHandle, OwnedHandle},
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use windows_sys::{
    Win32::{
        Foundation::{ERROR_IO_PENDING, ERROR_OPERATION_ABORTED, HANDLE, WAIT_OBJECT_0},
        System::{
            IO::{CancelIoEx, CancelSynchronousIo, GetOverlappedResult, OVERLAPPED},
            Threading::{
                CreateEventW, GetCurrentThread, INFINITE, SetEvent, WaitForMultipleObjects,
                WaitForSingleObject,
            },
        },
    },
    core::BOOL,
};

/// The maximum number of milliseconds between two checks of something that has no event.
pub const LONGEST_PAUSE: u32 = 32;

/// Ends the current blocking call or the next one, once and for all.
#[derive(Debug)]
pub struct Stop {
    event: OwnedHandle,
    /// The thread inside a call that the event does not end.
    caller: Mutex<Option<OwnedHandle>>,
}

impl Stop {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            event: event()?,
            caller: Mutex::default(),
        })
    }

    /// Any thread may call it. Returns once no call is blocking.
    pub fn end(&self) {
        // SAFETY: one of our events.
        unsafe { SetEvent(self.event.as_raw_handle()) };
        // The thread may be about to begin its call. Until it has begun, the call cannot be cancelled.
        loop {
            match &*self.caller() {
                // SAFETY: a thread handle, which stays open while it is stored there.
                Some(caller) => unsafe { CancelSynchronousIo(caller.as_raw_handle()) },
                None => break,
            };
            thread::yield_now();
        }
    }

    /// Waits for some milliseconds. Returns true if [`Stop::end`] has been called.
    pub fn pause(&self, milliseconds: u32) -> bool {
        // SAFETY: one of our events.
        unsafe { WaitForSingleObject(self.event.as_raw_handle(), milliseconds) == WAIT_OBJECT_0 }
    }

    /// Makes a call that CancelSynchronousIo can end.
    pub fn guard<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        // SAFETY: it refers to the current thread for as long as that runs.
        let thread = unsafe { BorrowedHandle::borrow_raw(GetCurrentThread()) };
        let thread = thread.try_clone_to_owned()?;
        let mut caller = self.caller();
        if self.pause(0) {
            return Err(ended());
        }
        *caller = Some(thread);
        drop(caller);
        let result = call();
        *self.caller() = None;
        result
    }

    /// Starts a transfer with `begin`, with or without FILE_FLAG_OVERLAPPED, and waits for its end.
    pub fn transfer(
        &self,
        handle: HANDLE,
        begin: impl FnOnce(*mut OVERLAPPED) -> BOOL,
    ) -> io::Result<usize> {
        let event = event()?;
        let mut overlapped = OVERLAPPED {
            hEvent: event.as_raw_handle(),
            ..Default::default()
        };
        let begun = self.guard(|| match begin(&mut overlapped) {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
        match begun {
            Err(error) if error.raw_os_error() == Some(ERROR_IO_PENDING as i32) => {
                let events = [event.as_raw_handle(), self.event.as_raw_handle()];
                // SAFETY: our own events, and the transfer that was started.
                unsafe {
                    WaitForMultipleObjects(2, events.as_ptr(), 0, INFINITE);
                    if self.pause(0) {
                        CancelIoEx(handle, &overlapped);
                    }
                }
            }
            begun => begun?,
        }
        let mut count = 0;
        // SAFETY: it waits for the end of the transfer, so nothing uses these places afterwards.
        match unsafe { GetOverlappedResult(handle, &overlapped, &mut count, 1) } {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(count as usize),
        }
    }

    fn caller(&self) -> MutexGuard<'_, Option<OwnedHandle>> {
        self.caller.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> io::Error {
    io::Error::from_raw_os_error(ERROR_OPERATION_ABORTED as i32)
}

/// An event that stays set (manual reset).
fn event() -> io::Result<OwnedHandle> {
    // SAFETY: unnamed, with default rights.
    let event = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
    if event.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: newly created, and owned by nobody else.
    Ok(unsafe { OwnedHandle::from_raw_handle(event) })
}
