//! Which method called the running hook, and everything that depends on it. Ruby code that depends on the VM's texts is
//! in `lib/reactor/vm.rb`, and code that depends on an IO::Buffer's description is in `ruby/buffer.rs`.
//!
//! A program may give a method of its own any name. So a method is known by its class and its name, and only if it is
//! Ruby's own: written in C, or in a file of the VM. What another method calls does what is safe:
//! it waits for nothing that Ruby would not wait for.
//! `tests/ruby/test_vm_facts.rb` checks that the methods are still there.

use std::{
    ffi::c_int,
    ptr,
    sync::atomic::{AtomicUsize, Ordering},
};

use magnus::{RArray, RString, TryConvert, Value, prelude::*, rb_sys::FromRawValue};
use rb_sys::VALUE;

use crate::ruby::{call::call_method, error::ruby, object::Object, thread::current_scheduler};

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

/// `io_read_memory` and `io_write_memory` call `io_read` and `io_write` for these methods, which wait until the descriptor
/// is ready, and for others that must not wait: `IO#read_nonblock`, `IO#write_nonblock`, `IO::Buffer#read`. The hook is not
/// told which of them called. `IO#puts` and similar write through `IO#write`. All known Rubies.
///
/// Two of these depend on the hook. `rb_io_sysread` and `rb_io_syswrite` raise EAGAIN instead of calling `io_wait`,
/// although without a scheduler they do wait. The others call `io_wait` and then the hook again. In Ruby 3.3,
/// `rb_io_maybe_wait` passes the false of `io_wait`, "timed out", to these methods, which attempt the transfer and take it
/// for Errno::EAGAIN.
pub static WAITING: Callers = Callers::new(&[
    ("IO", "readpartial"),
    ("IO", "gets"),
    ("IO", "read"),
    ("IO", "getc"),
    ("IO", "getbyte"),
    ("IO", "readchar"),
    ("IO", "readbyte"),
    ("IO", "readline"),
    ("IO", "readlines"),
    ("IO", "each_line"),
    ("IO", "each"),
    ("IO", "each_char"),
    ("IO", "each_byte"),
    ("IO", "each_codepoint"),
    ("IO", "eof?"),
    ("IO", "eof"),
    ("IO", "sysread"),
    ("IO", "write"),
    ("IO", "syswrite"),
    ("IO", "flush"),
    ("Kernel", "gets"),
    ("Kernel", "readline"),
    ("Kernel", "readlines"),
]);

/// `rb_thread_fd_close` and its successor make these methods wait, in `block` or `kernel_sleep`, until the other threads
/// that use the descriptor are done with it. An exception must not end that wait. Up to Ruby 3.4 the list of these threads
/// is on the method's stack, and the VM would use the list after the method has left. In 4.0 the fiber would keep the mutex
/// that these threads need. All known Rubies.
pub static CLOSING: Callers = Callers::new(&[
    ("IO", "close"),
    ("IO", "close_read"),
    ("IO", "close_write"),
    ("IO", "reopen"),
    ("BasicSocket", "close_read"),
    ("BasicSocket", "close_write"),
]);

/// These methods wait in `kernel_sleep`, like `Kernel#sleep`, but for another thread. Then they call `block` to lock the
/// mutex again, however their `kernel_sleep` ended. Without a scheduler nothing interrupts that
/// (`mutex_lock_uninterruptible`). With one, an exception would leave the method without the lock: the critical section's
/// clauses would run unlocked, and its unlock would raise ThreadError instead. If an exception ended the `kernel_sleep`, its
/// frame is still there. All known Rubies; in 4.0 `Mutex#sleep` has no frame of its own in a `wait`.
pub static CONDITION_WAITS: Callers = Callers::new(&[
    ("Thread::Mutex", "sleep"),
    ("Thread::ConditionVariable", "wait"),
]);

/// `rb_nogvl` passes the operations of this method and of [`CLOSING`] to `blocking_operation_wait` like any other, but a worker
/// must not run them: the hook says why. All known Rubies from 3.4 on; 3.3 has no such hook.
pub static COPYING: Callers = Callers::new(&[("IO", "copy_stream")]);

/// These methods pass open(2) to `blocking_operation_wait`, which does not say what they open: perhaps a FIFO, which waits for
/// its other end. (Patches find out before the other methods that open files: `lib/reactor/patches/file.rb`.) From 3.4 on.
pub static OPENING: Callers = Callers::new(&[
    ("IO", "foreach"),
    ("Zlib::GzipReader", "open"),
    ("Zlib::GzipWriter", "open"),
]);

/// Whether no exception may end the wait of the running hook, `block` or `kernel_sleep`: it was called by an IO method that
/// closes a descriptor, or to lock a mutex again ([`CONDITION_WAITS`]).
#[cold]
pub fn is_uninterruptible() -> bool {
    let frames = Frames::innermost();
    let is_block = frames
        .hook()
        .is_some_and(|hook| hook.name().bytes() == b"block");
    let caller = frames.caller(&["block", "kernel_sleep"]);
    caller.is_some_and(|caller| {
        CLOSING.include(&caller) || is_block && CONDITION_WAITS.include(&caller)
    })
}

