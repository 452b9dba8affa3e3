//! Closing or reopening an IO while fibers use it: `prepare_close`, `prepare_half_close`, `prepare_reopen`, `replaced`,
//! `note_read_shutdown`, `push_when_unused`, `fiber_interrupt`, `io_close`, and `Reactor::Internal.announce_close`.
//!
//! Schedulers are not told when C code calls close(2) or dup2(2). The registry re-registers descriptors of long waits at
//! intervals (`src/reactor/waits/idle_repair.rs`), and a wait whose descriptor is gone then ends.

use magnus::{
    Error, Exception, Ruby, Symbol, TryConvert, Value, prelude::*, rb_sys::AsRawValue,
    typed_data::Obj,
};
use reactor::OwnerId;
use reactor_scheduler::{state::fiber::Slot, system::kind::is_socket};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::{
        INTERFACE, IS_3_3,
        fiber::{is_blocking, is_fiber},
        io::{RealIo, close_number, real_io},
        io_info::IoInfo,
        object::{Object, object_ref, write_barrier},
        ractor::each_scheduler,
        receiver::Receiver,
        thread::{current_scheduler, is_only_thread},
    },
    wait::work::park_until_unused,
};

/// A worker uses the IO's descriptor for another thread's fiber.
const IN_USE: &str = "in_use";

/// `Reactor::Internal.announce_close(io)`: tells each scheduler of this Ractor that the IO object is about to be closed
/// ([`prepare_close`]), until one answers :in_use. Returns :in_use if one did, otherwise :interrupted if one answered
/// that or the close may block ([`close_blocks`]), otherwise nil.
pub fn announce_close(ruby: &Ruby, io: Value) -> Result<Option<Symbol>, Error> {
    let mut answer = None;
    for scheduler in each_scheduler()? {
        let answered = match Obj::<Scheduler>::try_convert(scheduler) {
            Ok(native) => prepare_close(ruby, Receiver(native), io)?,
            Err(_) => scheduler.funcall("prepare_close", (io,))?,
        };
        if answered.is_some_and(|answered| answered.name().is_ok_and(|name| name == IN_USE)) {
            return Ok(answered);
        }
        answer = answered.or(answer);
    }
    let interrupted = || ruby.sym_new("interrupted").into();
    Ok(answer.or_else(|| close_blocks().then(interrupted)))
}

/// `Reactor::Internal.close_blocks?`: whether the caller is a blocking fiber, and could not wait until the users of an IO that
/// it closes have left: fibers of its own thread, for which the VM waits from Ruby 4.0 on. Ruby 3.3 does not wake it when the
/// last thread has left.
pub fn close_blocks() -> bool {
    let scheduler = current_scheduler().value();
    let may_block = INTERFACE >= 3 || IS_3_3 && !is_only_thread();
    may_block && is_blocking() && !scheduler.is_nil() && may_close_by_fiber(scheduler)
}

fn may_close_by_fiber(scheduler: Value) -> bool {
    Obj::<Scheduler>::try_convert(scheduler)
        .is_ok_and(|scheduler| !scheduler.is_closed() && (IS_3_3 || scheduler.live() > 0))
}

/// `prepare_close(io)`: the IO object is about to be closed, by any thread. Raises IOError in the fibers that wait for
/// the IO object, or for the object that writes for it, but not in fibers that wait for another object on the same
/// descriptor. The time this takes grows with the number of waits for the descriptor, not with the number of other
/// fibers. Watchers of this object end without starting a fiber, but those of a server, which counts its connections.
///
/// Returns nil if no fiber waits for the object, and :interrupted if the waiting fibers were interrupted. :in_use means
/// that a pool worker is using the descriptor for another thread's fiber. The descriptor must not be closed meanwhile,
/// so the caller waits ([`push_when_unused`]) and asks again. (On the scheduler's own thread, this method parks the
/// caller itself.)
pub fn prepare_close(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    io: Value,
) -> Result<Option<Symbol>, Error> {
    let ios = real_io(io).map_or([None; 2], |io| {
        let writer = io.writer();
        [Some(io), (!is_same(io, writer)).then_some(writer)]
    });
    prepare(ruby, this, ios)
}

fn is_same(io: RealIo, other: RealIo) -> bool {
    io.value().as_raw() == other.value().as_raw()
}

