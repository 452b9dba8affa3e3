//! What a descriptor refers to, as far as it decides how to read and write without blocking.

/// How to read from and write to a descriptor without blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DescriptorKind {
    /// TCP: recv(2) and send(2) with MSG_DONTWAIT. A short count means drained, unless the call was cut short by urgent
    /// data. recv(2) does not report that, so the reactor learns of it (`src/reactor/waits/registration.rs`).
    StreamSocket,
    /// The same calls, but a short count means nothing: datagrams, packets, and streams with message boundaries (SCTP).
    OtherSocket,
    /// A pipe or FIFO: preadv2(2) with RWF_NOWAIT (Linux 6.4), O_NONBLOCK otherwise. A short count means drained,
    /// except in packet mode (O_DIRECT in pipe(2)). Only the writing end can query that mode.
    Pipe,
    /// read(2) and write(2) on a memory device (null, zero, full, random).
    NeverBlocks,
    /// Consoles, serial lines and other devices. Without O_NONBLOCK, poll(2) is called first.
    PollFirst,
    /// Regular files, directories, block devices: a call may take long, and never fails with "would block".
    File,
    /// A regular file in memory (tmpfs): read(2) and write(2) never block.
    MemoryFile,
    /// A pipe that is most likely not in packet mode: a short count said that it was empty, and the next call found it
    /// empty. If it is in packet mode after all, the reactor learns that, as with sockets.
    StreamPipe,
    /// A Unix stream socket: as TCP, but recvmsg(2), which tells when a read ended behind a passed descriptor.
    UnixSocket,
    /// A pseudo-terminal: read like other devices, and written through an open file description of its own.
    Terminal,
}

impl DescriptorKind {
    const ALL: [Self; 10] = [
        Self::StreamSocket,
        Self::OtherSocket,
        Self::Pipe,
        Self::NeverBlocks,
        Self::PollFirst,
        Self::File,
        Self::MemoryFile,
        Self::StreamPipe,
        Self::UnixSocket,
        Self::Terminal,
    ];

    /// The inverse of [`DescriptorKind::bits`]; only the lowest four bits count.
    pub fn from_bits(bits: u64) -> Self {
        let known = Self::ALL.get((bits & 15) as usize);
        known.copied().unwrap_or(Self::PollFirst)
    }

    /// The kind in four bits.
    pub fn bits(self) -> u64 {
        self as u64
    }

    /// Whether read(2) and write(2) are quick and never block.
    pub fn never_blocks(self) -> bool {
        matches!(self, Self::NeverBlocks | Self::MemoryFile)
    }

    /// Whether a short count means that the kernel has no more.
    pub fn short_means_drained(self) -> bool {
        self.is_stream_socket() || self.is_pipe()
    }

    pub fn is_stream_socket(self) -> bool {
        matches!(self, Self::StreamSocket | Self::UnixSocket)
    }

    pub fn is_socket(self) -> bool {
        self.is_stream_socket() || self == Self::OtherSocket
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
            assert_eq!(DescriptorKind::from_bits(kind.bits() | 1 << 4), kind);
        }
    }
}
