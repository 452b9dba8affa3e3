//! Whether `io_read` or `io_write` may wait: it may if the method that called it waits.
//!
//! `read_nonblock` and its kin must not wait. On sockets of Ruby's own classes they never call the hooks, but recv and send
//! with MSG_DONTWAIT. On every other object they do call them.

use crate::ruby::{
    caller::{Callers, called_from},
    io_facts::IoFacts,
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

/// Whether the hook may wait, because the method that called it does.
#[inline(always)]
pub fn may_park(io: &IoFacts) -> bool {
    io.is_ruby_socket || io.kind.is_pipe() && WAITING.have_called()
}

/// Whether the method that called the hook waits by itself without a scheduler, and with one raises EAGAIN instead of calling
/// `io_wait`.
pub fn raises_eagain() -> bool {
    const WITH_OVERRIDES: usize = 4;
    called_from::<WITH_OVERRIDES>(&["sysread", "syswrite"])
}
