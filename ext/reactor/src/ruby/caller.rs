//! Which method called the running hook, and everything that depends on the method's name. Ruby code that depends on
//! such strings is in `lib/reactor/vm.rb`, and code that depends on an IO::Buffer's description is in `ruby/buffer.rs`.
//! `tests/ruby/test_vm_facts.rb` checks that the strings are still the same.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicUsize, Ordering},
};

use magnus::{RString, Value, rb_sys::FromRawValue};
use rb_sys::VALUE;

/// `rsock_s_recvfrom`, `rsock_s_accept` and similar call `io_wait` for readability, for these methods, only after the
/// kernel returned EAGAIN. The VM does not tell the hook about the EAGAIN; without the method's name, the wait needs a
/// system call to find out again. All known Rubies.
pub static CALLERS_AFTER_EAGAIN: Callers = Callers::new(&[
    ("BasicSocket", "recv"),
    ("BasicSocket", "__recvmsg"),
    ("IPSocket", "recvfrom"),
    ("UNIXSocket", "recvfrom"),
    ("Socket", "recvfrom"),
    ("TCPServer", "accept"),
    ("TCPServer", "sysaccept"),
    ("UNIXServer", "accept"),
    ("UNIXServer", "sysaccept"),
    ("Socket", "accept"),
    ("Socket", "sysaccept"),
    ("OpenSSL::SSL::SSLSocket", "sysread"),
    ("OpenSSL::SSL::SSLSocket", "accept"),
]);

/// `io_read_memory` and `io_write_memory` call `io_read` and `io_write` for these methods, which wait until a pipe is
/// ready, and for `IO#read_nonblock` and `IO#write_nonblock`, which must not wait and are written in Ruby. The hook is
/// not told which of these methods called. `IO#puts` and similar write through `IO#write`. All known Rubies.
pub static WAITING: Callers = Callers::new(&[
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
    ("IO", "flush"),
]);

/// `rb_io_sysread` and `rb_io_syswrite` make one attempt through `io_read` or `io_write` and raise EAGAIN instead of
/// calling `io_wait`, although without a scheduler they do wait. Only their names distinguish them from
/// `read_nonblock`. All known Rubies.
pub const RAISING_EAGAIN: [&str; 2] = ["sysread", "syswrite"];

/// In Ruby 3.3, `rb_io_maybe_wait` passes the false of `io_wait`, "timed out", to these methods, which attempt the
/// transfer and take it for Errno::EAGAIN. Methods that only wait do expect false. Not needed from Ruby 3.4 on: the VM
/// raises IO::TimeoutError.
pub const TIMED_OUT: [&str; 20] = [
    "read",
    "readpartial",
    "gets",
    "getc",
    "getbyte",
    "readline",
    "readlines",
    "readchar",
    "readbyte",
    "each_line",
    "each",
    "each_byte",
    "each_char",
    "each_codepoint",
    "eof",
    "eof?",
    "write",
    "flush",
    "sysread",
    "syswrite",
];

/// `rb_thread_fd_close` and its successor make these methods wait, in one of [`HOOKS_OF_CLOSE`], until the other
/// threads that use the descriptor are done with it. An exception must not end that wait. Up to Ruby 3.4 the list of
/// these threads is on the method's stack, and the VM would use the list after the method has left. In 4.0 the fiber
/// would keep the mutex that these threads need. All known Rubies.
const CLOSING: [&str; 4] = ["close", "close_read", "close_write", "reopen"];
const HOOKS_OF_CLOSE: [&str; 2] = ["block", "kernel_sleep"];

/// `Mutex#sleep`, and so `ConditionVariable#wait`, calls `block` to lock the mutex again, however its `kernel_sleep` ended.
/// Without a scheduler nothing interrupts that (`mutex_lock_uninterruptible`). With one, an exception would leave the method
/// without the lock: the critical section's clauses would run unlocked, and its unlock would raise ThreadError instead. If an
/// exception ended the `kernel_sleep`, its frame is still there. All known Rubies; in 4.0 `Mutex#sleep` has no frame of its own in a `wait`.
const LOCKING_AGAIN: [&str; 2] = ["sleep", "wait"];

/// `rb_nogvl` passes the operations of these methods to `blocking_operation_wait` like any other, but a worker must not run
/// them: the hook says why. All known Rubies from 3.4 on; 3.3 has no such hook.
pub const LEFT_TO_VM: [&str; 2] = ["copy_stream", "close"];

/// These methods pass open(2) to `blocking_operation_wait`, which does not say what they open: perhaps a FIFO, which waits for
/// its other end. (Patches find out before the other methods that open files: `lib/reactor/patches/file.rb`.) From 3.4 on.
pub static OPENING: Callers = Callers::new(&[
    ("IO", "foreach"),
    ("Zlib::GzipReader", "open"),
    ("Zlib::GzipWriter", "open"),
]);

/// The most common of [`LEFT_TO_VM`].
pub static CLOSE: Callers = Callers::new(&[("IO", "close")]);

/// Whether one of these methods called the running hook: among the innermost DEPTH frames, the first of which is the hook's
/// own and the next perhaps a subclass's override of it.
pub fn called_from<const DEPTH: usize>(names: &[&str]) -> bool {
    frames::<DEPTH>().iter().any(|frame| frame.is_any_of(names))
}

/// Methods written in C that may have called the hook: class name and method name.
pub struct Callers {
    names: &'static [(&'static str, &'static str)],
    /// The callers seen so far, by address, with the lowest bit set for a caller with one of the names. They are kept
    /// alive, so that no address is reused.
    seen: [AtomicUsize; 16],
}

