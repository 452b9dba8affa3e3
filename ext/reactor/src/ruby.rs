//! The unsafe module: everything of Ruby's C API that magnus does not offer, behind safe signatures.
//!
//! Two invariants make these signatures safe, and every caller keeps them:
//!
//! * all of it runs on a Ruby thread that holds the GVL (the extension is only entered from Ruby methods), except the
//!   closure of [`without_gvl`], which gets nothing of Ruby;
//! * whatever may raise, throw or be killed runs inside `protect` and comes back as a [`magnus::Error`], so no longjmp
//!   ever crosses a Rust frame.
#![allow(unsafe_code)]

#[path = "ruby/buffer.rs"]
pub mod buffers;
#[path = "ruby/method.rs"]
pub mod methods;

use std::{
    ffi::{CStr, c_char, c_int, c_long, c_void},
    os::fd::{BorrowedFd, RawFd},
    ptr, slice,
    sync::{
        Once, OnceLock,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use magnus::{
    Error, Exception, Module, RClass, RString, Ruby, Value,
    gc::Marker,
    rb_sys::{AsRawId, AsRawValue, FromRawValue, protect},
    value::{Opaque, ReprValue},
};
use rb_sys::{ID, VALUE};
use reactor::{Handle, Sleep};

/// A Ruby object kept as a plain address. Whoever stores one marks it (marking pins), so it stays what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pinned(VALUE);

impl Pinned {
    pub fn new(value: impl ReprValue) -> Self {
        Self(value.as_raw())
    }

    pub fn value(self) -> Value {
        // SAFETY: made from a live Value and marked by its owner ever since.
        unsafe { Value::from_raw(self.0) }
    }

    /// The object's address, for use as a key only.
    pub fn address(self) -> usize {
        self.0 as usize
    }

    /// Marks, and thereby pins.
    pub fn mark(self, marker: &Marker) {
        marker.mark(self.value());
    }
}

/// Tells the garbage collector that `owner` now refers to `young`.
pub fn wrote(owner: impl ReprValue, young: Pinned) {
    // SAFETY: both are live objects, and not nil or a number, which have no barrier; nothing is allocated in one.
    unsafe {
        if !rb_sys::SPECIAL_CONST_P(young.0) {
            rb_sys::rb_gc_writebarrier(owner.as_raw(), young.0);
        }
    }
}

/// The version of the scheduler interface of the Ruby this was built for: 2 (3.3, 3.4), 3 (4.0), 4 and more (4.1).
pub const INTERFACE: u32 = rb_sys::RUBY_FIBER_SCHEDULER_VERSION;

// --- fibers ----------------------------------------------------------------------------------------------------------

pub fn current_fiber() -> Pinned {
    // SAFETY: no arguments, never raises.
    Pinned(unsafe { rb_sys::rb_fiber_current() })
}

pub fn is_fiber(object: Value) -> bool {
    // SAFETY: a class check on a live object.
    unsafe { rb_sys::rb_obj_is_fiber(object.as_raw()) == rb_sys::Qtrue as VALUE }
}

/// The scheduler of the current thread, or nil.
pub fn current_scheduler() -> Pinned {
    // SAFETY: no arguments, never raises.
    Pinned(unsafe { rb_sys::rb_fiber_scheduler_get() })
}

pub fn current_thread() -> Pinned {
    // SAFETY: no arguments, never raises.
    Pinned(unsafe { rb_sys::rb_thread_current() })
}

/// Switches to `fiber`; returns when somebody switches back, or with what was raised here.
pub fn transfer(fiber: Pinned, arguments: &[Value]) -> Result<(), Error> {
    let (count, first) = raw_arguments(arguments);
    // SAFETY: the arguments live in the caller's frame, which is suspended with this call.
    protect(|| unsafe { rb_sys::rb_fiber_transfer(fiber.0, count, first) }).map(drop)
}

/// `Fiber#raise` from outside: follows the chain of resumed fibers downwards.
pub fn raise_in(fiber: Pinned, exception: Value) -> Result<(), Error> {
    let mut arguments = [exception.as_raw()];
    let first = arguments.as_mut_ptr();
    // SAFETY: one argument, alive on this stack. The parameter is `const VALUE *` before Ruby 4.0 and `VALUE *` since:
    // a mutable pointer is accepted as either.
    protect(|| unsafe { rb_sys::rb_fiber_raise(fiber.0, 1, first) }).map(drop)
}

/// What every fiber runs, and the class of fibers.
struct Making {
    body: VALUE,
    class: VALUE,
    new: ID,
}

static MAKING: OnceLock<Making> = OnceLock::new();

/// Gives the proc that fibers made by [`new_fiber`] run, once and for good.
pub fn run_by(body: Value) -> Result<(), Error> {
    let ruby = Ruby::get_with(body);
    let class: RClass = ruby.class_object().const_get("Fiber")?;
    let new = ruby.intern("new").as_raw();
    // SAFETY: both are live, and never collected from here on.
    let (body, class) = unsafe {
        rb_sys::rb_gc_register_mark_object(body.as_raw());
        rb_sys::rb_gc_register_mark_object(class.as_raw());
        (body.as_raw(), class.as_raw())
    };
    MAKING.get_or_init(|| Making { body, class, new });
    Ok(())
}

/// A suspended non-blocking fiber with this storage, or a copy of the current fiber's. It runs the body when it is first
/// given control, with what it is given then.
pub fn new_fiber(ruby: &Ruby, storage: Option<Value>) -> Result<Pinned, Error> {
    let Some(&Making { body, class, new }) = MAKING.get() else {
        return Err(Error::new(
            ruby.exception_not_imp_error(),
            "fibers have no body",
        ));
    };
    let options = storage.map(|storage| {
        let options = ruby.hash_new();
        options
            .aset(ruby.to_symbol("storage"), storage)
            .map(|()| options)
    });
    let options = options.transpose()?.map(|options| options.as_raw());
    let (count, first) = match &options {
        None => (0, ptr::null()),
        Some(options) => (1, ptr::from_ref(options)),
    };
    let keywords = rb_sys::RB_PASS_KEYWORDS as c_int * count;
    // SAFETY: live values, the options on this stack; what is no storage raises.
    protect(|| unsafe {
        rb_sys::rb_funcall_with_block_kw(class, new, count, first, body, keywords)
    })
    .map(Pinned)
}

/// Ends the current fiber: `Fiber#kill`, which unwinds it, no rescue seeing it.
pub fn kill(fiber: Pinned) -> Error {
    let killed = fiber.value().funcall::<_, _, Value>("kill", ());
    // One that is killed already is only told so. But each time control comes back to it, it is struck anew.
    let struck =
        killed.and_then(|_| Ruby::get_with(fiber.value()).eval::<Value>("Fiber.new {}.resume"));
    match struck {
        Err(error) => error,
        Ok(_) => unreachable!("who is killed does not go on"),
    }
}

/// Whether this is what unwinds a fiber that is killed. To be asked before any Ruby code runs.
pub fn is_kill(error: &Error) -> bool {
    // eval_intern.h: RUBY_FATAL_FIBER_KILLED, since Ruby 3.3.
    const KILLED: c_long = 2;
    // SAFETY: reads what the VM has stored beside the tag it jumped with.
    error.value().is_none() && unsafe { rb_sys::rb_errinfo() == rb_sys::LONG2FIX(KILLED) }
}

/// Lets a fiber that is killed go on, in spite of that.
pub fn forget_kill() {
    // SAFETY: nil may always be stored there.
    unsafe { rb_sys::rb_set_errinfo(rb_sys::Qnil as VALUE) };
}

/// Yields to the block of the method that is running.
pub fn yield_block(argument: Value) -> Result<Value, Error> {
    // SAFETY: callers have checked that a block was given.
    let result = protect(|| unsafe { rb_sys::rb_yield(argument.as_raw()) })?;
    // SAFETY: a return value of Ruby.
    Ok(unsafe { Value::from_raw(result) })
}

/// Calls a method, private ones included.
pub fn call_method(receiver: Value, name: &str, arguments: &[Value]) -> Result<Value, Error> {
    let id = Ruby::get_with(receiver).intern(name).as_raw();
    let (count, first) = raw_arguments(arguments);
    // SAFETY: live values; the arguments outlive the call.
    let result = protect(|| unsafe { rb_sys::rb_funcallv(receiver.as_raw(), id, count, first) })?;
    // SAFETY: a return value of Ruby.
    Ok(unsafe { Value::from_raw(result) })
}

/// Whether one of these methods called the hook that is running: among the innermost DEPTH frames, the hook's own being the
/// first, and a subclass's override of it perhaps the next.
pub fn called_from<const DEPTH: usize>(names: &[&str]) -> bool {
    frames::<DEPTH>().iter().any(|frame| frame.is_any_of(names))
}

/// Methods written in C, each by its class's name and its own.
pub struct Callers {
    names: &'static [(&'static str, &'static str)],
    /// What called before, with 1 in the lowest bit if it is one of them. Each lies there for good, so no other will.
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
        // SAFETY: room for so many frames in both.
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
        // Another Ractor may have been quicker: then it is learnt at the next place.
        _ = place.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed);
        named
    }

    #[cold]
    fn name(&self, caller: VALUE) -> bool {
        // SAFETY: a frame just taken, and still there; the names are nil or a String.
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

/// Who called a hook.
pub struct Caller {
    /// A number for what runs there.
    pub place: usize,
    /// It is one of the methods asked about.
    pub named: bool,
    /// The hook was called by a subclass's override of it.
    pub by_override: bool,
}

/// The innermost frame that is none of this method, a hook, whose own is the first; and whether it is one `named`.
pub fn caller_beyond<const DEPTH: usize>(hook: &str, named: &[&str]) -> Option<Caller> {
    let frames = frames::<DEPTH>();
    let distance = frames.iter().position(|frame| !frame.is_any_of(&[hook]))?;
    let frame = &frames[distance];
    Some(Caller {
        place: frame.0 as usize,
        named: frame.is_any_of(named),
        by_override: distance > 1,
    })
}

/// What a hook may answer, from C only, to make the VM go on as if there were no such hook.
pub fn undefined() -> Value {
    // SAFETY: handed straight back to the VM, which compares it with Qundef before anything else.
    unsafe { Value::from_raw(rb_sys::Qundef as VALUE) }
}

/// What a frame of the current thread runs.
struct Frame(VALUE);

impl Frame {
    fn is_any_of(&self, names: &[&str]) -> bool {
        // SAFETY: a frame just taken, and still there; the name is nil or a String.
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
    frames[..found].iter().copied().map(Frame).collect()
}

/// The exception that `raise(*arguments)` would raise.
pub fn make_exception(arguments: &[Value]) -> Result<Error, Error> {
    let mut copy: Vec<VALUE> = arguments.iter().map(|a| a.as_raw()).collect();
    let made = protect(|| unsafe {
        // SAFETY: the copies are alive in the caller's frame too.
        rb_sys::rb_make_exception(copy.len() as c_int, copy.as_mut_ptr())
    })?;
    // SAFETY: a return value of Ruby.
    let made = unsafe { Value::from_raw(made) };
    Ok(match Exception::from_value(made) {
        Some(exception) => Error::from(exception),
        None => Error::new(
            Ruby::get_with(made).exception_type_error(),
            "exception class/object expected",
        ),
    })
}

fn raw_arguments(arguments: &[Value]) -> (c_int, *const VALUE) {
    (arguments.len() as c_int, arguments.as_ptr().cast())
}

// --- threads, processes ----------------------------------------------------------------------------------------------

static FORKS: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the process that loaded us and this one: a process is told from its parent without a
/// system call.
pub fn fork_generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

pub fn count_forks() {
    extern "C" fn child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: an atomic addition is all that the handler does.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
    });
}

/// Keeps the current Ruby thread on the native thread it runs on, for good; false if this Ruby has no way to (before
/// 3.4). In other Ractors than the main one, and everywhere with RUBY_MN_THREADS=1, Ruby moves its threads between
/// native ones, while its own `fiber_switch` may remember a thread-local address from before the switch. Not for Ruby 4.0:
/// there threads may move, and 4.0.5 crashed in 9 of 25 runs with threads that were kept (`nt_start`, no context).
pub fn stay() -> bool {
    // SAFETY: looking a name up in what is loaded.
    let found =
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"rb_thread_lock_native_thread".as_ptr()) };
    if found.is_null() {
        return false;
    }
    // SAFETY: Ruby's ruby/thread.h declares it so.
    let stay: unsafe extern "C" fn() -> bool = unsafe { std::mem::transmute(found) };
    // SAFETY: called by a Ruby thread that holds the GVL; it counts and never raises.
    unsafe { stay() };
    true
}

