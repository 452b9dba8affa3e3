//! An IO object as the scheduler sees it: its descriptor, what is behind it, and the number by which it is told from
//! another object with the same descriptor.

use std::sync::OnceLock;

use magnus::{Error, Ruby, Value, prelude::*, value::Opaque};
use reactor::OwnerId;
use reactor_scheduler::system::kind::DescriptorKind;

use crate::ruby::{
    hidden_number,
    io::{self, RealIo},
    io_numbers_of_sockets,
    object::is_kind_of,
};

/// An IO object, and the facts about it that hooks decide by.
pub struct IoFacts {
    pub io: RealIo,
    pub descriptor: i32,
    pub owner_id: OwnerId,
    pub kind: DescriptorKind,
    /// An object of one of Ruby's socket classes: its hooks may park.
    pub is_ruby_socket: bool,
}

impl IoFacts {
    /// IOError if it is closed, TypeError if it is no IO.
    pub fn new(object: Value) -> Result<Self, Error> {
        let io = io::real_io(object)?;
        let descriptor = io.descriptor()?;
        let number = match io_numbers_of_sockets::known(io.value(), descriptor) {
            Some(number) => Some(number),
            None => number_given(io, descriptor),
        };
        let bits = number.unwrap_or_else(|| facts(0, io, descriptor));
        Ok(Self {
            io,
            descriptor,
            owner_id: OwnerId(number.map_or(0, Self::io_number_of)),
            kind: DescriptorKind::from_bits(bits),
            is_ruby_socket: bits & 8 != 0,
        })
    }

    /// Whether its transfers never wait for readiness: a regular file, or a kind that never blocks (`transfer/file_transfer`).
    pub fn is_file(&self) -> bool {
        self.kind == DescriptorKind::File || self.kind.never_blocks()
    }

    /// The number under which the state knows it.
    pub fn number(&self) -> u64 {
        self.owner_id.0
    }

    /// The number under which the state knows this IO; `None` if no scheduler has seen it.
    pub fn number_of(io: RealIo) -> Option<u64> {
        known(io).map(Self::io_number_of)
    }

    /// The serial in a number.
    fn io_number_of(number: u64) -> u64 {
        number >> 4
    }

    /// The object has another file than before (IO#reopen): what its number says of the file is asked again. Its serial
    /// stays, because waits have begun under it.
    pub fn refresh(io: RealIo) {
        if let (Some(number), Ok(descriptor)) = (known(io), io.descriptor()) {
            set(
                io,
                descriptor,
                facts(Self::io_number_of(number), io, descriptor),
            );
        }
    }

    /// The pipe keeps no packets.
    pub fn note_stream_pipe(&self) {
        if known(self.io).is_some() && !self.io.value().is_frozen() {
            let kind = DescriptorKind::StreamPipe;
            let number = number(self.number(), self.is_ruby_socket, kind);
            set(self.io, self.descriptor, number);
        }
    }

    /// Clears its number if the descriptor is of another kind than remembered, because of IO#reopen or dup2(2).
    pub fn recheck_kind(&self) {
        let kind = DescriptorKind::of(self.descriptor);
        if kind != self.kind && !(kind.is_pipe() && self.kind.is_pipe()) {
            self.clear_number();
        }
    }

    fn clear_number(&self) {
        if !io_numbers_of_sockets::release(self.io.value(), self.descriptor) {
            hidden_number::clear(self.io.value());
        }
    }
}

/// The number of an object without an entry in the table of sockets.
#[inline(never)]
fn number_given(io: RealIo, descriptor: i32) -> Option<u64> {
    if let Some(number) = hidden_number::known(io.value()) {
        return Some(number);
    }
    if is_socket(io.value()) && !io.value().is_frozen() {
        let number = facts(hidden_number::next_serial(), io, descriptor);
        if io_numbers_of_sockets::give(io.value(), descriptor, number) {
            return Some(number);
        }
    }
    hidden_number::given(io.value(), |serial| facts(serial, io, descriptor))
}

/// The number that an IO has been given, if it has.
fn known(io: RealIo) -> Option<u64> {
    number_of_socket(io).or_else(|| hidden_number::known(io.value()))
}

fn number_of_socket(io: RealIo) -> Option<u64> {
    if !io_numbers_of_sockets::may_have(io.value()) || io.is_closed() {
        return None;
    }
    io_numbers_of_sockets::known(io.value(), io.descriptor().ok()?)
}

fn set(io: RealIo, descriptor: i32, number: u64) {
    if !io_numbers_of_sockets::replace(io.value(), descriptor, number) {
        hidden_number::set(io.value(), number);
    }
}

/// A number: a serial, one bit for Ruby's socket classes, three for the kind.
fn facts(serial: u64, io: RealIo, descriptor: i32) -> u64 {
    number(
        serial,
        is_socket(io.value()),
        DescriptorKind::of(descriptor),
    )
}

fn number(serial: u64, is_ruby_socket: bool, kind: DescriptorKind) -> u64 {
    serial << 4 | u64::from(is_ruby_socket) << 3 | kind.bits()
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

/// `Reactor.io_number(io)`: the number under which an IO object appears in the rows of fibers; nil if no scheduler has
/// seen it.
pub fn io_number(io: Value) -> Option<u64> {
    io::real_io(io).ok().and_then(IoFacts::number_of)
}
