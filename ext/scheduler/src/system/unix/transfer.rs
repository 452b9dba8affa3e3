//! One non-blocking attempt to read or write, for any kind of descriptor.
//!
//! Where the kernel has a call that cannot block, readiness is not checked first. O_NONBLOCK is never changed, because
//! other processes may share the flag.

use std::{
    io::{self, IoSliceMut},
    time::Duration,
};

use reactor::Interest;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags};

use crate::system::{
    descriptor::{Descriptor, check_ready, is_nonblocking},
    errno::Errno,
    kind::DescriptorKind,
    nowait,
    terminal_timeout::{read_limit, unpaused_size},
};

/// Without blocking and without SIGPIPE. Apple's systems have no flag against SIGPIPE; there Ruby's own handler ignores
/// the signal.
#[cfg(not(target_vendor = "apple"))]
const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
#[cfg(target_vendor = "apple")]
const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT;

/// The most to copy before checking whether other fibers are ready: about 40 us.
pub const SLICE: usize = 256 << 10;

/// Those of the events for which the descriptor is ready now, according to poll(2).
pub fn poll_now(
    _: DescriptorKind,
    descriptor: Descriptor,
    interest: Interest,
) -> io::Result<Option<Interest>> {
    reactor::poll_now(descriptor.polled(), interest)
}

/// Reads the available bytes: a byte count, 0 at the end, EAGAIN if it would block; at most [`SLICE`] from a descriptor
/// that never blocks. A read of 0 bytes waits for nothing. It uses read(2), because recv(2) would consume a datagram.
pub fn read(
    kind: DescriptorKind,
    descriptor: Descriptor,
    bytes: &mut [u8],
) -> Result<usize, Errno> {
    if bytes.is_empty() {
        return Ok(rustix::io::read(descriptor, bytes)?);
    }
    match kind {
        DescriptorKind::StreamSocket | DescriptorKind::UnixSocket | DescriptorKind::OtherSocket => {
            let (_, count) = rustix::net::recv(descriptor, bytes, RecvFlags::DONTWAIT)?;
            Ok(count)
        }
        DescriptorKind::Pipe | DescriptorKind::StreamPipe => {
            let answer = match nowait::refuses_pipes() {
                true => Err(Errno::OPNOTSUPP),
                false => nowait::read(descriptor, bytes, None),
            };
            match answer {
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    if !is_nonblocking(descriptor) {
                        check_ready(descriptor, Interest::READABLE)?;
                    }
                    Ok(rustix::io::read(descriptor, bytes)?)
                }
                answer => answer,
            }
        }
        DescriptorKind::PollFirst | DescriptorKind::Terminal => {
            let mut size = bytes.len();
            if !is_nonblocking(descriptor) {
                match check_ready(descriptor, Interest::READABLE) {
                    Ok(()) => size = unpaused_size(descriptor, size),
                    Err(_) if read_limit(descriptor) == Some(Duration::ZERO) => {}
                    Err(errno) => return Err(errno),
                }
            }
            Ok(rustix::io::read(descriptor, &mut bytes[..size])?)
        }
        DescriptorKind::NeverBlocks | DescriptorKind::File | DescriptorKind::MemoryFile => {
            let size = bytes.len().min(SLICE);
            Ok(rustix::io::read(descriptor, &mut bytes[..size])?)
        }
    }
}

/// Reads from a Unix stream socket. The second value tells whether the kernel has stopped behind a message with ancillary
/// data (descriptors, credentials), which this discards as recv(2) does: then there may be more bytes.
pub fn receive_unix(descriptor: Descriptor, bytes: &mut [u8]) -> Result<(usize, bool), Errno> {
    let (mut nothing, bytes) = (
        RecvAncillaryBuffer::default(),
        &mut [IoSliceMut::new(bytes)],
    );
    let message = rustix::net::recvmsg(descriptor, bytes, &mut nothing, RecvFlags::DONTWAIT)?;
    Ok((message.bytes, message.flags.contains(ReturnFlags::CTRUNC)))
}

/// Writes what fits: a byte count, or EAGAIN if nothing fits; at most [`SLICE`] to a descriptor that never blocks. A
/// write of 0 bytes waits for nothing.
pub fn write(kind: DescriptorKind, descriptor: Descriptor, bytes: &[u8]) -> Result<usize, Errno> {
    if bytes.is_empty() {
        return Ok(rustix::io::write(descriptor, bytes)?);
    }
    match kind {
        DescriptorKind::StreamSocket | DescriptorKind::UnixSocket | DescriptorKind::OtherSocket => {
            Ok(rustix::net::send(descriptor, bytes, SEND_FLAGS)?)
        }
        DescriptorKind::Pipe | DescriptorKind::StreamPipe => {
            let answer = match nowait::refuses_pipes() {
                true => Err(Errno::OPNOTSUPP),
                false => nowait::write(descriptor, bytes, None),
            };
            match answer {
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    if is_nonblocking(descriptor) {
                        return Ok(rustix::io::write(descriptor, bytes)?);
                    }
                    check_ready(descriptor, Interest::WRITABLE)?;
                    Ok(rustix::io::write(descriptor, pipe_chunk(bytes))?)
                }
                answer => answer,
            }
        }
        DescriptorKind::PollFirst | DescriptorKind::Terminal => {
            if kind == DescriptorKind::Terminal {
                if let Some(terminal) = nowait::reopened_terminal(descriptor) {
                    return Ok(rustix::io::write(terminal, bytes)?);
                }
            }
            if is_nonblocking(descriptor) {
                return Ok(rustix::io::write(descriptor, bytes)?);
            }
            check_ready(descriptor, Interest::WRITABLE)?;
            Ok(rustix::io::write(descriptor, device_chunk(bytes))?)
        }
        DescriptorKind::NeverBlocks | DescriptorKind::File | DescriptorKind::MemoryFile => Ok(
            rustix::io::write(descriptor, &bytes[..bytes.len().min(SLICE)])?,
        ),
    }
}

/// A device that polls as writable is assumed to accept this much without blocking. The master of a pseudo-terminal does.
fn device_chunk(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(32)]
}

/// A pipe that polls as writable accepts this much without blocking: PIPE_BUF, see pipe(7).
fn pipe_chunk(bytes: &[u8]) -> &[u8] {
    const PIPE_BUF: usize = if cfg!(target_os = "linux") { 4096 } else { 512 };
    &bytes[..bytes.len().min(PIPE_BUF)]
}

#[cfg(test)]
mod tests {
    use super::{read, write};
    use crate::system::{descriptor::Descriptor, errno::Errno, kind::DescriptorKind};

    #[test]
    fn an_empty_pipe_would_block_and_a_full_one_too() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let (reader, writer) = (Descriptor::of(&reader), Descriptor::of(&writer));
        let kind = DescriptorKind::Pipe;
        assert_eq!(read(kind, reader, &mut [0; 4]), Err(Errno::AGAIN));
        while write(kind, writer, &[1; 4096]).is_ok() {}
        assert_eq!(write(kind, writer, &[1; 4096]), Err(Errno::AGAIN));
        assert_eq!(read(kind, reader, &mut [0; 4]), Ok(4));
    }

    #[test]
    fn a_number_that_is_no_socket_is_told_apart() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let kind = DescriptorKind::StreamSocket;
        assert_eq!(
            read(kind, Descriptor::of(&reader), &mut [0; 4]),
            Err(Errno::NOTSOCK)
        );
    }
}
