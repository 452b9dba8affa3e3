//! One non-blocking attempt to read or write, for any kind of descriptor.
#![allow(unsafe_code)]

use std::io;

use reactor::Interest;
use windows_sys::Win32::{
    Foundation::ERROR_INVALID_HANDLE,
    Networking::WinSock::{FD_SET, SOCKET, TIMEVAL, WSAESHUTDOWN, recv, select, send},
};

use crate::system::{
    descriptor::Descriptor,
    errno::Errno,
    file::{read_here, write_here},
    kind::{DescriptorKind, is_socket},
    nowait,
    windows::{console, os_error::last},
};

/// The most to copy before checking whether other fibers are ready: about 40 us.
pub const SLICE: usize = 256 << 10;

/// The maximum byte count of a Winsock call.
const MAX_SIZE: usize = i32::MAX as usize;

/// Those of the events for which the descriptor is ready now.
pub fn poll_now(
    kind: DescriptorKind,
    descriptor: Descriptor,
    interest: Interest,
) -> io::Result<Option<Interest>> {
    if descriptor.handle().is_err() {
        return Err(io::Error::from_raw_os_error(ERROR_INVALID_HANDLE as i32));
    }
    let is_readable = match kind {
        DescriptorKind::StreamSocket | DescriptorKind::UnixSocket | DescriptorKind::OtherSocket => {
            let poll = if interest.is_priority() {
                select_now
            } else {
                reactor::poll_now
            };
            return poll(descriptor.polled(), interest);
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

/// Like [`reactor::poll_now`], but also reports urgent data, which `poll_now` does not support on Windows.
pub(super) fn select_now(
    socket: reactor::Descriptor,
    interest: Interest,
) -> io::Result<Option<Interest>> {
    let set = |is_asked| FD_SET {
        fd_count: u32::from(is_asked),
        fd_array: [socket as SOCKET; 64],
    };
    let mut readable = set(interest.is_readable());
    let mut writable = set(interest.is_writable());
    let mut urgent = set(interest.is_priority());
    let at_once = TIMEVAL::default();
    // SAFETY: sets of at most one socket, and a time, which outlive the call.
    let count = unsafe { select(0, &mut readable, &mut writable, &mut urgent, &at_once) };
    if count < 0 {
        return Err(io::Error::last_os_error());
    }
    let bits = readable.fd_count | urgent.fd_count << 1 | writable.fd_count << 2;
    Ok(Interest::from_bits(bits as u8))
}

/// Reads the available bytes: a byte count, 0 at the end, EAGAIN if it would block; at most [`SLICE`] from a descriptor
/// that never blocks. A read of 0 bytes waits for nothing.
pub fn read(
    kind: DescriptorKind,
    descriptor: Descriptor,
    bytes: &mut [u8],
) -> Result<usize, Errno> {
    if bytes.is_empty() {
        return descriptor.handle().map(|_| 0);
    }
    match kind {
        DescriptorKind::StreamSocket | DescriptorKind::UnixSocket | DescriptorKind::OtherSocket => {
            receive(descriptor, bytes)
        }
        DescriptorKind::Pipe | DescriptorKind::StreamPipe => nowait::read(descriptor, bytes),
        DescriptorKind::PollFirst | DescriptorKind::Terminal => console::take(descriptor, bytes),
        DescriptorKind::NeverBlocks | DescriptorKind::File | DescriptorKind::MemoryFile => {
            let size = bytes.len().min(SLICE);
            read_here(descriptor, &mut bytes[..size])
        }
    }
}

/// Windows passes no descriptors, and [`detect`](crate::system::kind::detect) finds no such socket.
pub fn receive_unix(descriptor: Descriptor, bytes: &mut [u8]) -> Result<(usize, bool), Errno> {
    Ok((receive(descriptor, bytes)?, false))
}

/// Writes what fits: a byte count, or EAGAIN if nothing fits or only a worker can write
/// ([`DescriptorKind::is_written_by_worker`]); at most [`SLICE`] to a descriptor that never blocks. A write of 0 bytes
/// waits for nothing.
pub fn write(kind: DescriptorKind, descriptor: Descriptor, bytes: &[u8]) -> Result<usize, Errno> {
    match kind {
        DescriptorKind::StreamSocket | DescriptorKind::UnixSocket | DescriptorKind::OtherSocket => {
            transmit(descriptor, bytes)
        }
        _ if bytes.is_empty() => descriptor.handle().map(|_| 0),
        DescriptorKind::Pipe
        | DescriptorKind::StreamPipe
        | DescriptorKind::PollFirst
        | DescriptorKind::Terminal => descriptor.handle().and(Err(Errno::AGAIN)),
        DescriptorKind::NeverBlocks | DescriptorKind::File | DescriptorKind::MemoryFile => {
            write_here(descriptor, &bytes[..bytes.len().min(SLICE)])
        }
    }
}

/// C has no number for this, so Ruby uses Winsock's.
const SHUT_DOWN: Errno = Errno::new(WSAESHUTDOWN);

/// Also returns 0 if the reading half is shut down, as on other systems: a waiting read learns of the shutdown in no
/// other way. Fails with EMSGSIZE for a datagram larger than the buffer: the datagram's end is lost, as in Ruby's own
/// transfers.
fn receive(descriptor: Descriptor, bytes: &mut [u8]) -> Result<usize, Errno> {
    let (socket, size) = (descriptor.polled() as SOCKET, bytes.len().min(MAX_SIZE));
    // SAFETY: the memory of a slice of at least this size; any number may be passed.
    let count = unsafe { recv(socket, bytes.as_mut_ptr(), size as i32, 0) };
    match usize::try_from(count).map_err(|_| socket_error(descriptor)) {
        Err(errno) if errno == SHUT_DOWN => Ok(0),
        answer => answer,
    }
}

/// EPIPE if the connection is gone, as in Ruby.
fn transmit(descriptor: Descriptor, bytes: &[u8]) -> Result<usize, Errno> {
    let (socket, size) = (descriptor.polled() as SOCKET, bytes.len().min(MAX_SIZE));
    // SAFETY: the memory of a slice of at least this size; any number may be passed.
    let count = unsafe { send(socket, bytes.as_ptr(), size as i32, 0) };
    usize::try_from(count).map_err(|_| match socket_error(descriptor) {
        Errno::CONNABORTED => Errno::PIPE,
        errno => errno,
    })
}

/// For a descriptor that is no socket, Wine reports another error.
fn socket_error(descriptor: Descriptor) -> Errno {
    match last() {
        Errno::OPNOTSUPP if !is_socket(descriptor) => Errno::NOTSOCK,
        errno => errno,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        net::{Shutdown, TcpListener, TcpStream, UdpSocket},
    };

    use super::{DescriptorKind, Interest, poll_now, read, write};
    use crate::system::{descriptor::Descriptor, errno::Errno, windows::test_pipe::pipe};

    fn sockets() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        one.set_nonblocking(true).unwrap();
        other.set_nonblocking(true).unwrap();
        (one, other)
    }

    #[test]
    fn an_empty_socket_would_block_and_a_full_one_too() {
        let (mut one, other) = sockets();
        let descriptors = [Descriptor::of_socket(&one), Descriptor::of_socket(&other)];
        let kinds = descriptors.map(DescriptorKind::of);
        assert_eq!(
            read(kinds[1], descriptors[1], &mut [0; 4]),
            Err(Errno::AGAIN)
        );
        let (bytes, mut sent) = (vec![1; 1 << 20], 0);
        while let Ok(count) = write(kinds[1], descriptors[1], &bytes) {
            sent += count;
        }
        assert_eq!(write(kinds[1], descriptors[1], &bytes), Err(Errno::AGAIN));
        other.shutdown(Shutdown::Read).unwrap();
        assert_eq!(read(kinds[1], descriptors[1], &mut [0; 4]), Ok(0));
        drop(other);
        one.set_nonblocking(false).unwrap();
        let mut found = Vec::new();
        one.read_to_end(&mut found).unwrap();
        assert_eq!(found.len(), sent);
        assert_eq!(read(kinds[0], descriptors[0], &mut [0; 4]), Ok(0));
    }

    #[test]
    fn a_datagram_is_sent_and_received_whole_or_not() {
        let [one, other] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        one.connect(other.local_addr().unwrap()).unwrap();
        let [one, other] = [&one, &other].map(|socket| Descriptor::of_socket(socket));
        let kind = DescriptorKind::of(one);
        for bytes in [&b"1234"[..], b"", b"56"] {
            assert_eq!(write(kind, one, bytes), Ok(bytes.len()));
        }
        let mut bytes = [0; 3];
        let too_large = read(kind, other, &mut bytes).map_err(Errno::number);
        assert_eq!(too_large, Err(libc::EMSGSIZE));
        assert_eq!(read(kind, other, &mut bytes), Ok(0));
        assert_eq!(read(kind, other, &mut bytes), Ok(2));
    }

    #[test]
    fn a_number_that_is_no_socket_is_told_apart() {
        let (reader, _writer) = pipe(true);
        let (kind, pipe) = (DescriptorKind::StreamSocket, Descriptor::of(&reader));
        assert_eq!(read(kind, pipe, &mut [0; 4]), Err(Errno::NOTSOCK));
        assert_eq!(write(kind, pipe, &[0; 4]), Err(Errno::NOTSOCK));
    }

    #[test]
    fn what_is_closed_has_no_transfers() {
        // SAFETY: not a valid descriptor number.
        let closed = unsafe { Descriptor::new(300) };
        for kind in (0..8).map(DescriptorKind::from_bits) {
            let is_socket =
                [DescriptorKind::StreamSocket, DescriptorKind::OtherSocket].contains(&kind);
            let expected = Err(if is_socket {
                Errno::NOTSOCK
            } else {
                Errno::BADF
            });
            assert_eq!(read(kind, closed, &mut [0; 4]), expected, "{kind:?}");
            assert_eq!(write(kind, closed, &[0; 4]), expected, "{kind:?}");
            let polled = poll_now(kind, closed, Interest::READABLE).unwrap_err();
            assert_eq!(Errno::from(polled), Errno::BADF, "{kind:?}");
        }
    }

    #[test]
    fn a_pipe_is_readable_when_something_is_there() {
        let (reader, mut writer) = pipe(true);
        let (kind, descriptor) = (DescriptorKind::Pipe, Descriptor::of(&reader));
        let both = Interest::READABLE | Interest::WRITABLE;
        let poll = |interest| poll_now(kind, descriptor, interest).unwrap();
        assert_eq!(
            [poll(Interest::READABLE), poll(both)],
            [None, Some(Interest::WRITABLE)]
        );
        std::io::Write::write_all(&mut writer, b"1").unwrap();
        assert_eq!(
            [poll(Interest::READABLE), poll(both)],
            [Some(Interest::READABLE), Some(both)]
        );
        assert_eq!(poll(Interest::PRIORITY), None);
        assert_eq!(
            write(kind, descriptor, b"1"),
            Err(Errno::AGAIN),
            "a worker writes"
        );
    }
}
