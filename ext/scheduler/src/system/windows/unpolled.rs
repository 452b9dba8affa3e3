//! Pipes, consoles and urgent data: the core cannot poll them, so a worker waits for them and writes to them.
//!
//! Ruby opens its pipes for overlapped transfers, so a zero-byte read ends when there is data. On any other pipe, a
//! thread inside a call makes the next call wait, even a call that only queries the pipe's kind. So no thread waits
//! inside a call on such a pipe: it is polled at intervals.
#![allow(unsafe_code)]

use std::{
    io,
    os::windows::io::{AsRawHandle, OwnedHandle},
    ptr,
    sync::{Mutex, PoisonError},
};

use reactor::{Descriptor as Polled, Interest, Ready};
use windows_sys::{
    Wdk::Storage::FileSystem::{
        FILE_SYNCHRONOUS_IO_ALERT, FILE_SYNCHRONOUS_IO_NONALERT, FileModeInformation,
        NtQueryInformationFile,
    },
    Win32::{
        Foundation::HANDLE,
        Storage::FileSystem::{
            FILE_TYPE_CHAR, FILE_TYPE_DISK, FILE_TYPE_PIPE, GetFileType, ReadFile,
        },
        System::{IO::IO_STATUS_BLOCK, Threading::INFINITE},
    },
};

pub use crate::system::windows::worker_write::BlockingWrite;
use crate::system::{
    kind::{NO_SOCKET, is_console, is_socket_handle},
    transfer::select_now,
    windows::{
        console,
        descriptor::duplicate,
        nowait::{ends_with_return, peek},
        stop::{LONGEST_PAUSE, Stop},
    },
};

/// A wait in which a worker blocks. Another thread can end it early.
#[derive(Debug)]
pub struct BlockingWait {
    source: Source,
    stop: Stop,
}

/// Handles are duplicates, so that they keep referring to the same file.
#[derive(Debug)]
enum Source {
    Pipe(Pipe),
    Console(OwnedHandle),
    /// For urgent data, which only select(2) reports, and for the other requested events.
    Socket(Polled, Interest),
    /// For urgent data on something that never has any.
    Never,
}

#[derive(Debug)]
struct Pipe {
    /// Locked during a call. `None` once the wait has ended: a writer gets EPIPE only when no handle to this end is left.
    handle: Mutex<Option<OwnedHandle>>,
    is_overlapped: bool,
}

impl BlockingWait {
    /// Creates a wait for a descriptor that the core refused with this error. `None` for descriptors that are always
    /// ready: files, and the writing end of a pipe.
    ///
    /// # Errors
    ///
    /// `refused`, if there is no other way to wait for the descriptor; `ERROR_INVALID_HANDLE` if it is closed.
    pub fn new(polled: Polled, interest: Interest, refused: io::Error) -> io::Result<Option<Self>> {
        let (handle, is_known) = ((polled & !NO_SOCKET) as HANDLE, polled & NO_SOCKET != 0);
        // SAFETY: queries a property of a handle.
        let file_type = unsafe { GetFileType(handle) };
        let source = match file_type {
            FILE_TYPE_PIPE if is_socket_handle(handle as Polled) => match is_known {
                true => return Ok(None), // it has become a socket: the caller retries
                false if interest.is_priority() => Source::Socket(polled, interest),
                false => return Err(refused),
            },
            FILE_TYPE_PIPE | FILE_TYPE_CHAR | FILE_TYPE_DISK if interest.is_writable() => {
                return Ok(None);
            }
            FILE_TYPE_PIPE | FILE_TYPE_CHAR | FILE_TYPE_DISK if !interest.is_readable() => {
                Source::Never
            }
            FILE_TYPE_PIPE => Source::Pipe(Pipe {
                handle: Mutex::new(Some(duplicate(handle)?)),
                is_overlapped: is_overlapped(handle),
            }),
            FILE_TYPE_CHAR if is_console(handle) => Source::Console(duplicate(handle)?),
            FILE_TYPE_CHAR | FILE_TYPE_DISK => return Ok(None),
            _ => return Err(io::Error::last_os_error()), // it is closed
        };
        let stop = Stop::new()?;
        Ok(Some(Self { source, stop }))
    }

    /// Blocks until the descriptor is ready or [`BlockingWait::end`] is called. Returns the events for which it is ready.
    pub fn block(&self) -> io::Result<Ready> {
        match &self.source {
            Source::Pipe(pipe) => self.block_for_pipe(pipe),
            Source::Console(console) => console::fill(console.as_raw_handle(), &self.stop)?,
            Source::Socket(socket, interest) => return self.block_for_socket(*socket, *interest),
            Source::Never => _ = self.stop.pause(INFINITE),
        }
        Ok(Ready::READABLE)
    }