impl Callers {
    pub const fn new(names: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            names,
            seen: [const { AtomicUsize::new(0) }; 16],
        }
    }

    /// Whether one of these methods called the running hook directly.
    pub fn have_called(&self) -> bool {
        const OWN_AND_CALLER: usize = 2;
        let (mut frames, mut lines) = ([0; OWN_AND_CALLER], [0; OWN_AND_CALLER]);
        let room = OWN_AND_CALLER as c_int;
        // SAFETY: both have space for that many frames.
        let found =
            unsafe { rb_sys::rb_profile_frames(0, room, frames.as_mut_ptr(), lines.as_mut_ptr()) };
        if found < room || lines[1] != 0 {
            return false; // only Ruby code has line numbers
        }
        let caller = frames[1] as usize;
        for place in &self.seen {
            match place.load(Ordering::Relaxed) {
                0 => return self.learn(place, frames[1]),
                known if known & !1 == caller => return known & 1 == 1,
                _ => {}
            }
        }
        self.name(frames[1])
    }

    #[cold]
    fn learn(&self, place: &AtomicUsize, caller: VALUE) -> bool {
        let named = self.name(caller);
        // SAFETY: the code that runs in a frame. From here on it is never collected.
        unsafe { rb_sys::rb_gc_register_mark_object(caller) };
        let entry = caller as usize | usize::from(named);
        // If another Ractor has taken this place first, the caller gets the next place when it is seen again.
        _ = place.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed);
        named
    }

    #[cold]
    fn name(&self, caller: VALUE) -> bool {
        // SAFETY: the frame was just captured. Naming the class may allocate, but the frame is on this stack, so it is
        // neither collected nor moved. The names are nil or Strings.
        let (class, name) = unsafe {
            let class = rb_sys::rb_profile_frame_classpath(caller);
            let name = rb_sys::rb_profile_frame_method_name(caller);
            (Value::from_raw(class), Value::from_raw(name))
        };
        let (Some(class), Some(name)) = (RString::from_value(class), RString::from_value(name))
        else {
            return false;
        };
        // SAFETY: compared at once, with no Ruby call in between.
        let given = unsafe { (class.as_slice(), name.as_slice()) };
        let mut names = self.names.iter();
        names.any(|(class, name)| given == (class.as_bytes(), name.as_bytes()))
    }
}

/// The method that called a hook.
pub struct Caller {
    /// The address of the code that runs there.
    pub code: usize,
    /// Whether it is one of the named methods.
    pub is_named: bool,
    /// Whether it is written in C.
    pub is_native: bool,
    /// Whether it called a subclass's override, and the override called the hook.
    pub is_override: bool,
}

/// The innermost frame that runs neither this hook nor an override of it, and whether it runs a `named` method.
pub fn caller_beyond<const DEPTH: usize>(hook: &str, named: &[&str]) -> Option<Caller> {
    let frames = frames::<DEPTH>();
    let distance = frames.iter().position(|frame| !frame.is_any_of(&[hook]))?;
    let frame = &frames[distance];
    Some(Caller {
        code: frame.0 as usize,
        is_named: frame.is_any_of(named),
        is_native: frame.is_native(),
        is_override: distance > 1,
    })
}

/// Whether no exception may end the wait of the running hook, `block` or `kernel_sleep`: it was called by an IO method that
/// closes a descriptor ([`CLOSING`]), or to lock a mutex again ([`LOCKING_AGAIN`]).
#[cold]
pub fn is_uninterruptible() -> bool {
    const WITH_OVERRIDES: usize = 4;
    let closes = |hook: &&str| {
        let caller = caller_beyond::<WITH_OVERRIDES>(hook, &CLOSING);
        caller.is_some_and(|caller| caller.is_named)
    };
    HOOKS_OF_CLOSE.iter().any(closes) || locks_again()
}

fn locks_again() -> bool {
    const WITH_OVERRIDES: usize = 6;
    let frames = frames::<WITH_OVERRIDES>();
    let is_block = frames
        .first()
        .is_some_and(|frame| frame.is_any_of(&["block"]));
    let mut callers = frames
        .iter()
        .filter(|frame| !frame.is_any_of(&HOOKS_OF_CLOSE));
    is_block
        && callers
            .next()
            .is_some_and(|caller| caller.is_any_of(&LOCKING_AGAIN))
}

/// The code run by a frame of the current thread, and its line number.
struct Frame(VALUE, c_int);

impl Frame {
    fn is_native(&self) -> bool {
        self.1 == 0 // only Ruby code has line numbers
    }

    fn is_any_of(&self, names: &[&str]) -> bool {
        // SAFETY: a frame just captured, and still there, because nothing is allocated meanwhile; the name is nil or a
        // String.
        let name = unsafe { Value::from_raw(rb_sys::rb_profile_frame_method_name(self.0)) };
        RString::from_value(name).is_some_and(|name| {
            // SAFETY: compared at once, with no Ruby call in between.
            let name = unsafe { name.as_slice() };
            names.iter().any(|wanted| wanted.as_bytes() == name)
        })
    }
}

/// The innermost DEPTH frames, or fewer if there are fewer.
fn frames<const DEPTH: usize>() -> Vec<Frame> {
    let (mut frames, mut lines): ([VALUE; DEPTH], [c_int; DEPTH]) = ([0; DEPTH], [0; DEPTH]);
    // SAFETY: both have space for DEPTH frames.
    let found = unsafe {
        rb_sys::rb_profile_frames(0, DEPTH as c_int, frames.as_mut_ptr(), lines.as_mut_ptr())
    };
    let found = usize::try_from(found).unwrap_or(0);
    let frames = frames[..found].iter().zip(&lines);
    frames.map(|(code, line)| Frame(*code, *line)).collect()
}
