//! One attempt to read or write that does not block, whatever kind of descriptor it is.
#![allow(unsafe_code)]

use std::io;

use reactor::Interest;
use windows_sys::Win32::Networking::WinSock::{SOCKET, recv, send};

use crate::system::{
    descriptor::Descriptor,
    errno::Errno,
    file::{read_here, write_here},
    kind::DescriptorKind,
    nowait,
    windows::{console, os_error::last},
};

/// The most that is copied between two questions whether other fibers are ready: about 40 us.
pub const SLICE: usize = 256 << 10;

/// What the number of bytes in a call of Winsock's can be.
const MAX_SIZE: usize = i32::MAX as usize;

/// Which of the events the descriptor is ready for now.
pub fn poll_now(
    kind: DescriptorKind,
    descriptor: Descriptor,
    interest: Interest,
) -> io::Result<Option<Interest>> {
    let is_readable = match kind {
        DescriptorKind::StreamSocket | DescriptorKind::OtherSocket => {
            return reactor::poll_now(descriptor.polled(), interest);
        }
        DescriptorKind::Pipe | DescriptorKind::StreamPipe => nowait::is_readable(descriptor),
        DescriptorKind::PollFirst => console::has_input(),
        _ => true,
    };
    let ready = interest.without(Interest::PRIORITY);
    Ok(match is_readable {
        true => ready,
        false => ready.and_then(|ready| ready.without(Interest::READABLE)),
    })
}

/// Reads what is there: bytes, 0 at the end, EAGAIN if it would block; at most [`SLICE`] of what never blocks. A read of nothing waits
/// for nothing.
pub fn read(
    kind: DescriptorKind,
    descriptor: Descriptor,
    bytes: &mut [u8],
) -> Result<usize, Errno> {
    if bytes.is_empty() {
        return descriptor.handle().map(|_| 0);
    }
    match kind {
        DescriptorKind::StreamSocket | DescriptorKind::OtherSocket => receive(descriptor, bytes),
        DescriptorKind::Pipe | DescriptorKind::StreamPipe => nowait::read(descriptor, bytes),
        DescriptorKind::PollFirst => console::take(descriptor, bytes),
        DescriptorKind::NeverBlocks | DescriptorKind::File | DescriptorKind::MemoryFile => {
            let size = bytes.len().min(SLICE);
            read_here(descriptor, &mut bytes[..size])
        }
    }
}

/// Writes what fits: bytes, EAGAIN if nothing does, or if only a worker can write ([`DescriptorKind::is_written_by_worker`]); at most
/// [`SLICE`] of what never blocks. A write of nothing waits for nothing.
pub fn write(kind: DescriptorKind, descriptor: Descriptor, bytes: &[u8]) -> Result<usize, Errno> {
    match kind {
        DescriptorKind::StreamSocket | DescriptorKind::OtherSocket => transmit(descriptor, bytes),
        _ if bytes.is_empty() => descriptor.handle().map(|_| 0),
        DescriptorKind::Pipe | DescriptorKind::StreamPipe | DescriptorKind::PollFirst => {
            descriptor.handle().and(Err(Errno::AGAIN))
        }
        DescriptorKind::NeverBlocks | DescriptorKind::File | DescriptorKind::MemoryFile => {
            write_here(descriptor, &bytes[..bytes.len().min(SLICE)])
        }
    }
}

/// Of a datagram that is larger than the memory its beginning, as in Ruby.
fn receive(descriptor: Descriptor, bytes: &mut [u8]) -> Result<usize, Errno> {
    let (socket, size) = (descriptor.polled() as SOCKET, bytes.len().min(MAX_SIZE));
    // SAFETY: the memory of a slice of at least this size; any number may be given.
    let count = unsafe { recv(socket, bytes.as_mut_ptr(), size as i32, 0) };
    usize::try_from(count).or_else(|_| match last() {
        Errno::MSGSIZE => Ok(size),
        errno => Err(errno),
    })
}

/// EPIPE where the connection is gone, as in Ruby.
fn transmit(descriptor: Descriptor, bytes: &[u8]) -> Result<usize, Errno> {
    let (socket, size) = (descriptor.polled() as SOCKET, bytes.len().min(MAX_SIZE));
    // SAFETY: the memory of a slice of at least this size; any number may be given.
    let count = unsafe { send(socket, bytes.as_ptr(), size as i32, 0) };
    usize::try_from(count).map_err(|_| match last() {
        Errno::CONNABORTED => Errno::PIPE,
        errno => errno,
    })
}