/// Sleeps with the GVL released. Signals, `Thread#raise` and `Thread#kill` end the sleep through the handle's wake-up;
/// they are *not* acted on here (`RB_NOGVL_INTR_FAIL`): see [`check_interrupts`].
pub fn without_gvl(sleep: &Sleep, handle: &Handle) {
    unsafe extern "C" fn block(sleep: *mut c_void) -> *mut c_void {
        // SAFETY: the caller's frame holds the Sleep until rb_nogvl returns. An error can only mean that there is
        // nothing to sleep on: the turn that follows meets it again and reports it.
        unsafe { _ = (*sleep.cast::<Sleep>()).block() };
        ptr::null_mut()
    }
    unsafe extern "C" fn interrupt(handle: *mut c_void) {
        // SAFETY: as above; waking is one write(2), lock-free and async-signal-safe.
        unsafe { _ = (*handle.cast::<Handle>()).wake() };
    }
    // SAFETY: both pointers outlive the call and neither callback touches Ruby.
    unsafe {
        rb_sys::rb_nogvl(
            Some(block),
            ptr::from_ref(sleep).cast_mut().cast(),
            Some(interrupt),
            ptr::from_ref(handle).cast_mut().cast(),
            (rb_sys::RB_NOGVL_INTR_FAIL | rb_sys::RB_NOGVL_UBF_ASYNC_SAFE) as c_int,
        );
    }
}