    fn block_for_socket(&self, socket: Polled, interest: Interest) -> io::Result<Ready> {
        let mut pause = 1;
        loop {
            let ready = select_now(socket, interest)?;
            if ready.is_some() || self.stop.pause(pause) {
                return Ok(ready.map_or(Ready::EMPTY, Ready::from));
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn block_for_pipe(&self, pipe: &Pipe) {
        let mut pause = 1;
        while !self.poll(pipe, pause) && !self.stop.pause(pause) {
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether the wait has ended. On an overlapped pipe, this blocks while there is no data.
    fn poll(&self, pipe: &Pipe, pause: u32) -> bool {
        let locked = pipe.handle.lock();
        let locked = locked.unwrap_or_else(PoisonError::into_inner);
        let Some(handle) = locked.as_ref().map(AsRawHandle::as_raw_handle) else {
            return true;
        };
        if pipe.is_overlapped && !is_ready(handle, pause) {
            // Returns at once in PIPE_NOWAIT mode. Errors recur at the next check. SAFETY: it reads nothing, and so writes
            // to no memory.
            let read = |transfer| unsafe {
                ReadFile(handle, ptr::dangling_mut(), 0, ptr::null_mut(), transfer)
            };
            _ = self.stop.transfer(handle, read);
        }
        is_ready(handle, pause)
    }

    /// Ends the current block, or the next one. When this returns, no handle to a pipe is left here, with one
    /// exception: if the pipe is not overlapped and a worker is inside a call on it, the worker releases the handle
    /// after the call. While another process reads there, the call does not return, and nothing ends it.
    pub fn end(&self) {
        self.stop.end();
        if let Source::Pipe(Pipe {
            handle,
            is_overlapped,
        }) = &self.source
        {
            let locked = match is_overlapped {
                true => handle.lock().ok(),
                false => handle.try_lock().ok(),
            };
            drop(locked.and_then(|mut handle| handle.take()));
        }
    }
}

/// Whether a read would not block. Data on which a read would block in text mode is left until more comes, or for a
/// while.
fn is_ready(pipe: HANDLE, pause: u32) -> bool {
    match peek(pipe, &mut [0]) {
        Ok(0) => false,
        Ok(_) => pause == LONGEST_PAUSE || !ends_with_return(pipe),
        Err(_) => true, // the read gets the error
    }
}

fn is_overlapped(handle: HANDLE) -> bool {
    let (mut status, mut mode, class) = (IO_STATUS_BLOCK::default(), 0_u32, FileModeInformation);
    let (place, size) = ((&raw mut mode).cast(), size_of_val(&mode) as u32);
    // SAFETY: queries a property of a handle; the places for the answer outlive the call.
    let code = unsafe { NtQueryInformationFile(handle, &mut status, place, size, class) };
    code >= 0 && mode & (FILE_SYNCHRONOUS_IO_ALERT | FILE_SYNCHRONOUS_IO_NONALERT) == 0
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        fs::File,
        io::{self, Write},
        net::{TcpListener, TcpStream},
        os::windows::io::{AsRawHandle, AsRawSocket},
        sync::Barrier,
        thread,
    };

    use reactor::{Interest, Ready};
    use windows_sys::Win32::Networking::WinSock::{MSG_OOB, SOCKET, send};

    use super::{BlockingWait, Polled, select_now};
    use crate::system::{
        descriptor::Descriptor,
        errno::Errno,
        nowait,
        windows::pipe::{never_block, pipe},
    };

    fn refused() -> io::Error {
        io::Error::other("refused")
    }

    /// A wait for readability.
    pub fn wait(reader: &File) -> BlockingWait {
        let polled = reader.as_raw_handle() as Polled;
        BlockingWait::new(polled, Interest::READABLE, refused())
            .unwrap()
            .unwrap()
    }

    #[test]
    fn a_wait_ends_when_a_byte_is_there_and_takes_nothing() {
        for is_overlapped in [true, false] {
            let (reader, mut writer) = pipe(is_overlapped);
            let descriptor = Descriptor::of(&reader);
            let mut bytes = [0; 4];
            assert_eq!(nowait::read(descriptor, &mut bytes), Err(Errno::AGAIN));
            let wait = wait(&reader);
            thread::scope(|scope| {
                let blocked = scope.spawn(|| wait.block());
                writer.write_all(b"12345").unwrap();
                blocked.join().unwrap().unwrap();
            });
            assert_eq!(nowait::read(descriptor, &mut bytes), Ok(4));
            wait.block().unwrap();
            assert_eq!(nowait::read(descriptor, &mut bytes), Ok(1));
            assert_eq!(&bytes, b"5234");
            assert_eq!(nowait::read(descriptor, &mut bytes), Err(Errno::AGAIN));
        }
    }

    #[test]
    fn a_wait_ends_when_the_other_end_is_closed() {
        for is_overlapped in [true, false] {
            let (reader, mut writer) = pipe(is_overlapped);
            let descriptor = Descriptor::of(&reader);
            writer.write_all(b"1").unwrap();
            let mut bytes = [0; 4];
            assert_eq!(nowait::read(descriptor, &mut bytes), Ok(1));
            let wait = wait(&reader);
            thread::scope(|scope| {
                let blocked = scope.spawn(|| wait.block());
                drop(writer);
                blocked.join().unwrap().unwrap();
            });
            assert_eq!(nowait::read(descriptor, &mut bytes), Ok(0));
        }
    }

    #[test]
    fn a_wait_is_ended_before_it_begins_and_in_the_middle() {
        for is_overlapped in [true, false] {
            let (reader, _writer) = pipe(is_overlapped);
            for _ in 0..50 {
                let (wait, begun) = (wait(&reader), Barrier::new(2));
                thread::scope(|scope| {
                    let blocked = scope.spawn(|| {
                        begun.wait();
                        wait.block()
                    });
                    begun.wait();
                    wait.end();
                    blocked.join().unwrap().unwrap();
                    wait.block().unwrap();
                });
            }
        }
    }

    #[test]
    fn two_wait_for_one_pipe() {
        for is_overlapped in [true, false] {
            let (reader, mut writer) = pipe(is_overlapped);
            let waits = [wait(&reader), wait(&reader)];
            thread::scope(|scope| {
                let blocked = waits.each_ref().map(|wait| scope.spawn(|| wait.block()));
                writer.write_all(b"1").unwrap();
                for blocked in blocked {
                    blocked.join().unwrap().unwrap();
                }
            });
        }
    }

    #[test]
    fn what_is_always_ready_and_what_nobody_can_wait_for_is_told_apart() {
        let new = |polled, interest| BlockingWait::new(polled, interest, refused());
        let file = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        let (reader, writer) = pipe(true);
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (readable, writable) = (Interest::READABLE, Interest::WRITABLE);
        let polled = |file: &File| file.as_raw_handle() as Polled;
        assert!(new(polled(&file), readable).unwrap().is_none());
        assert!(new(polled(&file), writable).unwrap().is_none());
        assert!(new(polled(&writer), writable).unwrap().is_none());
        let urgent = new(polled(&reader), Interest::PRIORITY).unwrap().unwrap();
        urgent.end();
        urgent.block().unwrap();
        assert!(new(socket.as_raw_socket(), readable).is_err());
        let closed = new(Polled::MAX, readable).unwrap_err();
        assert_eq!(Errno::from(closed), Errno::BADF);
    }

    #[test]
    fn a_wait_for_urgent_data_ends_with_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let receiver = listener.accept().unwrap().0;
        let (socket, both) = (
            receiver.as_raw_socket(),
            Interest::READABLE | Interest::PRIORITY,
        );
        assert_eq!(select_now(socket, both).unwrap(), None);
        let wait = BlockingWait::new(socket, both, refused()).unwrap().unwrap();
        // SAFETY: an open socket, and one byte.
        unsafe { send(sender.as_raw_socket() as SOCKET, b"!".as_ptr(), 1, MSG_OOB) };
        assert_eq!(wait.block().unwrap(), Ready::PRIORITY);
        let idle = BlockingWait::new(sender.as_raw_socket(), both, refused())
            .unwrap()
            .unwrap();
        thread::scope(|scope| {
            let blocked = scope.spawn(|| idle.block());
            idle.end();
            assert_eq!(blocked.join().unwrap().unwrap(), Ready::EMPTY);
        });
    }

    #[test]
    fn in_text_mode_a_return_waits_for_what_follows() {
        let (reader, mut writer) = pipe(true);
        let (text, binary) = (Descriptor::in_text_mode(&reader), Descriptor::of(&reader));
        let mut bytes = [0; 8];
        writer.write_all(b"1\r").unwrap();
        assert_eq!(nowait::read(text, &mut bytes), Ok(1));
        assert_eq!(nowait::read(text, &mut bytes), Err(Errno::AGAIN));
        wait(&reader).block().unwrap(); // after some checks
        writer.write_all(b"\n2").unwrap();
        wait(&reader).block().unwrap();
        assert_eq!(nowait::read(text, &mut bytes), Ok(2));
        assert_eq!(&bytes[..2], b"\n2");
        writer.write_all(b"\r\n").unwrap();
        assert_eq!(
            nowait::read(text, &mut bytes[..1]),
            Ok(1),
            "more is there than asked for"
        );
        assert_eq!(bytes[0], b'\n');
        writer.write_all(b"\r").unwrap();
        assert_eq!(nowait::read(binary, &mut bytes), Ok(1));
        writer.write_all(b"\r").unwrap();
        drop(writer);
        wait(&reader).block().unwrap();
        assert_eq!(nowait::read(text, &mut bytes), Ok(1), "nothing follows");
        assert_eq!(nowait::read(text, &mut bytes), Ok(0));
    }

    #[test]
    fn a_pipe_that_never_blocks_is_waited_for_too() {
        for is_overlapped in [true, false] {
            let (reader, mut writer) = pipe(is_overlapped);
            never_block(&reader);
            let wait = wait(&reader);
            thread::scope(|scope| {
                let blocked = scope.spawn(|| wait.block());
                writer.write_all(b"1").unwrap();
                blocked.join().unwrap().unwrap();
            });
        }
    }
}
