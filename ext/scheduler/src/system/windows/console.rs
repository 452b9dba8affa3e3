//! Console input. A read of the console blocks until a line is complete, so a worker makes it. Input already read is
//! kept here until a fiber takes it, so nothing is lost if the fiber that asked has ended. A process has one console.
#![allow(unsafe_code)]

use std::{
    collections::VecDeque,
    io,
    mem::take as taken,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use windows_sys::Win32::{
    Foundation::{ERROR_OPERATION_ABORTED, GetLastError, HANDLE},
    Storage::FileSystem::ReadFile,
};

use crate::system::{descriptor::Descriptor, errno::Errno, file::is_text, windows::stop::Stop};

#[derive(Debug, Default)]
struct Input {
    bytes: VecDeque<u8>,
    /// Whether Ctrl-Z was typed at the beginning of a line.
    is_ended: bool,
}

fn input() -> MutexGuard<'static, Input> {
    static INPUT: Mutex<Input> = Mutex::new(Input {
        bytes: VecDeque::new(),
        is_ended: false,
    });
    INPUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a worker has read something.
pub fn has_input() -> bool {
    !input().is_idle()
}

/// Takes the input that a worker has read: 0 at the end, EAGAIN if there is none.
pub fn take(descriptor: Descriptor, bytes: &mut [u8]) -> Result<usize, Errno> {
    descriptor.handle()?;
    let mut input = input();
    if input.bytes.is_empty() {
        return taken(&mut input.is_ended).then_some(0).ok_or(Errno::AGAIN);
    }
    Ok(input.take(bytes, is_text(descriptor)))
}

impl Input {
    fn take(&mut self, bytes: &mut [u8], is_text: bool) -> usize {
        let mut count = 0;
        while count < bytes.len() {
            let Some(byte) = self.bytes.pop_front() else {
                break;
            };
            let is_end_of_line = byte == b'\r' && self.bytes.front() == Some(&b'\n');
            if !(is_text && is_end_of_line) {
                bytes[count] = byte;
                count += 1;
            }
        }
        count
    }
}

/// Reads a line, unless a line is waiting to be taken. Blocks until there is a line, or until `stop` ends the read.
pub fn fill(console: HANDLE, stop: &Stop) -> io::Result<()> {
    let mut line = [0; 8192];
    while !stop.pause(0) && input().is_idle() {
        let (place, size, mut count) = (line.as_mut_ptr(), line.len() as u32, 0);
        // SAFETY: the memory of an array of this size.
        let read = || match unsafe { ReadFile(console, place, size, &mut count, ptr::null_mut()) } {
            0 => Err(io::Error::last_os_error()),
            // SAFETY: takes no arguments.
            _ => Ok(unsafe { GetLastError() }),
        };
        match stop.guard(read) {
            Ok(ERROR_OPERATION_ABORTED) if count == 0 => {} // Ctrl-C
            Ok(_) => {
                let mut input = input();
                input.is_ended |= count == 0;
                input.bytes.extend(&line[..count as usize]);
            }
            Err(error) if error.raw_os_error() == Some(ERROR_OPERATION_ABORTED as i32) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Input {
    fn is_idle(&self) -> bool {
        self.bytes.is_empty() && !self.is_ended
    }
}

#[cfg(test)]
mod tests {
    use super::Input;

    #[test]
    fn lines_end_as_the_mode_says() {
        for (is_text, expected) in [(true, "1\n\r2\n"), (false, "1\r\n\r2\r\n")] {
            let mut input = Input::default();
            input.bytes.extend(b"1\r\n\r2\r\n");
            let mut taken: Vec<u8> = Vec::new();
            while !input.is_idle() {
                let mut bytes = [0; 2];
                let count = input.take(&mut bytes, is_text);
                taken.extend(&bytes[..count]);
            }
            assert_eq!(taken, expected.as_bytes());
        }
    }
}