/// Runs a system call that may take long with the GVL released. It is not made at all, and answered with `None`, when
/// an interrupt is already pending.
pub fn blocking_call<T>(call: impl FnOnce() -> T) -> Option<T> {
    struct Job<F, T>(Option<F>, Option<T>);
    unsafe extern "C" fn run<F: FnOnce() -> T, T>(job: *mut c_void) -> *mut c_void {
        // SAFETY: the job lives in the caller's frame until rb_nogvl returns.
        let job = unsafe { &mut *job.cast::<Job<F, T>>() };
        job.1 = job.0.take().map(|call| call());
        ptr::null_mut()
    }
    fn trampoline<F: FnOnce() -> T, T>(_: &F) -> unsafe extern "C" fn(*mut c_void) -> *mut c_void {
        run::<F, T>
    }
    let run = trampoline(&call);
    let mut job = Job(Some(call), None);
    // SAFETY: as above. RUBY_UBF_IO (-1) is the VM's own function, which interrupts a system call by a signal.
    unsafe {
        rb_sys::rb_nogvl(
            Some(run),
            ptr::from_mut(&mut job).cast(),
            std::mem::transmute::<isize, rb_sys::rb_unblock_function_t>(-1),
            ptr::null_mut(),
            rb_sys::RB_NOGVL_INTR_FAIL as c_int,
        );
    }
    job.1
}

