//! Which method called the hook that is running, and all that depends on its name. `lib/reactor/vm.rb` has what depends on such
//! texts in Ruby code, and `ruby/buffer.rs` what depends on an IO::Buffer's description. `tests/ruby/test_vm_facts.rb` asks the VM
//! whether they are still true.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicUsize, Ordering},
};

use magnus::{RString, Value, rb_sys::FromRawValue};
use rb_sys::VALUE;

/// `rsock_s_recvfrom`, `rsock_s_accept` and their kin ask these methods' `io_wait` to be readable only when the kernel has just told
/// them EAGAIN. The VM does not hand the answer on; without the name, the wait costs a system call to find it again. All known Rubies.
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

/// `io_read_memory` and `io_write_memory` call `io_read` and `io_write` for these methods, which wait until a pipe is ready, and for
/// `IO#read_nonblock` and `IO#write_nonblock`, which must not wait and are written in Ruby. The hook is not told which.
/// `IO#puts` and its kin write by `IO#write`. All known Rubies.
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

/// `rb_io_sysread` and `rb_io_syswrite` make one attempt by `io_read` or `io_write`, and raise EAGAIN instead of calling `io_wait`, although
/// they wait without a scheduler. By name only they differ from `read_nonblock`. All known Rubies.
pub const RAISING_EAGAIN: [&str; 2] = ["sysread", "syswrite"];

/// `rb_io_maybe_wait` of Ruby 3.3 hands the false of `io_wait`, "time is up", to these methods, which transfer and take it for
/// Errno::EAGAIN. Methods that only wait want to be told false. Not needed from Ruby 3.4 on: the VM raises IO::TimeoutError.
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

/// `rb_thread_fd_close` and what replaced it let these methods wait, in one of [`HOOKS_OF_CLOSE`], until the other threads that use the
/// descriptor have left it. An exception must not end that wait. Up to Ruby 3.4 these threads are in a list on the stack of the
/// method, which the VM would go on to use. In 4.0 the fiber would keep the mutex that they need to leave. All known Rubies.
const CLOSING: [&str; 4] = ["close", "close_read", "close_write", "reopen"];
const HOOKS_OF_CLOSE: [&str; 2] = ["block", "kernel_sleep"];

/// `rb_nogvl` hands the operations of these methods to `blocking_operation_wait` like any other, but a worker must not do them: the
/// hook says why. Ruby 3.4 and later, all known: 3.3 has no such hook.
pub const LEFT_TO_VM: [&str; 2] = ["copy_stream", "close"];

/// The most frequent one of them.
pub static CLOSE: Callers = Callers::new(&[("IO", "close")]);

/// Whether one of these methods called the hook that is running: among the innermost DEPTH frames, the hook's own being the
/// first, and a subclass's override of it perhaps the next.
pub fn called_from<const DEPTH: usize>(names: &[&str]) -> bool {
    frames::<DEPTH>().iter().any(|frame| frame.is_any_of(names))
}

/// Methods written in C that may have called the hook: the name of the class, and of the method.
pub struct Callers {
    names: &'static [(&'static str, &'static str)],
    /// The callers seen so far, by address, with 1 in the lowest bit for a named one. They are kept alive, so that no address is
    /// reused.
    seen: [AtomicUsize; 16],
}

impl Callers {
    pub const fn new(names: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            names,
            seen: [const { AtomicUsize::new(0) }; 16],
        }
    }

    /// Whether the hook that is running was called straight from one of them.
    pub fn have_called(&self) -> bool {
        const OWN_AND_CALLER: usize = 2;
        let (mut frames, mut lines) = ([0; OWN_AND_CALLER], [0; OWN_AND_CALLER]);
        let room = OWN_AND_CALLER as c_int;
        // SAFETY: both have room for that many frames.
        let found =
            unsafe { rb_sys::rb_profile_frames(0, room, frames.as_mut_ptr(), lines.as_mut_ptr()) };
        if found < room || lines[1] != 0 {
            return false; // only Ruby code has lines
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
        // SAFETY: what runs in a frame, and is never collected from here on.
        unsafe { rb_sys::rb_gc_register_mark_object(caller) };
        let entry = caller as usize | usize::from(named);
        // If another Ractor was quicker, it is learnt at the next place.
        _ = place.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed);
        named
    }

    #[cold]
    fn name(&self, caller: VALUE) -> bool {
        // SAFETY: a frame just taken. To name the class may allocate, but the frame lies on this stack, so it is neither collected nor
        // moved. The names are nil or a String.
        let (class, name) = unsafe {
            let class = rb_sys::rb_profile_frame_classpath(caller);
            let name = rb_sys::rb_profile_frame_method_name(caller);
            (Value::from_raw(class), Value::from_raw(name))
        };
        let (Some(class), Some(name)) = (RString::from_value(class), RString::from_value(name))
        else {
            return false;
        };
        // SAFETY: compared at once, no Ruby call in between.
        let given = unsafe { (class.as_slice(), name.as_slice()) };
        let mut names = self.names.iter();
        names.any(|(class, name)| given == (class.as_bytes(), name.as_bytes()))
    }
}

/// The method that called a hook.
pub struct Caller {
    /// The address of the code that runs there.
    pub code: usize,
    /// It is one of the named methods.
    pub is_named: bool,
    /// It is written in C.
    pub is_native: bool,
    /// It called a subclass's override, which called the hook.
    pub is_override: bool,
}

/// The innermost frame that does not run this hook or an override of it, and whether it runs a `named` method.
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

/// Whether the hook that is running, `block` or `kernel_sleep`, was called by a method of IO that closes a descriptor.
/// [`CLOSING`] says why an exception must not end that wait.
#[cold]
pub fn closes_io() -> bool {
    const WITH_OVERRIDES: usize = 4;
    HOOKS_OF_CLOSE.iter().any(|hook| {
        let caller = caller_beyond::<WITH_OVERRIDES>(hook, &CLOSING);
        caller.is_some_and(|caller| caller.is_named)
    })
}

/// The code that a frame of the current thread runs, and its line.
struct Frame(VALUE, c_int);

impl Frame {
    fn is_native(&self) -> bool {
        self.1 == 0 // only Ruby code has lines
    }

    fn is_any_of(&self, names: &[&str]) -> bool {
        // SAFETY: a frame just taken, and still there, because nothing is allocated meanwhile; the name is nil or a String.
        let name = unsafe { Value::from_raw(rb_sys::rb_profile_frame_method_name(self.0)) };
        RString::from_value(name).is_some_and(|name| {
            // SAFETY: compared at once, no Ruby call in between.
            let name = unsafe { name.as_slice() };
            names.iter().any(|wanted| wanted.as_bytes() == name)
        })
    }
}

/// The innermost DEPTH frames, fewer if there are no more.
fn frames<const DEPTH: usize>() -> Vec<Frame> {
    let (mut frames, mut lines): ([VALUE; DEPTH], [c_int; DEPTH]) = ([0; DEPTH], [0; DEPTH]);
    // SAFETY: room for DEPTH frames in both.
    let found = unsafe {
        rb_sys::rb_profile_frames(0, DEPTH as c_int, frames.as_mut_ptr(), lines.as_mut_ptr())
    };
    let found = usize::try_from(found).unwrap_or(0);
    let frames = frames[..found].iter().zip(&lines);
    frames.map(|(code, line)| Frame(*code, *line)).collect()
}
