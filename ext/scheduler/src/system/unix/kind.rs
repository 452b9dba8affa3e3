//! Asks the kernel what a descriptor refers to.

use rustix::{
    fs::{Dev, FileType, Stat, major, minor},
    net::{AddressFamily, SocketType, getsockname, sockopt},
};

pub use crate::system::descriptor_kind::DescriptorKind;
use crate::system::{descriptor::Descriptor, nowait};

/// The kind of file behind the descriptor, and the file's inode number. Another socket, pipe or named file hardly ever
/// has the same number.
pub fn detect(descriptor: Descriptor) -> (DescriptorKind, Option<u64>) {
    // The kind is kept for the IO, so it must not depend on a shortage of memory: the call is retried once.
    let stat = rustix::fs::fstat(descriptor).or_else(|_| rustix::fs::fstat(descriptor));
    let Ok(stat) = stat else {
        return (DescriptorKind::PollFirst, None);
    };
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Socket => kind_of_socket(descriptor),
        FileType::Fifo => DescriptorKind::Pipe,
        FileType::RegularFile if nowait::lives_in_memory(descriptor) => DescriptorKind::MemoryFile,
        FileType::RegularFile | FileType::Directory | FileType::BlockDevice => DescriptorKind::File,
        FileType::CharacterDevice if never_waits(stat.st_rdev) => DescriptorKind::NeverBlocks,
        FileType::CharacterDevice if is_terminal(stat.st_rdev) => DescriptorKind::Terminal,
        _ => DescriptorKind::PollFirst,
    };
    (kind, Some(stat.st_ino))
}

impl DescriptorKind {
    pub fn of(descriptor: Descriptor) -> Self {
        detect(descriptor).0
    }

    /// Whether only a call that may block can write to it.
    pub const fn is_written_by_worker(self) -> bool {
        false
    }

    /// See [`Descriptor::polled`].
    pub fn polled(self, descriptor: Descriptor) -> reactor::Descriptor {
        descriptor.polled()
    }
}

/// Linux reports the protocol, so one call is enough for TCP and UDP. Unix sockets have no protocol.
fn kind_of_socket(socket: Descriptor) -> DescriptorKind {
    #[cfg(target_os = "linux")]
    match sockopt::socket_protocol(socket) {
        Ok(Some(rustix::net::ipproto::TCP)) => return DescriptorKind::StreamSocket,
        Ok(None) => {}
        _ => return DescriptorKind::OtherSocket,
    }
    let family = getsockname(socket).map(|address| address.address_family());
    match sockopt::socket_type(socket) {
        Ok(SocketType::STREAM) if family == Ok(AddressFamily::UNIX) => DescriptorKind::UnixSocket,
        Ok(SocketType::STREAM) if cfg!(not(target_os = "linux")) => DescriptorKind::StreamSocket,
        _ => DescriptorKind::OtherSocket,
    }
}

/// Whether it is one of Linux's devices null, zero, full, random and urandom: major number 1, with these minor numbers.
/// Other devices with this major number may wait: kmsg (11) for the kernel's next message.
fn never_waits(device: Dev) -> bool {
    const MINORS: [u32; 5] = [3, 5, 7, 8, 9];
    cfg!(target_os = "linux") && major(device) == 1 && MINORS.contains(&minor(device))
}

/// Whether it is the slave of a pseudo-terminal: see the kernel's Documentation/admin-guide/devices.txt.
fn is_terminal(device: Dev) -> bool {
    cfg!(target_os = "linux") && (136..=143).contains(&major(device))
}

/// Whether a descriptor is a socket.
pub fn is_socket(descriptor: Descriptor) -> bool {
    sockopt::socket_type(descriptor).is_ok()
}

/// Whether opening the path may wait for something other than a disk: a FIFO waits for its other end, and a device for
/// whatever its driver waits for, such as a modem's carrier.
pub fn opening_waits(path: Vec<u8>) -> bool {
    let waits = |stat: Stat| match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::BlockDevice => true,
        FileType::CharacterDevice => !never_waits(stat.st_rdev),
        _ => false,
    };
    rustix::fs::stat(path).is_ok_and(waits)
}

#[cfg(test)]
mod tests {
    use super::{Descriptor, DescriptorKind, never_waits, opening_waits};

    #[test]
    fn files_and_memory_devices_are_opened_at_once() {
        for path in [env!("CARGO_MANIFEST_DIR"), file!(), "/dev/null", "/nowhere"] {
            assert!(!opening_waits(path.into()), "{path}");
        }
        assert!(opening_waits("/dev/tty".into()));
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
            DescriptorKind::UnixSocket
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