/// Whether something is pending for this thread, as seen from the current fiber.
pub fn is_interrupted() -> bool {
    // SAFETY: a look at a flag of the current thread, which is alive.
    unsafe { rb_sys::rb_thread_interrupted(rb_sys::rb_thread_current()) != 0 }
}

/// Whether this Ractor has no other thread of Ruby's.
pub fn is_only_thread() -> bool {
    // SAFETY: called with the GVL, by a thread of Ruby's; reads a number.
    unsafe { rb_sys::rb_thread_alone() != 0 }
}

/// Runs what is pending for this thread: trap handlers, `Thread#raise`, `Thread#kill`, signals' exceptions.
pub fn check_interrupts() -> Result<(), Error> {
    protect(|| {
        // SAFETY: may raise, hence the protection.
        unsafe { rb_sys::rb_thread_check_ints() };
        rb_sys::Qnil as VALUE
    })
    .map(drop)
}

/// Lets threads that wait for the GVL have it, each for as long as it wants or its time slice lasts; and runs what is pending
/// for this one.
pub fn pass_gvl() -> Result<(), Error> {
    protect(|| {
        // SAFETY: may raise, hence the protection.
        unsafe { rb_sys::rb_thread_schedule() };
        rb_sys::Qnil as VALUE
    })
    .map(drop)
}

// --- IO --------------------------------------------------------------------------------------------------------------

/// The IO itself, or what an object converts to by `to_io`. TypeError if it is no IO, IOError if it was never opened.
///
/// For the IO that comes back, looking at its fields never raises, and so needs no protection, which costs more than the
/// look.
pub fn real_io(object: Value) -> Result<RealIo, Error> {
    if is_initialized(object) {
        return Ok(RealIo(object));
    }
    let io = protect(|| {
        // SAFETY: raises for anything that is no IO, and for one that was never opened.
        unsafe {
            let io = rb_sys::rb_io_get_io(object.as_raw());
            rb_sys::rb_io_closed_p(io);
            io
        }
    })?;
    // SAFETY: a return value of Ruby.
    Ok(RealIo(unsafe { Value::from_raw(io) }))
}

