//! Whether `io_read` or `io_write` may wait: it may if the method that called it waits.
//!
//! `read_nonblock` and its kin must not wait. On sockets of Ruby's own classes they never call the hooks, but recv and send
//! with MSG_DONTWAIT. On every other object they do call them.

use reactor_scheduler::system::kind::DescriptorKind;

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        caller::{Callers, called_from},
        io_facts::IoFacts,
    },
    transfer::{attempt::is_drained, request::Direction},
};

/// Methods of IO that wait for a pipe, and are written in C. `IO#read_nonblock` and `IO#write_nonblock` are written in Ruby.
static WAITING: Callers = Callers::new(&[
    ("IO", "readpartial"),
    ("IO", "gets"),
    ("IO", "read"),
    ("IO", "getc"),
    ("IO", "getbyte"),
    ("IO", "readchar"),
    ("IO", "readbyte"),
    ("IO", "readlines"),
    ("IO", "each_line"),
    ("IO", "each"),
    ("IO", "each_char"),
    ("IO", "each_byte"),
    ("IO", "eof?"),
    ("IO", "eof"),
    ("IO", "sysread"),
    ("IO", "write"),
    ("IO", "syswrite"),
    ("IO", "print"),
    ("IO", "puts"),
    ("IO", "<<"),
    ("IO", "flush"),
]);

/// Whether the hook may wait, because the method that called it does. The VM is asked once for a transfer.
#[derive(Default)]
pub struct MayPark(Option<bool>);

impl MayPark {
    pub fn ask(&mut self, io: &IoFacts) -> bool {
        io.is_ruby_socket
            || io.kind.is_pipe() && *self.0.get_or_insert_with(|| WAITING.have_called())
    }
}

/// Whether the call would block, and may wait for that in this hook.
pub fn is_known_to_block(
    scheduler: &Scheduler,
    io: &IoFacts,
    direction: Direction,
    may_park: &mut MayPark,
) -> bool {
    (io.is_ruby_socket || io.kind == DescriptorKind::StreamPipe)
        && is_drained(scheduler, io, direction)
        && may_park.ask(io)
}

/// Whether the method that called the hook waits by itself without a scheduler, and with one raises EAGAIN instead of calling
/// `io_wait`.
pub fn raises_eagain() -> bool {
    const WITH_OVERRIDES: usize = 4;
    called_from::<WITH_OVERRIDES>(&["sysread", "syswrite"])
}