/// Announces that the descriptors of these objects are about to be closed. Returns the same values as
/// [`prepare_close`].
fn prepare<const COUNT: usize>(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    ios: [Option<RealIo>; COUNT],
) -> Result<Option<Symbol>, Error> {
    if this.is_closed() {
        return Ok(None);
    }
    this.state_mut().flush_sends(); // queued writes must precede the end of their direction
    let mut answer = None;
    for io in ios.into_iter().flatten() {
        answer = prepare_close_of(ruby, this, io)?.or(answer);
    }
    Ok(answer)
}

/// Announces the close of one object, without the object that writes for it.
fn prepare_close_of(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    io: RealIo,
) -> Result<Option<Symbol>, Error> {
    let Some((descriptor, io_number)) = IoInfo::polled_of(io) else {
        return Ok(None); // closed, or never seen by a scheduler
    };
    let watchers = this.state().watchers_of(descriptor, io_number);
    if !watchers.is_empty() {
        this.close_watchers(watchers)?;
        this.wake_thread();
    }
    let users = this.state().users_of(descriptor, io_number);
    if users.is_empty() {
        if let Some(reactor) = &mut this.state_mut().event_loop.reactor {
            reactor.note_close(descriptor, OwnerId(io_number));
        }
        return Ok(None);
    }
    this.state_mut().end_worker_waits(descriptor);
    interrupt_all(ruby, this, io_number, users);
    if wait_until_unused(ruby, this, io_number)? {
        return Ok(Some(ruby.sym_new(IN_USE).into()));
    }
    Ok(Some(ruby.sym_new("interrupted").into()))
}

/// Raises IOError in these fibers, which wait for the IO with this number. Each creates its own exception when it runs.
fn interrupt_all(ruby: &Ruby, this: Obj<Scheduler>, io_number: u64, users: Vec<Slot>) {
    let own = object_ref(ruby.qnil().as_value());
    for slot in users {
        this.state_mut().interrupt_use(slot, io_number, own);
    }
    this.wake_thread();
}

/// Parks until no worker uses the IO's descriptor. If the caller is on another thread, does not park, but returns
/// whether a worker uses it.
fn wait_until_unused(ruby: &Ruby, this: Obj<Scheduler>, io_number: u64) -> Result<bool, Error> {
    if !this.state().descriptors_in_use.is_in_use(io_number) {
        return Ok(false);
    }
    if !this.affinity.is_current_thread() {
        return Ok(true);
    }
    if let Some(scope) = HookScope::enter_own(ruby, &this)? {
        park_until_unused(&scope, io_number)?;
    }
    Ok(false)
}

/// `prepare_half_close(io, reading)`: `IO#close_read` or `#close_write` is about to be called. If the call closes a
/// descriptor, this announces the close like [`prepare_close`], with the same return values. If it only ends one
/// direction of a socket, the kernel reports that to the waits.
pub fn prepare_half_close(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    io: Value,
    reading: bool,
) -> Result<Option<Symbol>, Error> {
    prepare(ruby, this, [closed_by_half_close(real_io(io)?, reading)])
}

/// The object whose descriptor `IO#close_read` or `#close_write` closes, if any.
fn closed_by_half_close(io: RealIo, reading: bool) -> Option<RealIo> {
    let writer = io.writer();
    let closed = if reading { io } else { writer };
    let mode = closed.mode().ok()?;
    let is_other_half_open = if reading {
        mode.is_writable
    } else {
        mode.is_readable
    };
    let is_closed = if is_socket(closed.descriptor().ok()?) {
        !is_other_half_open
    } else {
        !is_same(io, writer) || mode.is_duplex || !is_other_half_open
    };
    is_closed.then_some(closed)
}

/// `prepare_reopen(io)`: the IO object is about to be reopened, by any thread. Returns nil, or :in_use in the same case
/// as [`prepare_close`].
pub fn prepare_reopen(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    io: Value,
) -> Result<Option<Symbol>, Error> {
    if this.is_closed() {
        return Ok(None);
    }
    this.state_mut().flush_sends();
    let polled = real_io(io).ok().and_then(IoInfo::polled_of);
    let Some((descriptor, io_number)) = polled else {
        return Ok(None); // never opened, or never seen
    };
    this.state_mut().end_worker_waits(descriptor);
    let is_in_use = wait_until_unused(ruby, this, io_number)?;
    Ok(is_in_use.then(|| ruby.sym_new(IN_USE).into()))
}