/// An IO that has been opened once.
#[derive(Clone, Copy)]
pub struct RealIo(Value);

impl RealIo {
    pub fn value(self) -> Value {
        self.0
    }

    pub fn is_closed(self) -> bool {
        // SAFETY: looks at a field of an IO that has it.
        unsafe { rb_sys::rb_io_closed_p(self.0.as_raw()) == rb_sys::Qtrue as VALUE }
    }

    /// IOError if it is closed.
    pub fn descriptor(self) -> Result<RawFd, Error> {
        let mut descriptor = -1;
        if !self.is_closed() {
            // SAFETY: an open IO: it does not raise.
            descriptor = unsafe { rb_sys::rb_io_descriptor(self.0.as_raw()) };
            return Ok(descriptor);
        }
        protect(|| {
            // SAFETY: raises what is to be raised.
            descriptor = unsafe { rb_sys::rb_io_descriptor(self.0.as_raw()) };
            rb_sys::Qnil as VALUE
        })?;
        Ok(descriptor)
    }

    /// `IO#timeout`, or nil.
    pub fn timeout(self) -> Value {
        // SAFETY: reads a field of an IO that has it, and returns a value of Ruby.
        unsafe { Value::from_raw(rb_sys::rb_io_timeout(self.0.as_raw())) }
    }
}

fn is_initialized(object: Value) -> bool {
    // SAFETY: what is of this type has this layout (ruby/internal/core/rfile.h); the pointer is only compared.
    unsafe {
        rb_sys::RB_TYPE_P(object.as_raw(), rb_sys::ruby_value_type::RUBY_T_FILE)
            && !(*(object.as_raw() as *const rb_sys::RFile)).fptr.is_null()
    }
}

/// The object's own hidden number, given at first sight: two IO objects never share one, whatever their addresses and
/// descriptors. `None` for a frozen IO, which can carry none.
pub fn hidden_number(io: Value, fresh: impl FnOnce(u64) -> u64) -> Option<u64> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if let Some(known) = known_number(io) {
        return Some(known);
    }
    if io.is_frozen() {
        return None;
    }
    let number = fresh(NEXT.fetch_add(1, Ordering::Relaxed));
    // SAFETY: an object that is not frozen takes it without raising, while there is memory. (A protection would be the
    // deepest frame on the stack of a fiber that reads.)
    unsafe { rb_sys::rb_ivar_set(io.as_raw(), hidden_name(), rb_sys::rb_ull2inum(number)) };
    Some(number)
}

/// The number the object has been given, if it has.
pub fn known_number(io: Value) -> Option<u64> {
    // SAFETY: reading an instance variable never raises; the name has no @ and so is invisible to Ruby.
    let known = unsafe { rb_sys::rb_ivar_get(io.as_raw(), hidden_name()) };
    // SAFETY: only this module writes the variable, and writes Fixnums.
    (known != rb_sys::Qnil as VALUE).then(|| unsafe { rb_sys::FIX2LONG(known) as u64 })
}

/// Takes the number away: the next look gives a fresh one.
pub fn forget_number(io: Value) {
    // SAFETY: FrozenError is caught; a frozen object has no number anyway.
    _ = protect(|| unsafe {
        rb_sys::rb_ivar_set(io.as_raw(), hidden_name(), rb_sys::Qnil as VALUE)
    });
}

pub fn hidden_name() -> ID {
    static ID: OnceLock<ID> = OnceLock::new();
    const NAME: &std::ffi::CStr = c"__reactor__";
    // SAFETY: a valid C string.
    *ID.get_or_init(|| unsafe { rb_sys::rb_intern(NAME.as_ptr().cast::<c_char>()) })
}

pub fn is_kind_of(object: Value, class: Opaque<Value>) -> bool {
    let class = Ruby::get_with(object).get_inner(class);
    // SAFETY: a class check on live objects.
    unsafe { rb_sys::rb_obj_is_kind_of(object.as_raw(), class.as_raw()) == rb_sys::Qtrue as VALUE }
}

/// A descriptor for the length of one system call. It may be closed or stale: then the kernel says EBADF.
pub fn borrow<'a>(descriptor: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the number came from an open IO in this same hook, is not -1, and is not kept beyond the call.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}

/// Closes a descriptor its owner has given up.
pub fn close(descriptor: RawFd) {
    // SAFETY: the VM has handed the descriptor over to be closed, and forgets it; it is used by nobody else.
    unsafe { libc::close(descriptor) };
}