/// Methods of Ruby's own: class name and method name.
pub struct Callers {
    names: &'static [(&'static str, &'static str)],
    /// The callers seen so far, by address, with the lowest bit set for one of these methods. They are kept alive, so that
    /// no address is reused.
    seen: [AtomicUsize; 16],
}

impl Callers {
    pub const fn new(names: &'static [(&'static str, &'static str)]) -> Self {
        Self {
            names,
            seen: [const { AtomicUsize::new(0) }; 16],
        }
    }

    /// Whether one of these methods called the running hook, or a plain override of it. An override itself is never among
    /// those seen.
    pub fn have_called(&self) -> bool {
        let [_, caller] = innermost_codes();
        self.known(caller)
            .unwrap_or_else(|| self.has_unknown_called())
    }

    #[cold]
    fn has_unknown_called(&self) -> bool {
        if let Some(caller) = Caller::native() {
            return self.include(&caller);
        }
        let [_, _, callers_caller] = innermost_codes();
        self.known(callers_caller) == Some(true)
            || Caller::beyond_overrides().is_some_and(|caller| self.include(&caller))
    }

    pub fn include(&self, caller: &Caller) -> bool {
        let known = self.known(caller.code());
        known.unwrap_or_else(|| self.learn(caller))
    }

    /// What was learned about this caller.
    fn known(&self, code: usize) -> Option<bool> {
        let mut seen = self.seen.iter().map(|place| place.load(Ordering::Relaxed));
        seen.find(|entry| code != 0 && entry & !1 == code)
            .map(|entry| entry & 1 == 1)
    }

    #[cold]
    fn learn(&self, caller: &Caller) -> bool {
        let named = self.name(caller);
        let is_free = |place: &&AtomicUsize| place.load(Ordering::Relaxed) == 0;
        let Some(place) = self.seen.iter().find(is_free) else {
            return named;
        };
        // SAFETY: the code that runs in a frame. From here on it is never collected.
        unsafe { rb_sys::rb_gc_register_mark_object(caller.frame.code) };
        let entry = caller.code() | usize::from(named);
        // If another Ractor has taken this place first, the caller gets the next place when it is seen again.
        _ = place.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed);
        named
    }

    #[cold]
    fn name(&self, caller: &Caller) -> bool {
        let frame = &caller.frame;
        let mut names = self.names.iter();
        let (class, method) = (frame.class(), frame.name());
        let given = (class.bytes(), method.bytes());
        frame.is_of_vm() && names.any(|(class, name)| given == (class.as_bytes(), name.as_bytes()))
    }
}

/// What the innermost frames run, the hook first; 0 beyond the outermost.
#[inline(always)]
fn innermost_codes<const COUNT: usize>() -> [usize; COUNT] {
    let mut codes = [0; COUNT];
    // SAFETY: it has space for that many frames. Line numbers are not asked for: the VM searches them.
    unsafe {
        rb_sys::rb_profile_frames(0, COUNT as c_int, codes.as_mut_ptr(), ptr::null_mut());
    }
    codes.map(|code: VALUE| code as usize)
}

/// The number of innermost frames among which a caller beyond overrides of a hook is searched.
const WITH_OVERRIDES: usize = 64;

/// The method that called the running hook: the innermost frame that runs neither the hook nor an override of it.
pub struct Caller {
    frame: Frame,
    /// Whether it called a subclass's override, and the override called the hook.
    pub is_override: bool,
}

impl Caller {
    /// `None` if that frame is too far away.
    pub fn of_hook() -> Option<Self> {
        Self::native().or_else(Self::beyond_overrides)
    }

    /// The next frame, if that method is written in C. Only Ruby code overrides.
    fn native() -> Option<Self> {
        let (mut codes, mut lines) = ([0; 2], [0; 2]);
        // SAFETY: both have space for two frames, the first of which is the hook's own.
        let found =
            unsafe { rb_sys::rb_profile_frames(0, 2, codes.as_mut_ptr(), lines.as_mut_ptr()) };
        let frame = Frame {
            code: codes[1],
            line: lines[1],
        };
        (found == 2 && frame.is_native()).then_some(Self {
            frame,
            is_override: false,
        })
    }

    #[cold]
    fn beyond_overrides() -> Option<Self> {
        let frames = Frames::innermost();
        let hook = frames.hook()?.name();
        let hook = std::str::from_utf8(hook.bytes()).ok()?.to_owned();
        frames.caller(&[&hook])
    }

    /// The address of the code that runs there.
    pub fn code(&self) -> usize {
        self.frame.code as usize
    }

    /// Whether it is written in C.
    pub fn is_native(&self) -> bool {
        self.frame.is_native()
    }
}

/// The innermost frames of the current thread. The first is the running hook's own.
struct Frames {
    codes: [VALUE; WITH_OVERRIDES],
    lines: [c_int; WITH_OVERRIDES],
    count: usize,
}

