//! Asks Windows what a descriptor refers to.
#![allow(unsafe_code)]

use std::ptr;

use windows_sys::{
    Wdk::Storage::FileSystem::{FileFsDeviceInformation, NtQueryVolumeInformationFile},
    Win32::{
        Foundation::HANDLE,
        Networking::WinSock::{SO_TYPE, SOCK_STREAM, SOCKET, SOL_SOCKET, getsockopt},
        Storage::FileSystem::{FILE_TYPE_CHAR, FILE_TYPE_DISK, FILE_TYPE_PIPE, GetFileType},
        System::{Console::GetConsoleMode, IO::IO_STATUS_BLOCK},
    },
};

pub use crate::system::descriptor_kind::DescriptorKind;
use crate::system::{descriptor::Descriptor, nowait::can_be_asked};

/// A bit that no handle has set.
pub(super) const NO_SOCKET: reactor::Descriptor = 1 << 63;

/// The kind of file behind the descriptor, and the file's handle. While it is open, no other file has the same handle.
pub fn detect(descriptor: Descriptor) -> (DescriptorKind, Option<u64>) {
    let handle = descriptor.handle().ok().map(|handle| handle as u64);
    (DescriptorKind::of(descriptor), handle)
}

impl DescriptorKind {
    /// Winsock has no MSG_DONTWAIT: the caller makes a socket non-blocking through Ruby, which must know about it.
    ///
    /// Consoles are [`DescriptorKind::PollFirst`]. Other devices, whose calls may take long, count as files. So does a
    /// Linux pipe that Wine got from its shell, because such a pipe cannot report how many bytes it holds.
    pub fn of(descriptor: Descriptor) -> Self {
        let polled = descriptor.polled();
        if let Some(kind) = socket_type(polled) {
            return match kind {
                SOCK_STREAM => Self::StreamSocket,
                _ => Self::OtherSocket,
            };
        }
        let Ok(handle) = descriptor.handle() else {
            return Self::PollFirst;
        };
        // SAFETY: queries a property of a handle.
        match unsafe { GetFileType(handle) } {
            FILE_TYPE_PIPE if can_be_asked(handle) => Self::Pipe,
            FILE_TYPE_CHAR if is_console(handle) => Self::PollFirst,
            FILE_TYPE_CHAR if is_null(handle) => Self::NeverBlocks,
            FILE_TYPE_PIPE | FILE_TYPE_CHAR | FILE_TYPE_DISK => Self::File,
            _ => Self::PollFirst,
        }
    }

    /// Like [`Descriptor::polled`], but with [`NO_SOCKET`] set if the descriptor is no socket. The core then refuses
    /// the descriptor without a system call; Wine would poll it.
    pub fn polled(self, descriptor: Descriptor) -> reactor::Descriptor {
        match self {
            Self::StreamSocket | Self::UnixSocket | Self::OtherSocket => descriptor.polled(),
            _ => descriptor.polled() | NO_SOCKET,
        }
    }

    /// Whether only a call that may block can write to it.
    pub fn is_written_by_worker(self) -> bool {
        matches!(self, Self::Pipe | Self::PollFirst)
    }
}

/// `None` if it is no socket.
fn socket_type(polled: reactor::Descriptor) -> Option<i32> {
    let (mut kind, mut size) = (0_i32, size_of::<i32>() as i32);
    let place = ptr::from_mut(&mut kind).cast();
    let socket = polled as SOCKET;
    // SAFETY: any number may be passed; the places for the answer and its size outlive the call.
    let answer = unsafe { getsockopt(socket, SOL_SOCKET, SO_TYPE, place, &mut size) };
    (answer == 0).then_some(kind)
}

pub(super) fn is_console(handle: HANDLE) -> bool {
    // SAFETY: queries a property of a handle; the place for it outlives the call.
    unsafe { GetConsoleMode(handle, &mut 0) != 0 }
}

/// The device `NUL`.
fn is_null(handle: HANDLE) -> bool {
    const FILE_DEVICE_NULL: u32 = 0x15; // ntifs.h
    let mut answer = [0_u32; 2]; // the device's type, and its characteristics
    let (place, size) = (answer.as_mut_ptr().cast(), size_of_val(&answer) as u32);
    let (mut status, class) = (IO_STATUS_BLOCK::default(), FileFsDeviceInformation);
    // SAFETY: queries a property of a handle; the places for the answer outlive the call.
    let code = unsafe { NtQueryVolumeInformationFile(handle, &mut status, place, size, class) };
    code >= 0 && answer[0] == FILE_DEVICE_NULL
}

/// Whether a descriptor is a socket.
pub fn is_socket(descriptor: Descriptor) -> bool {
    is_socket_handle(descriptor.polled())
}

pub(super) fn is_socket_handle(polled: reactor::Descriptor) -> bool {
    socket_type(polled).is_some()
}

/// False: neither named pipes nor devices wait for anything.
pub fn opening_waits(_path: Vec<u8>) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::{DescriptorKind, is_socket};
    use crate::system::{descriptor::Descriptor, windows::test_pipe::pipe};

    #[test]
    fn descriptors_are_recognised() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let datagram = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (reader, writer) = pipe(true);
        let file = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        let null = std::fs::File::open("NUL").unwrap();
        for (descriptor, kind) in [
            (
                Descriptor::of_socket(&listener),
                DescriptorKind::StreamSocket,
            ),
            (
                Descriptor::of_socket(&datagram),
                DescriptorKind::OtherSocket,
            ),
            (Descriptor::of(&reader), DescriptorKind::Pipe),
            (Descriptor::of(&writer), DescriptorKind::Pipe),
            (Descriptor::of(&file), DescriptorKind::File),
            (Descriptor::of(&null), DescriptorKind::NeverBlocks),
        ] {
            assert_eq!(DescriptorKind::of(descriptor), kind);
            let is_kind_of_socket =
                [DescriptorKind::StreamSocket, DescriptorKind::OtherSocket].contains(&kind);
            assert_eq!(is_socket(descriptor), is_kind_of_socket);
        }
    }
}