// --- numbers ---------------------------------------------------------------------------------------------------------

/// Any Numeric as a time span, with the errors Kernel#sleep has: TypeError, ArgumentError, FloatDomainError, RangeError.
pub fn time_interval(number: Value) -> Result<Duration, Error> {
    let mut span = rb_sys::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    protect(|| {
        // SAFETY: raises for anything that is no interval.
        span = unsafe { rb_sys::rb_time_timespec_interval(number.as_raw()) };
        rb_sys::Qnil as VALUE
    })?;
    Ok(Duration::new(span.tv_sec as u64, span.tv_nsec as u32))
}

/// Lets this extension be loaded in any Ractor.
pub fn ractor_safe() {
    // SAFETY: called from Init only.
    unsafe { rb_sys::rb_ext_ractor_safe(true) };
}

// --- names: what runs on the pool knows nothing of Ruby -------------------------------------------------------------

/// What getaddrinfo(3) is asked beside the names.
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    pub family: c_int,
    pub socktype: c_int,
    pub protocol: c_int,
    pub flags: c_int,
}

/// One of its answers; `bytes` is a struct sockaddr.
#[derive(Clone, Debug)]
pub struct Address {
    pub family: c_int,
    pub socktype: c_int,
    pub protocol: c_int,
    pub bytes: Vec<u8>,
}

/// Why there is none: EAI_*, and errno for EAI_SYSTEM.
#[derive(Clone, Copy, Debug)]
pub struct Unresolved {
    pub code: c_int,
    pub errno: c_int,
}

/// getaddrinfo(3). Blocks for as long as the resolver likes; on whatever thread.
pub fn getaddrinfo(
    host: Option<&CStr>,
    service: Option<&CStr>,
    hints: &Hints,
) -> Result<Vec<Address>, Unresolved> {
    let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: numbers and pointers, for which zero means "not given".
    let mut wanted: libc::addrinfo = unsafe { std::mem::zeroed() };
    wanted.ai_family = hints.family;
    wanted.ai_socktype = hints.socktype;
    wanted.ai_protocol = hints.protocol;
    wanted.ai_flags = hints.flags;
    let mut list = ptr::null_mut();
    // SAFETY: strings that end with NUL, and a place for the list, all alive during the call.
    let code = unsafe { libc::getaddrinfo(pointer(host), pointer(service), &wanted, &mut list) };
    if code != 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        // A resolver module that is configured and not installed, as Ruby sees it: [ruby-list:49420].
        let missing =
            cfg!(target_os = "linux") && code == libc::EAI_SYSTEM && errno == libc::ENOENT;
        let code = if missing { libc::EAI_NONAME } else { code };
        return Err(Unresolved { code, errno });
    }
    let mut found = Vec::new();
    let mut next = list;
    // SAFETY: the list is ours until it is freed below; each entry has an address of the length it says.
    while let Some(entry) = unsafe { next.as_ref() } {
        let (address, length) = (entry.ai_addr.cast::<u8>(), entry.ai_addrlen as usize);
        found.push(Address {
            family: entry.ai_family,
            socktype: entry.ai_socktype,
            protocol: entry.ai_protocol,
            // SAFETY: see above.
            bytes: unsafe { slice::from_raw_parts(address, length) }.to_vec(),
        });
        next = entry.ai_next;
    }
    // SAFETY: it came from getaddrinfo, and nothing refers to it any more.
    unsafe { libc::freeaddrinfo(list) };
    Ok(found)
}

/// gai_strerror(3).
pub fn gai_message(code: c_int) -> String {
    // SAFETY: a text that is never freed.
    let text = unsafe { CStr::from_ptr(libc::gai_strerror(code)) };
    text.to_string_lossy().into_owned()
}

/// A copy of a String's bytes.
pub fn bytes(string: magnus::RString) -> Vec<u8> {
    // SAFETY: copied at once, with no Ruby call in between.
    unsafe { string.as_slice() }.to_vec()
}

/// Sets an instance variable whose name has no @, as Ruby's own extensions do for what only they read.
pub fn set_hidden(object: Value, name: &CStr, value: Value) -> Result<(), Error> {
    // SAFETY: a valid C string and live objects; a frozen one raises.
    protect(|| unsafe {
        let name = rb_sys::rb_intern(name.as_ptr().cast::<c_char>());
        rb_sys::rb_ivar_set(object.as_raw(), name, value.as_raw())
    })
    .map(drop)
}
