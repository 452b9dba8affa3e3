//! A worker's write to something that could block the loop.
#![allow(unsafe_code)]

use std::{
    io,
    os::windows::io::{AsRawHandle, OwnedHandle},
    ptr,
};

use windows_sys::Win32::Storage::FileSystem::WriteFile;

use crate::system::{
    descriptor::Descriptor,
    errno::Errno,
    file::is_text,
    windows::{
        descriptor::duplicate,
        stop::{LONGEST_PAUSE, Stop},
    },
};

/// A write in which a worker blocks. Another thread can end it early.
#[derive(Debug)]
pub struct BlockingWrite {
    /// A duplicate, so that it keeps referring to the same file.
    handle: OwnedHandle,
    bytes: Vec<u8>,
    stop: Stop,
    /// Whether a carriage return was inserted before each line feed.
    is_text: bool,
}

impl BlockingWrite {
    /// Ruby leaves line endings to the C run-time only on its standard streams, if they are pipes or consoles.
    pub fn new(descriptor: Descriptor, bytes: &[u8]) -> Result<Self, Errno> {
        let is_standard = (1..=2).contains(&descriptor.number());
        let is_text = is_standard && is_text(descriptor);
        Ok(Self {
            handle: duplicate(descriptor.handle()?)?,
            bytes: match is_text {
                true => with_returns(bytes),
                false => bytes.to_vec(),
            },
            stop: Stop::new()?,
            is_text,
        })
    }

    /// Blocks until everything is written or [`BlockingWrite::end`] is called. Returns the number of bytes written, or an error
    /// if no byte was written.
    pub fn block(&self) -> Result<usize, Errno> {
        match self.written() {
            (0, Err(error)) => Err(error.into()),
            (count, _) if self.is_text => Ok(without_returns(&self.bytes, count)),
            (count, _) => Ok(count),
        }
    }

    fn written(&self) -> (usize, io::Result<()>) {
        let handle = self.handle.as_raw_handle();
        let (mut done, mut size, mut pause) = (0, usize::MAX, 1);
        while done < self.bytes.len() {
            let left = &self.bytes[done..];
            size = size.min(left.len()).min(i32::MAX as usize);
            // SAFETY: the memory of a slice of at least this size; the transfer has ended when this returns.
            let write = |transfer| unsafe {
                WriteFile(
                    handle,
                    left.as_ptr(),
                    size as u32,
                    ptr::null_mut(),
                    transfer,
                )
            };
            match self.stop.transfer(handle, write) {
                // The bytes do not fit, and the pipe is in PIPE_NOWAIT mode.
                Ok(0) if size > 1 => size /= 2,
                Ok(0) if self.stop.pause(pause) => break,
                Ok(0) => pause = (pause * 2).min(LONGEST_PAUSE),
                Ok(count) => (done, size, pause) = (done + count, usize::MAX, 1),
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }

    /// Ends the current block, or the next one. Windows does not report how much of a transfer in progress was read, so
    /// none of it is counted.
    pub fn end(&self) {
        self.stop.end();
    }
}

fn with_returns(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    for byte in bytes {
        if *byte == b'\n' {
            text.push(b'\r');
        }
        text.push(*byte);
    }
    text
}

/// The number of original bytes that the first `count` of these bytes stand for.
fn without_returns(text: &[u8], count: usize) -> usize {
    let is_put_in = |place: &usize| text[*place..].starts_with(b"\r\n");
    count - (0..count).filter(is_put_in).count()
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read, sync::Barrier, thread};

    use super::{BlockingWrite, with_returns, without_returns};
    use crate::system::{
        descriptor::Descriptor,
        errno::Errno,
        nowait,
        windows::{
            pipe::{never_block, pipe},
            unpolled::tests::wait,
        },
    };

    fn write_whole(mut reader: File, writer: File) {
        let size = 1 << 20;
        let bytes: Vec<u8> = (0..size).map(|place| place as u8).collect();
        let write = BlockingWrite::new(Descriptor::of(&writer), &bytes).unwrap();
        let mut found: Vec<u8> = Vec::new();
        thread::scope(|scope| {
            let blocked = scope.spawn(|| {
                let written = write.block();
                drop(writer);
                written
            });
            let descriptor = Descriptor::of(&reader);
            let mut piece = [0; 4096];
            while found.len() < size {
                wait(&reader).block().unwrap();
                let count = nowait::read(descriptor, &mut piece).unwrap();
                found.extend(&piece[..count]);
            }
            assert_eq!(blocked.join().unwrap(), Ok(size));
        });
        drop(write);
        assert_eq!(reader.read(&mut [0]).unwrap_or(0), 0);
        assert!(found == bytes);
    }

    #[test]
    fn a_write_is_whole() {
        for is_overlapped in [true, false] {
            let (reader, writer) = pipe(is_overlapped);
            write_whole(reader, writer);
        }
    }

    #[test]
    fn a_write_is_ended_before_it_begins_and_in_the_middle() {
        for is_overlapped in [true, false] {
            let (_reader, writer) = pipe(is_overlapped);
            for _ in 0..50 {
                let write = BlockingWrite::new(Descriptor::of(&writer), &[1; 1 << 20]).unwrap();
                let begun = Barrier::new(2);
                thread::scope(|scope| {
                    let blocked = scope.spawn(|| {
                        begun.wait();
                        write.block()
                    });
                    begun.wait();
                    write.end();
                    assert!(
                        blocked
                            .join()
                            .unwrap()
                            .is_err_and(|errno| errno == Errno::INTR)
                    );
                });
            }
        }
    }

    #[test]
    fn a_write_to_what_nobody_reads_fails() {
        for is_overlapped in [true, false] {
            let (reader, writer) = pipe(is_overlapped);
            drop(reader);
            let write = BlockingWrite::new(Descriptor::of(&writer), b"1").unwrap();
            assert_eq!(write.block(), Err(Errno::PIPE));
        }
    }

    #[test]
    fn returns_that_were_put_in_do_not_count() {
        let text = with_returns(b"1\n\n2");
        assert_eq!(text, b"1\r\n\r\n2");
        for (written, count) in [(0, 0), (1, 1), (2, 1), (3, 2), (5, 3), (6, 4)] {
            assert_eq!(without_returns(&text, written), count, "{written}");
        }
    }

    #[test]
    fn a_write_to_a_pipe_that_never_blocks_is_whole() {
        for is_overlapped in [true, false] {
            let (reader, writer) = pipe(is_overlapped);
            never_block(&writer);
            write_whole(reader, writer);
        }
    }
}