/// `replaced(io, interrupts)`: the IO object now has another file. Waits for the descriptor continue with that file, except
/// that this object's watchers end without starting a fiber, and that, if `interrupts`, IOError is raised in fibers that
/// wait for this object alone.
pub fn replaced(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    io: Value,
    interrupts: bool,
) -> Result<(), Error> {
    let Ok(io) = real_io(io) else {
        return Ok(());
    };
    let (false, Some((descriptor, io_number))) = (this.is_closed(), IoInfo::polled_of(io)) else {
        return Ok(());
    };
    IoInfo::refresh(io);
    let watchers = this
        .state()
        .watchers_that(|watcher| watcher.io_number == io_number);
    this.end_watchers("reopened", watchers)?;
    if interrupts {
        let waiters = this.state().single_waiters_of(descriptor, io_number);
        let own = object_ref(ruby.qnil().as_value());
        this.state_mut().raise_in_queued_waiters(io_number, own);
        interrupt_all(ruby, this, io_number, waiters);
    }
    if let Some(reactor) = &mut this.state_mut().event_loop.reactor {
        reactor.replaced(descriptor);
    }
    this.wake_thread();
    Ok(())
}

/// `note_read_shutdown(io)`: the socket's reading half was shut down. Where the kernel does not report the shutdown,
/// this ends the waits for reading.
pub fn note_read_shutdown(this: Obj<Scheduler>, io: Value) -> Result<(), Error> {
    if let (false, Some((descriptor, _))) = (this.is_closed(), IoInfo::polled_of(real_io(io)?)) {
        if let Some(reactor) = &mut this.state_mut().event_loop.reactor {
            reactor.note_read_shutdown(descriptor);
        }
    }
    Ok(())
}

/// `push_when_unused(io, queue)`: pushes to the queue once no worker uses the IO's descriptor. If none does now, returns
/// false and does nothing.
pub fn push_when_unused(this: Obj<Scheduler>, io: Value, queue: Value) -> bool {
    let polled = real_io(io).ok().and_then(IoInfo::polled_of);
    let Some((_, io_number)) = polled.filter(|_| !this.is_closed()) else {
        return false;
    };
    Scheduler::push_when_unused(this, io_number, queue)
}

/// `fiber_interrupt(fiber, exception)`: raises in a fiber that waits, whatever for. Does nothing if the fiber does not, or
/// no longer. A blocking fiber waits without the scheduler, so this raises in its thread, as the VM does in a thread that
/// has no scheduler.
///
/// From Ruby 4.1 on, the VM passes a proxy of the operation instead of the fiber (Bug #21918). The proxy knows whether the
/// operation is still running, and is asked to raise at the next turn.
///
/// # Errors
///
/// TypeError if `exception` is not an exception object or cannot be raised; if it were not raised here, it would
/// surface in the fiber that runs at the next turn.
pub fn fiber_interrupt(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    fiber: Value,
    exception: Value,
) -> Result<bool, Error> {
    let exception = Exception::from_value(exception)
        .ok_or_else(|| Error::new(ruby.exception_type_error(), "exception object expected"))?
        .as_value();
    if !is_fiber(fiber) && !fiber.respond_to("raise", false)? {
        let message = "expected a fiber or an object that responds to raise";
        return Err(Error::new(ruby.exception_type_error(), message));
    }
    if this.is_closed() {
        return Ok(false);
    }
    let is_interrupted = if is_fiber(fiber) {
        let slot = this.state_mut().fibers.find(object_ref(fiber));
        write_barrier(this, object_ref(exception));
        slot.is_some_and(|slot| this.state_mut().interrupt(slot, object_ref(exception)))
            || interrupt_blocking(this, fiber, exception)?
    } else {
        let pair = [object_ref(fiber), object_ref(exception)];
        for object in pair {
            write_barrier(this, object);
        }
        this.state_mut().push_proxy_raise(pair);
        true
    };
    if is_interrupted {
        this.wake_thread();
    }
    Ok(is_interrupted)
}

fn interrupt_blocking(this: Obj<Scheduler>, fiber: Value, exception: Value) -> Result<bool, Error> {
    for condition in ["alive?", "blocking?"] {
        if !fiber.funcall::<_, _, Value>(condition, ())?.to_bool() {
            return Ok(false);
        }
    }
    let thread = this.affinity.thread_in_hook().value();
    thread.funcall::<_, _, Value>("raise", (exception,))?;
    Ok(true)
}

/// `io_close(descriptor)`, called by the VM since Ruby 4.0: closes the descriptor if that cannot block. Otherwise
/// returns false: the VM then releases the GVL and closes it. A finalizer may call this hook, in the middle of
/// anything.
pub fn io_close(this: Obj<Scheduler>, descriptor: i32) -> bool {
    !this.is_forked_child() && close_number(descriptor)
}
