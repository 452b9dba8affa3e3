//! What is behind a descriptor, as far as it decides how to read and write without blocking.

use rustix::{
    fs::{Dev, FileType, major, minor},
    net::{SocketType, sockopt},
};

use crate::system::{descriptor::Descriptor, nowait};

/// How to read from and write to a descriptor without blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DescriptorKind {
    /// TCP, or a stream of the Unix domain: recv(2), send(2) with MSG_DONTWAIT. A short count means drained, unless urgent data,
    /// passed descriptors or the credentials of another sender end the call. recv(2) does not tell of these, and calls that do
    /// are dearer, so the selector learns it (`src/selector/registration.rs`).
    StreamSocket,
    /// The same calls. A short count means nothing: datagrams, packets, and streams that keep boundaries (SCTP).
    OtherSocket,
    /// Pipe or FIFO: preadv2(2) with RWF_NOWAIT (Linux 6.4), O_NONBLOCK otherwise. A short count means drained, unless the pipe
    /// keeps packets (O_DIRECT of pipe(2)), of which only the writing end tells.
    Pipe,
    /// read(2), write(2) of a memory device (null, zero, full, random).
    NeverBlocks,
    /// Terminals and other devices. Without O_NONBLOCK poll(2) is asked first.
    PollFirst,
    /// Regular files, directories, block devices: a call may take long, and never answers "would block".
    File,
    /// A regular file that lives in memory (tmpfs): read(2), write(2), which never block.
    MemoryFile,
    /// A pipe that a call found empty when a short count had said so, and so most likely keeps no packets. If it does, the selector
    /// learns it as with sockets.
    StreamPipe,
}

impl DescriptorKind {
    const ALL: [Self; 8] = [
        Self::StreamSocket,
        Self::OtherSocket,
        Self::Pipe,
        Self::NeverBlocks,
        Self::PollFirst,
        Self::File,
        Self::MemoryFile,
        Self::StreamPipe,
    ];

    pub fn of(descriptor: Descriptor) -> Self {
        match is_stream_of_bytes(descriptor) {
            Some(true) => return Self::StreamSocket,
            Some(false) => return Self::OtherSocket,
            None => {}
        }
        // The kind is kept for the IO. A shortage of memory must not decide it, so the call is made twice.
        let Ok(stat) = rustix::fs::fstat(descriptor).or_else(|_| rustix::fs::fstat(descriptor))
        else {
            return Self::PollFirst;
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => Self::Pipe,
            // getsockopt(2) has failed for another reason than ENOTSOCK.
            FileType::Socket => Self::OtherSocket,
            FileType::RegularFile if nowait::lives_in_memory(descriptor) => Self::MemoryFile,
            FileType::RegularFile | FileType::Directory | FileType::BlockDevice => Self::File,
            FileType::CharacterDevice if never_waits(stat.st_rdev) => Self::NeverBlocks,
            _ => Self::PollFirst,
        }
    }

    /// The inverse of [`DescriptorKind::bits`]; bits above the lowest three are ignored.
    pub fn from_bits(bits: u64) -> Self {
        Self::ALL[(bits & 7) as usize]
    }

    /// The kind in three bits.
    pub fn bits(self) -> u64 {
        self as u64
    }

    /// As [`Descriptor::polled`].
    pub fn polled(self, descriptor: Descriptor) -> reactor::Descriptor {
        descriptor.polled()
    }

    /// Whether read(2) and write(2) never block and are short work.
    pub fn never_blocks(self) -> bool {
        matches!(self, Self::NeverBlocks | Self::MemoryFile)
    }

    /// Whether a short count tells that the kernel has no more.
    pub fn short_means_drained(self) -> bool {
        self == Self::StreamSocket || self.is_pipe()
    }

    pub fn is_pipe(self) -> bool {
        matches!(self, Self::Pipe | Self::StreamPipe)
    }
}

/// Whether a socket is a stream that keeps no boundaries: TCP, or of the Unix domain. `None` for other files. Linux tells of the
/// protocol, so one call is enough for TCP and UDP. Sockets of the Unix domain have none.
fn is_stream_of_bytes(descriptor: Descriptor) -> Option<bool> {
    #[cfg(target_os = "linux")]
    {
        use rustix::net::{AddressFamily, ipproto};

        if let Some(protocol) = sockopt::socket_protocol(descriptor).ok()? {
            return Some(protocol == ipproto::TCP);
        }
        if sockopt::socket_domain(descriptor) != Ok(AddressFamily::UNIX) {
            return Some(false);
        }
    }
    Some(sockopt::socket_type(descriptor).ok()? == SocketType::STREAM)
}

/// Whether it is one of the devices null, zero, full, random and urandom of Linux: major 1, and these minors. Others of this major
/// wait: kmsg (11) for the kernel's next message.
fn never_waits(device: Dev) -> bool {
    const MINORS: [u32; 5] = [3, 5, 7, 8, 9];
    cfg!(target_os = "linux") && major(device) == 1 && MINORS.contains(&minor(device))
}

/// Whether a descriptor is a socket.
pub fn is_socket(descriptor: Descriptor) -> bool {
    sockopt::socket_type(descriptor).is_ok()
}

/// The file's inode number: hardly ever that of another file, be it a socket, a pipe or one with a name.
pub fn inode(descriptor: Descriptor) -> Option<u64> {
    let stat = rustix::fs::fstat(descriptor);
    stat.ok().map(|stat| stat.st_ino)
}

/// Whether it is the path of a FIFO: opening one blocks until its other end is opened.
pub fn is_fifo(path: Vec<u8>) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

#[cfg(test)]
mod tests {
    use super::{Descriptor, DescriptorKind, is_fifo, never_waits};

    #[test]
    fn every_kind_survives_its_bits() {
        for kind in DescriptorKind::ALL {
            assert_eq!(DescriptorKind::from_bits(kind.bits() | 1 << 3), kind);
        }
    }

    #[test]
    fn a_regular_file_is_no_fifo() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(!is_fifo(path.into()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_kernels_log_is_no_device_that_never_waits() {
        let device = |minor| rustix::fs::makedev(1, minor);
        let never_wait: Vec<u32> = (0..16)
            .filter(|minor| never_waits(device(*minor)))
            .collect();
        assert_eq!(never_wait, [3, 5, 7, 8, 9]); // kmsg is 11
        assert!(!never_waits(rustix::fs::makedev(5, 3)));
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(
            DescriptorKind::of(Descriptor::of(&null)),
            DescriptorKind::NeverBlocks
        );
    }

    #[test]
    fn descriptors_are_recognised() {
        let (stream, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(
            DescriptorKind::of(Descriptor::of(&stream)),
            DescriptorKind::StreamSocket
        );
        let datagram = std::os::unix::net::UnixDatagram::unbound().unwrap();
        assert_eq!(
            DescriptorKind::of(Descriptor::of(&datagram)),
            DescriptorKind::OtherSocket
        );
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(
            DescriptorKind::of(Descriptor::of(&listener)),
            DescriptorKind::StreamSocket
        );
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(
            DescriptorKind::of(Descriptor::of(&reader)),
            DescriptorKind::Pipe
        );
        let manifest = std::fs::File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert_eq!(
            DescriptorKind::of(Descriptor::of(&manifest)),
            DescriptorKind::File
        );
    }
}