impl Frames {
    fn innermost() -> Self {
        let (mut codes, mut lines) = ([0; WITH_OVERRIDES], [0; WITH_OVERRIDES]);
        let room = WITH_OVERRIDES as c_int;
        // SAFETY: both have space for that many frames.
        let count =
            unsafe { rb_sys::rb_profile_frames(0, room, codes.as_mut_ptr(), lines.as_mut_ptr()) };
        let count = usize::try_from(count).unwrap_or(0);
        Self {
            codes,
            lines,
            count,
        }
    }

    fn get(&self, distance: usize) -> Option<Frame> {
        (distance < self.count).then(|| Frame {
            code: self.codes[distance],
            line: self.lines[distance],
        })
    }

    fn hook(&self) -> Option<Frame> {
        self.get(0)
    }

    /// The method of the VM that called the running hook: one of `hooks`, whose own frames are skipped.
    ///
    /// If Ruby code called it, that is an override. It may have come to `super` by other methods, so all frames up to the
    /// outermost override's are skipped. While an override waits before its `super`, that is the caller of another hook.
    fn caller(&self, hooks: &[&str]) -> Option<Caller> {
        let is_hook = |frame: &Frame| {
            frame.is_native()
                && hooks
                    .iter()
                    .any(|name| frame.name().bytes() == name.as_bytes())
        };
        let frames =
            || (1..self.count).filter_map(|distance| Some((distance, self.get(distance)?)));
        let (mut distance, frame) = frames().find(|(_, frame)| !is_hook(frame))?;
        if !frame.is_of_vm() {
            let places = overrides(hooks);
            let outermost = frames()
                .rev()
                .find(|(_, frame)| is_hook(frame) || places.iter().any(|place| frame.is_at(place)));
            distance = outermost.map_or(distance, |(last, _)| last + 1);
        }
        Some(Caller {
            frame: self.get(distance)?,
            is_override: distance > 1,
        })
    }
}

/// The path and the first line of each method that overrides one of these hooks of the current scheduler. Calls only methods
/// written in C, after which no interrupt is handled.
fn overrides(hooks: &[&str]) -> Vec<(String, i64)> {
    let mut places = Vec::new();
    for hook in hooks {
        let name = ruby().str_new(hook).as_value();
        let mut method = call_method(current_scheduler().value(), "method", &[name]);
        while let Ok(found) = method {
            let place = call_method(found, "source_location", &[]);
            let Some(place) = place.ok().and_then(RArray::from_value) else {
                break; // written in C: the hook itself
            };
            places.extend(place.entry(0).ok().zip(place.entry(1).ok()));
            method = call_method(found, "super_method", &[]);
        }
    }
    places
}

/// The code run by a frame, and its line number.
struct Frame {
    code: VALUE,
    line: c_int,
}

impl Frame {
    fn is_native(&self) -> bool {
        self.line == 0 // only Ruby code has line numbers
    }

    /// Whether it runs the method that is defined at this place, or a block in it.
    fn is_at(&self, (path, line): &(String, i64)) -> bool {
        // SAFETY: a frame just captured, and still on this stack; a String or nil, and an Integer or nil.
        let (own, first) = unsafe {
            (
                Text::new(rb_sys::rb_profile_frame_path(self.code)),
                Value::from_raw(rb_sys::rb_profile_frame_first_lineno(self.code)),
            )
        };
        own.bytes() == path.as_bytes() && i64::try_convert(first).ok() == Some(*line)
    }

    /// Whether the code is Ruby's own: written in C, or in a file that is built into the VM.
    fn is_of_vm(&self) -> bool {
        // SAFETY: a frame just captured, and still on this stack; the path is nil or a String.
        let path = unsafe { Text::new(rb_sys::rb_profile_frame_path(self.code)) };
        self.is_native() || path.bytes().starts_with(b"<internal:")
    }

    /// The name under which the method was defined.
    fn name(&self) -> Text {
        // SAFETY: as above.
        unsafe { Text::new(rb_sys::rb_profile_frame_method_name(self.code)) }
    }

    /// The name of the class, or of the object whose singleton method it is.
    fn class(&self) -> Text {
        // SAFETY: as above. The String may be new; it is on this stack.
        unsafe { Text::new(rb_sys::rb_profile_frame_classpath(self.code)) }
    }
}

/// A String, or nil.
struct Text(Option<RString>);

impl Text {
    /// # Safety
    ///
    /// A live object.
    unsafe fn new(object: VALUE) -> Self {
        // SAFETY: guaranteed by the caller.
        Self(RString::from_value(unsafe { Value::from_raw(object) }))
    }

    /// Empty for nil. To be compared at once, with no Ruby call in between.
    fn bytes(&self) -> &[u8] {
        // SAFETY: a live String; see above.
        let bytes = self.0.as_ref().map(|string| unsafe { string.as_slice() });
        bytes.unwrap_or_default()
    }
}
