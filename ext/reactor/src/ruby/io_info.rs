//! An IO object as the scheduler sees it: its descriptor, the kind of file, and a number that distinguishes it from other
//! objects with the same descriptor.

use std::sync::OnceLock;

use magnus::{Error, Ruby, Value, prelude::*, value::Opaque};
use reactor::OwnerId;
use reactor_scheduler::system::{
    descriptor::Descriptor,
    kind::{DescriptorKind, detect},
};

use crate::ruby::{
    hidden_ivar,
    io::{self, RealIo},
    io_number_table,
    object::is_kind_of,
    platform,
};

/// An IO object, with the facts that hooks need about it.
pub struct IoInfo {
    pub io: RealIo,
    pub descriptor: Descriptor,
    pub owner_id: OwnerId,
    pub kind: DescriptorKind,
    /// The IO is an object of one of Ruby's socket classes. Hooks called for it may park.
    pub is_ruby_socket: bool,
}

impl IoInfo {
    /// IOError if it is closed, TypeError if it is no IO.
    pub fn new(object: Value) -> Result<Self, Error> {
        let io = io::real_io(object)?;
        let descriptor = io.descriptor()?;
        let known = io_number_table::known(io.value(), descriptor);
        let packed = known.unwrap_or_else(|| give(io, descriptor));
        Ok(Self {
            io,
            descriptor,
            owner_id: OwnerId(io_number_in(packed)),
            kind: DescriptorKind::from_bits(packed),
            is_ruby_socket: packed & 16 != 0,
        })
    }

    /// The descriptor as the reactor knows it.
    pub fn polled(&self) -> reactor::Descriptor {
        self.kind.polled(self.descriptor)
    }

    /// Whether its transfers never wait for readiness: a regular file, or a kind that never blocks
    /// (`transfer/file.rs`).
    pub fn is_file(&self) -> bool {
        self.kind == DescriptorKind::File || self.kind.never_blocks()
    }

    /// The number by which the state knows the IO; 0 for a frozen IO, because that has none.
    pub fn io_number(&self) -> u64 {
        self.owner_id.0
    }

    /// The descriptor as the reactor knows it, and the io number; `None` if the IO is closed or no scheduler has seen it.
    pub fn polled_of(io: RealIo) -> Option<(reactor::Descriptor, u64)> {
        if io.is_closed() {
            return None;
        }
        let descriptor = io.descriptor().ok()?;
        let packed = io_number_table::known(io.value(), descriptor)?;
        let polled = DescriptorKind::from_bits(packed).polled(descriptor);
        Some((polled, io_number_in(packed)))
    }

    /// Queries the file again, because IO#reopen has given the object another file. The io number stays, because waits
    /// have begun under it.
    pub fn refresh(io: RealIo) {
        if let (Some((_, io_number)), Ok(descriptor)) = (Self::polled_of(io), io.descriptor()) {
            let (packed, inode) = ask(io_number, io, descriptor);
            io_number_table::set(io.value(), descriptor, packed, inode);
        }
    }

    /// Records that the pipe is not in packet mode.
    pub fn note_stream_pipe(&self) {
        if !self.io.value().is_frozen() {
            let kind = DescriptorKind::StreamPipe;
            let packed = pack(self.io_number(), self.is_ruby_socket, kind);
            io_number_table::set(self.io.value(), self.descriptor, packed, None);
        }
    }

    /// Removes the object's number if the descriptor is no longer of the cached kind, because of IO#reopen or dup2(2).
    pub fn recheck_kind(&self) {
        let kind = DescriptorKind::of(self.descriptor);
        let is_other = kind != self.kind && !(kind.is_pipe() && self.kind.is_pipe());
        if is_other {
            io_number_table::release(self.io.value(), self.descriptor);
        }
    }
}

/// Gives the IO a number, unless it is frozen. Returns it packed.
fn give(io: RealIo, descriptor: Descriptor) -> u64 {
    if io.value().is_frozen() {
        return ask(0, io, descriptor).0;
    }
    let (packed, inode) = ask(hidden_ivar::next_serial(), io, descriptor);
    io_number_table::set(io.value(), descriptor, packed, inode);
    packed
}

/// Queries the kernel for the kind of file behind the descriptor. Returns it packed with the io number, and the inode.
fn ask(io_number: u64, io: RealIo, descriptor: Descriptor) -> (u64, Option<u64>) {
    let (kind, inode) = detect(descriptor);
    if kind.is_socket() {
        platform::make_nonblocking(descriptor);
    }
    (pack(io_number, is_socket(io.value()), kind), inode)
}

/// The number that the IO stores: its io number, one bit for Ruby's socket classes, and four bits for the kind.
fn pack(io_number: u64, is_ruby_socket: bool, kind: DescriptorKind) -> u64 {
    io_number << 5 | u64::from(is_ruby_socket) << 4 | kind.bits()
}

fn io_number_in(packed: u64) -> u64 {
    packed >> 5
}

fn is_socket(io: Value) -> bool {
    static SOCKET: OnceLock<Option<Opaque<Value>>> = OnceLock::new();
    let ruby = Ruby::get_with(io);
    let class = match SOCKET.get() {
        Some(class) => *class,
        None => {
            // Looked up until the socket library is loaded.
            let class = ruby
                .class_object()
                .const_get::<_, Value>("BasicSocket")
                .ok();
            match class {
                Some(class) => *SOCKET.get_or_init(|| Some(class.into())),
                None => None,
            }
        }
    };
    class.is_some_and(|class| is_kind_of(io, class))
}

/// `Reactor::Internal.io_number(io)`: the number with which an IO object appears in fiber rows; nil if no scheduler has
/// seen it.
pub fn io_number(io: Value) -> Option<u64> {
    let polled = io::real_io(io).ok().and_then(IoInfo::polled_of)?;
    Some(polled.1)
}
