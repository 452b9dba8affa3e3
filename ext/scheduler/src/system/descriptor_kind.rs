//! What is behind a descriptor, as far as it decides how to read and write without blocking.

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

    /// The inverse of [`DescriptorKind::bits`]; bits above the lowest three are ignored.
    pub fn from_bits(bits: u64) -> Self {
        Self::ALL[(bits & 7) as usize]
    }

    /// The kind in three bits.
    pub fn bits(self) -> u64 {
        self as u64
    }

    /// Whether read(2) and write(2) never block and are short work.
    pub fn never_blocks(self) -> bool {
        matches!(self, Self::NeverBlocks | Self::MemoryFile)
    }

    /// Whether a short count tells that the kernel has no more.
    pub fn short_means_drained(self) -> bool {
        self == Self::StreamSocket || self.is_pipe()
    }

    pub fn is_socket(self) -> bool {
        matches!(self, Self::StreamSocket | Self::OtherSocket)
    }

    pub fn is_pipe(self) -> bool {
        matches!(self, Self::Pipe | Self::StreamPipe)
    }
}

#[cfg(test)]
mod tests {
    use super::DescriptorKind;

    #[test]
    fn every_kind_survives_its_bits() {
        for kind in DescriptorKind::ALL {
            assert_eq!(DescriptorKind::from_bits(kind.bits() | 1 << 3), kind);
        }
    }
}
