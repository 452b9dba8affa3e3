//! The hooks of Fiber::Scheduler that wait, wake and start fibers. Transfers of bytes are in `io`.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use magnus::{
    Error, RArray, RClass, RHash, Ruby, Symbol, TypedData, Value, prelude::*, rb_sys::AsRawValue,
    scan_args::scan_args, typed_data::Obj,
};
use reactor::{
    Attempt, CachedReadiness, Deadline, Interest, OwnerId, Reactor, Ready, TimerId, Wait, WaitId,
};

use crate::{
    attempt,
    blocking::await_leases,
    convert,
    fibers::{Cause, Hook, MANY, Pending, Purpose, Slot, State},
    files,
    io::Watched,
    raw::{self, Callers, Pinned, methods::wrong_number},
    resolve::Lookup,
    selector::{Entry, Selector, Visit, error_named},
    trace::What,
};

/// What Ruby's own IOError says when an IO is closed under somebody who waits for it.
const CLOSED_ELSEWHERE: &str = "stream closed in another thread";

/// `fiber(*arguments, **options, &block)`
pub fn fiber(ruby: &Ruby, this: Obj<Selector>, arguments: &[Value]) -> Result<Value, Error> {
    if !ruby.block_given() {
        let message = "tried to create Proc object without a block";
        return Err(Error::new(ruby.exception_arg_error(), message));
    }
    let Entry::Usable(visit) = Selector::enter(ruby, &this)? else {
        let message = "this scheduler belongs to the parent process";
        return Err(Error::new(ruby.exception_runtime_error(), message));
    };
    let block = ruby.block_proc()?.as_value();
    // What is passed lies in memory on this stack, where the garbage collector sees it.
    if arguments.is_empty() {
        let fiber = raw::new_fiber(ruby, None)?;
        Selector::start(this, &visit, fiber, &[this.as_value(), block])?;
        return Ok(fiber.value());
    }
    let parsed = scan_args::<(), (), RArray, (), RHash, ()>(arguments)?;
    let fiber = raw::new_fiber(ruby, storage(ruby, parsed.keywords)?)?;
    let given = [this.as_value(), block, parsed.splat.as_value()];
    Selector::start(this, &visit, fiber, &given)?;
    Ok(fiber.value())
}

/// The storage a new fiber is asked to have.
fn storage(ruby: &Ruby, options: RHash) -> Result<Option<Value>, Error> {
    let (storage, blocking) = (ruby.to_symbol("storage"), ruby.to_symbol("blocking"));
    let unknown = options.len()
        - options.get(storage).map_or(0, |_: Value| 1)
        - options.get(blocking).map_or(0, |_: Value| 1);
    if unknown > 0 {
        let message = format!("unknown keyword in {options}");
        return Err(Error::new(ruby.exception_arg_error(), message));
    }
    Ok(options.get(storage))
}

/// `ended(error = nil)`: the account of how the block of the current fiber ended. Whether the fiber is to raise the error.
pub fn ended(_: &Ruby, this: Obj<Selector>, [error]: [Value; 1]) -> Result<bool, Error> {
    if !error.is_nil() {
        // A child forked in this fiber has nobody else to tell: the root fiber gets it, and with it the exit status.
        if this.is_inert() {
            return Ok(true);
        }
        escaped(this, error);
    }
    let mut inner = this.inner.borrow_mut();
    if let Some(slot) = inner.fibers.find(raw::current_fiber()) {
        inner.note(What::End, slot);
        inner.fibers.remove(slot);
    }
    inner.ended = true;
    Ok(false)
}

/// An exception ended a fiber. Before its first park it belongs to whoever called Fiber.schedule. Later, what stops a
/// program (SystemExit, Interrupt …) goes to the fiber that runs the scheduler, at once; an ordinary error is reported
/// like a thread's and raised when the others are done.
fn escaped(this: Obj<Selector>, exception: Value) {
    let pinned = Pinned::new(exception);
    raw::wrote(this, pinned);
    let ruby = Ruby::get_with(exception);
    let ordinary = exception.is_kind_of(ruby.exception_standard_error())
        || exception.is_kind_of(ruby.exception_script_error());
    {
        let mut inner = this.inner.borrow_mut();
        let current = inner.fibers.find(raw::current_fiber());
        let spawner = current.and_then(|slot| inner.fibers.get(slot)?.spawner);
        if let Some(spawner) = spawner.filter(|token| inner.fibers.is_queued(*token)) {
            if let Some(record) = inner.fibers.get_mut(spawner.index()) {
                record.pending = Some(Pending::Raise(pinned));
                return;
            }
        }
        if !ordinary {
            inner.escaped.get_or_insert(pinned);
            return;
        }
        inner.failure.get_or_insert(pinned);
    }
    // Whatever goes wrong in reporting, the error itself is kept.
    _ = raw::call_method(this.as_value(), "report", &[exception]);
}

/// `io_wait(io, events, timeout)`
pub fn io_wait(
    ruby: &Ruby,
    this: Obj<Selector>,
    [io, events, timeout]: [Value; 3],
) -> Result<Value, Error> {
    let interest = convert::interest(ruby, events)?;
    let Entry::Usable(visit) = Selector::enter(ruby, &this)? else {
        return raw::call_method(this.as_value(), "blocking_wait", &[io, events, timeout]);
    };
    let watched = Watched::new(io)?;
    let limit = if timeout.is_nil() {
        watched.io.timeout()
    } else {
        timeout
    };
    let limit = convert::timeout(limit)?;
    note_attempt(&visit, &watched, interest);
    match wait_io(ruby, &visit, &watched, interest, limit)? {
        Some(ready) => Ok(ruby.integer_from_u64(ready.bits().into()).as_value()),
        None if timeout.is_nil()
            && misreports_timeouts(ruby)
            && raw::called_from::<2>(&TRANSFERS) =>
        {
            Err(error_named(ruby, "IO::TimeoutError", TIMED_OUT))
        }
        None => Ok(ruby.qfalse().as_value()),
    }
}

/// Methods of Ruby's that ask for `io_wait` to be readable only when the kernel has just told them EAGAIN.
static FINDERS: Callers = Callers::new(&[
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

/// What the caller knows of the descriptor, the selector is told: so this wait needs no system call.
///
/// A signal handler that lets others run, between the caller's EAGAIN and here, may make that untrue. Then the wait is
/// armed anew after 100 ms, as every idle one.
#[inline(never)]
fn note_attempt(visit: &Visit, watched: &Watched, interest: Interest) {
    if !watched.parkable || interest != Interest::READABLE {
        return;
    }
    let (descriptor, identity) = (watched.descriptor, watched.identity);
    let unsure = |reactor: &Reactor| {
        reactor.cached_readiness(descriptor, identity).readable != CachedReadiness::Drained
    };
    let open = visit
        .selector
        .inner
        .borrow()
        .reactor
        .as_ref()
        .is_some_and(unsure);
    if open && FINDERS.have_called() {
        if let Some(reactor) = visit.selector.inner.borrow_mut().reactor.as_mut() {
            reactor.attempted(descriptor, identity, interest, Attempt::WouldBlock);
        }
    }
}

/// What Ruby's own IO::TimeoutError says.
pub const TIMED_OUT: &str = "Blocking operation timed out!";

/// Methods that transfer and, on Ruby 3.3, take the false that means "time is up" for Errno::EAGAIN; those that only wait
/// want to be told false.
const TRANSFERS: [&str; 24] = [
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
    "eof",
    "eof?",
    "write",
    "puts",
    "print",
    "<<",
    "printf",
    "putc",
    "flush",
    "sysread",
    "syswrite",
];

pub fn misreports_timeouts(ruby: &Ruby) -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        ruby.eval::<bool>(r#"RUBY_VERSION < "3.4""#)
            .unwrap_or(false)
    })
}

/// Waits until a descriptor is ready; `None` if the time is up before.
#[inline(never)]
pub fn wait_io(
    ruby: &Ruby,
    visit: &Visit,
    watched: &Watched,
    interest: Interest,
    timeout: Option<Duration>,
) -> Result<Option<Interest>, Error> {
    if timeout == Some(Duration::ZERO) {
        return reactor::poll_now(watched.descriptor, interest)
            .map_err(|error| convert::system_error(ruby, &error));
    }
    let deadline = visit.selector.inner.borrow().deadline(timeout);
    loop {
        let (ready, cause) = match wait_once(ruby, visit, watched, interest, deadline)? {
            Once::Answered(ready, cause) => (ready, cause),
            Once::AlwaysReady => return Ok(Some(interest)),
        };
        if watched.io.is_closed() {
            return Err(closed_elsewhere());
        }
        if let Some(answered) = ready.answers(interest) {
            return Ok(Some(answered));
        }
        if cause == Cause::Elapsed {
            return Ok(None);
        }
    }
}

enum Once {
    Answered(Ready, Cause),
    AlwaysReady,
}

#[inline(always)]
fn wait_once(
    ruby: &Ruby,
    visit: &Visit,
    watched: &Watched,
    interest: Interest,
    deadline: Option<Deadline>,
) -> Result<Once, Error> {
    let Some((wait, timer)) = begin_wait(ruby, visit, watched, interest, deadline)? else {
        return Ok(Once::AlwaysReady);
    };
    let parked = visit.selector.park(visit.slot);
    let ready = end_wait(visit.selector, wait, timer);
    Ok(Once::Answered(ready, parked?))
}

/// `None` if the kernel does not poll the descriptor: then it is always ready.
///
/// In a frame of its own, which is gone while the fiber is parked; as is that of the other end.
#[inline(never)]
pub fn begin_wait(
    ruby: &Ruby,
    visit: &Visit,
    watched: &Watched,
    interest: Interest,
    deadline: Option<Deadline>,
) -> Result<Option<(WaitId, Option<TimerId>)>, Error> {
    let mut inner = visit.selector.inner.borrow_mut();
    let token = inner
        .fibers
        .watch(visit.slot, watched.identity.0, interest.bits());
    let Some(reactor) = inner.reactor.as_mut() else {
        return Ok(None);
    };
    match reactor.wait(watched.descriptor, watched.identity, interest, token) {
        Ok(Wait::Pending(wait)) => Ok(Some((wait, inner.timer(deadline, token)))),
        Ok(Wait::Ready(_)) => {
            inner.fibers.finish(visit.slot);
            drop(inner);
            watched.reconsider();
            Ok(None)
        }
        Err(error) => {
            inner.fibers.finish(visit.slot);
            drop(inner);
            Err(convert::system_error(ruby, &error))
        }
    }
}

#[inline(never)]
pub fn end_wait(selector: &Selector, wait: WaitId, timer: Option<TimerId>) -> Ready {
    let mut inner = selector.inner.borrow_mut();
    inner.cancel_timer(timer);
    inner.reactor.as_mut().map_or(Ready::EMPTY, |r| r.end(wait))
}

/// `wait_any(ios, masks, timeout, lookups = [])`: parks once on many descriptors, and on questions to the resolver.
/// Whether the time was not up: what is ready, the caller asks.
pub fn wait_any(ruby: &Ruby, this: Obj<Selector>, arguments: &[Value]) -> Result<bool, Error> {
    let given = scan_args::<(RArray, RArray, Value), (Option<RArray>,), (), (), (), ()>(arguments)?;
    let (ios, masks, timeout) = given.required;
    let timeout = convert::timeout(timeout)?;
    let mut lookups = Vec::new(); // kept alive by the Array they came in
    for lookup in given.optional.0.into_iter().flatten() {
        lookups.push(Obj::<Lookup>::try_convert(lookup)?);
    }
    let Entry::Usable(visit) = Selector::enter(ruby, &this)? else {
        return Ok(true);
    };
    let mut watched = Vec::with_capacity(ios.len());
    for (io, mask) in ios.into_iter().zip(masks) {
        watched.push((Watched::new(io)?, convert::interest(ruby, mask)?));
    }
    let (waits, timer, trouble) = {
        let mut inner = this.inner.borrow_mut();
        let token = if lookups.is_empty() {
            inner.fibers.watch(visit.slot, MANY, 0)
        } else {
            inner.fibers.await_work(visit.slot, MANY)
        };
        let mut waits = Vec::with_capacity(watched.len());
        let mut trouble = None;
        if let Some(reactor) = inner.reactor.as_mut() {
            for (watched, interest) in &watched {
                match reactor.wait(watched.descriptor, watched.identity, *interest, token) {
                    Ok(Wait::Pending(wait)) => waits.push(wait),
                    Ok(Wait::Ready(_)) => {
                        trouble = Some(Ok(()));
                        break;
                    }
                    Err(error) => {
                        trouble = Some(Err(error));
                        break;
                    }
                }
            }
        }
        for lookup in &lookups {
            lookup.redirect(token);
        }
        let deadline = inner.deadline(timeout);
        let timer = inner.timer(deadline, token);
        (waits, timer, trouble)
    };
    let parked = match trouble {
        None => this.park(visit.slot),
        Some(Ok(())) => Ok(Cause::Ready),
        Some(Err(error)) => Err(convert::system_error(ruby, &error)),
    };
    let mut inner = this.inner.borrow_mut();
    inner.fibers.finish(visit.slot);
    inner.cancel_timer(timer);
    if let Some(reactor) = inner.reactor.as_mut() {
        for wait in waits {
            reactor.end(wait);
        }
    }
    drop(inner);
    Ok(parked? != Cause::Elapsed)
}

/// `kernel_sleep(duration = nil)`
pub fn kernel_sleep(ruby: &Ruby, this: Obj<Selector>, arguments: &[Value]) -> Result<bool, Error> {
    let duration = match arguments {
        [] => None,
        [duration] => convert::timeout(*duration)?,
        _ => return Err(wrong_number(ruby, arguments.len(), "0..1")),
    };
    let Entry::Usable(visit) = Selector::enter(ruby, &this)? else {
        return doze(this, duration).map(|_| true);
    };
    if duration == Some(Duration::ZERO) {
        this.pass(visit.slot)?;
    } else {
        sleep(&visit, Hook::Sleep, duration)?;
    }
    Ok(true)
}

/// `block(blocker, timeout = nil)`: true if unblocked, false if the time is up. A negative timeout is none at all, an
/// infinite one for ever, as Thread#join and Queue#pop hand them on.
pub fn block(ruby: &Ruby, this: Obj<Selector>, arguments: &[Value]) -> Result<bool, Error> {
    let timeout = match arguments {
        [_blocker] => None,
        [_blocker, timeout] => convert::lenient_timeout(*timeout)?,
        _ => return Err(wrong_number(ruby, arguments.len(), "1..2")),
    };
    let Entry::Usable(visit) = Selector::enter(ruby, &this)? else {
        return doze(this, timeout);
    };
    match sleep(&visit, Hook::Block, timeout) {
        // Had it been woken, with a lock in its hands? Others wait for that, and nobody else will be told.
        Err(error) => raw::call_method(this.as_value(), "pass_on", &arguments[..1]).and(Err(error)),
        answer => answer,
    }
}

/// [`sleep`] in a forked child, where nothing turns the reactor: looks now and then whether an `unblock` has come.
#[cold]
#[inline(never)]
fn doze(this: Obj<Selector>, duration: Option<Duration>) -> Result<bool, Error> {
    let deadline = duration.map(Deadline::after);
    let slot = this.admit_fiber(this);
    let token = {
        let mut inner = this.inner.borrow_mut();
        inner.fibers.visit(slot);
        inner.fibers.begin(slot, Purpose::Block)
    };
    let result = loop {
        if this.inner.borrow().fibers.parked(slot) != Some((token, Purpose::Block)) {
            break Ok(true);
        }
        let left = deadline.map_or(Duration::MAX, |deadline| deadline.remaining(Instant::now()));
        if left.is_zero() {
            break Ok(false);
        }
        let moment = Ruby::get_with(this).float_from_f64(left.min(GLANCE).as_secs_f64());
        let slept = raw::call_method(this.as_value(), "blocking_sleep", &[moment.as_value()]);
        if let Err(error) = slept {
            break Err(error);
        }
    };
    let mut inner = this.inner.borrow_mut();
    inner.fibers.finish(slot);
    inner.fibers.leave(slot);
    result
}

/// How long a forked child sleeps between two looks.
const GLANCE: Duration = Duration::from_millis(10);

/// Parks until unblocked (true) or until the time is up (false).
#[inline(always)]
fn sleep(visit: &Visit, hook: Hook, duration: Option<Duration>) -> Result<bool, Error> {
    let selector = visit.selector;
    let timer = {
        let mut inner = selector.inner.borrow_mut();
        let record = inner.fibers.get_mut(visit.slot);
        if record.is_some_and(|record| std::mem::take(&mut record.permit)) {
            return Ok(true);
        }
        let token = inner.fibers.rest(visit.slot, hook, duration.is_none());
        let deadline = inner.deadline(duration);
        inner.timer(deadline, token)
    };
    let parked = selector.park(visit.slot);
    selector.inner.borrow_mut().cancel_timer(timer);
    Ok(parked? != Cause::Elapsed)
}

/// `unblock(blocker, fiber)`: from any thread, also in a trap handler; never raises, never switches.
pub fn unblock(
    _: &Ruby,
    this: Obj<Selector>,
    [_blocker, fiber]: [Value; 2],
) -> Result<bool, Error> {
    Ok(wake(this, fiber))
}

fn wake(this: Obj<Selector>, fiber: Value) -> bool {
    if this.is_closed() && !this.is_inert() {
        return false;
    }
    let (slot, parked) = {
        let mut inner = this.inner.borrow_mut();
        let Some(slot) = inner.fibers.find(Pinned::new(fiber)) else {
            return false;
        };
        (slot, inner.fibers.parked(slot))
    };
    let woken = match parked {
        Some((token, Purpose::Block)) => this.inner.borrow_mut().wake(token, Cause::Unblocked),
        Some((_, Purpose::Io | Purpose::Send)) => false,
        None => {
            permit(this, slot);
            false
        }
    };
    if woken {
        this.wake();
    }
    woken
}

/// The VM has listed the fiber as waiting, and it is not parked yet: it is on its way through a subclass's override of
/// `block` or `kernel_sleep`, for between the list and our own there is nothing that lets another thread in. So the wait
/// it is about to begin is over already. Without an override, an `unblock` of a running fiber is late, and dropped.
fn permit(this: Obj<Selector>, slot: Slot) {
    let running = {
        let inner = this.inner.borrow();
        inner
            .fibers
            .get(slot)
            .is_some_and(|r| r.state == State::Running)
    };
    let overridden = |hook: &str| {
        let ruby = Ruby::get_with(this);
        let method: Result<Value, Error> = this.funcall("method", (ruby.to_symbol(hook),));
        let owner = method.and_then(|method| method.funcall::<_, _, RClass>("owner", ()));
        owner.is_ok_and(|owner| owner.as_raw() != Selector::class(&ruby).as_raw())
    };
    if running && (overridden("block") || overridden("kernel_sleep")) {
        if let Some(record) = this.inner.borrow_mut().fibers.get_mut(slot) {
            record.permit = true;
        }
    }
}

/// `fiber_interrupt(fiber, exception)`: raises in a fiber that waits for readiness; dropped if it no longer does.
///
/// From Ruby 4.1 on the VM hands over a proxy of the operation instead of the fiber (Bug #21918), which knows by itself
/// whether the operation still goes on: it is asked to raise at the next turn.
pub fn fiber_interrupt(this: Obj<Selector>, fiber: Value, exception: Value) -> bool {
    if this.is_closed() {
        return false;
    }
    if !raw::is_fiber(fiber) {
        this.interrupt_later(this.as_value(), fiber, exception);
        return true;
    }
    let slot = this.inner.borrow_mut().fibers.find(Pinned::new(fiber));
    let woken = slot.is_some_and(|slot| interrupt(this, slot, Pinned::new(exception)));
    if woken {
        this.wake();
    }
    woken
}

/// `io_closing(io)`: the IO object is about to be closed, by whatever thread. Raises IOError in the fibers that wait for
/// it; those that wait for another object on the same descriptor are left alone. Constant time, but for these.
///
/// nil: nobody waits for it. :told: somebody does. :busy: on behalf of another thread's fiber, a worker of the pool uses
/// the descriptor, which must not be closed under it: to be asked again a little later. (On the scheduler's own thread the
/// caller parks until that is over.)
pub fn io_closing(
    ruby: &Ruby,
    this: Obj<Selector>,
    [io]: [Value; 1],
) -> Result<Option<Symbol>, Error> {
    if this.is_closed() {
        return Ok(None);
    }
    this.inner.borrow_mut().submit();
    let Some(number) = raw::known_number(io) else {
        return Ok(None); // no scheduler has ever waited for it
    };
    let number = Watched::identity_of(number);
    let Ok(descriptor) = raw::real_io(io).and_then(raw::RealIo::descriptor) else {
        return Ok(None);
    };
    let waiting: Vec<Slot> = {
        let inner = this.inner.borrow();
        let tokens = inner.reactor.as_ref().map(|r| r.waiters(descriptor));
        let concerned = |token: &reactor::Token| {
            let record = inner.fibers.get(token.index());
            record.is_some_and(|record| [number, MANY].contains(&record.watching))
        };
        tokens
            .unwrap_or_default()
            .into_iter()
            .filter(concerned)
            .map(|token| token.index())
            .chain(inner.leases.holders(number))
            .collect()
    };
    if waiting.is_empty() {
        if let Some(reactor) = this.inner.borrow_mut().reactor.as_mut() {
            reactor.note_close(descriptor, OwnerId(number));
        }
        return Ok(None);
    }
    for slot in &waiting {
        let exception = ruby
            .exception_io_error()
            .new_instance((CLOSED_ELSEWHERE,))?;
        interrupt(this, *slot, Pinned::new(exception));
    }
    this.wake();
    if this.inner.borrow().leases.holds(number) {
        if !this.is_at_home() {
            return Ok(Some(ruby.to_symbol("busy")));
        }
        if let Entry::Usable(visit) = Selector::enter(ruby, &this)? {
            await_leases(&this, visit.slot, number)?;
        }
    }
    Ok(Some(ruby.to_symbol("told")))
}

/// What is raised in whoever uses an IO that somebody else has closed meanwhile.
#[cold]
#[inline(never)]
pub fn closed_elsewhere() -> Error {
    Error::new(
        crate::selector::ruby().exception_io_error(),
        CLOSED_ELSEWHERE,
    )
}

/// `io_close(descriptor)`, called by the VM since Ruby 4.0: closes what can be closed without waiting, and leaves the rest
/// (false) to the VM, which releases the GVL for it. May come from a finalizer, in the middle of anything.
pub fn io_close(this: Obj<Selector>, descriptor: i32) -> bool {
    !this.is_inert() && attempt::close(descriptor)
}

/// Raises in a fiber that waits for readiness; of no effect if it no longer does.
fn interrupt(this: Obj<Selector>, slot: Slot, exception: Pinned) -> bool {
    raw::wrote(this, exception);
    let mut inner = this.inner.borrow_mut();
    let Some((token, Purpose::Io)) = inner.fibers.parked(slot) else {
        return false;
    };
    if let Some(record) = inner.fibers.get_mut(slot) {
        record.pending = Some(Pending::Raise(exception));
    }
    inner.wake(token, Cause::Disturbed)
}

/// `timeout_after(duration, exception, message = nil) { |duration| … }`
pub fn timeout_after(
    ruby: &Ruby,
    this: Obj<Selector>,
    arguments: &[Value],
) -> Result<Value, Error> {
    let parsed = scan_args::<(Value, Value), (Option<Value>,), (), (), (), ()>(arguments)?;
    let (duration, exception) = parsed.required;
    let message = parsed.optional.0.unwrap_or(ruby.qnil().as_value());
    if !ruby.block_given() {
        return Err(Error::new(
            ruby.exception_local_jump_error(),
            "no block given (yield)",
        ));
    }
    let Some(limit) = convert::timeout(duration)? else {
        return raw::yield_block(duration);
    };
    let Entry::Usable(visit) = Selector::enter(ruby, &this)? else {
        return raw::yield_block(duration);
    };
    raw::wrote(this, Pinned::new(exception));
    raw::wrote(this, Pinned::new(message));
    let (token, timer) = {
        let mut inner = this.inner.borrow_mut();
        let token = inner.timeouts.insert(visit.slot, exception, message);
        let deadline = inner.deadline(Some(limit));
        (token, inner.timer(deadline, token))
    };
    let result = raw::yield_block(duration);
    let mut inner = this.inner.borrow_mut();
    inner.cancel_timer(timer);
    let crate::selector::Inner {
        timeouts, fibers, ..
    } = &mut *inner;
    timeouts.remove(token, fibers);
    drop(inner);
    result
}

/// `blocking_operation_wait(work)`, Ruby 3.4 and later: an operation that releases the GVL and may be done by another
/// thread. What it costs where it comes from decides about it, in `Lifecycle#weigh`.
///
/// Not IO.copy_stream: it waits for sockets in the middle, and would do that on a worker. Left to the VM, as in a forked
/// child, it waits by `io_wait`. Nor IO#close: interrupted before a worker has begun, it would not be done at all, and the
/// VM, which has forgotten the descriptor by then, would leave it open.
///
/// What leaves them to the VM is a value that Ruby code must not see: it crashes in an override that returns it. So for an
/// override `Lifecycle#carry_out` does them.
pub fn blocking_operation_wait(
    ruby: &Ruby,
    this: Obj<Selector>,
    [work]: [Value; 1],
) -> Result<Value, Error> {
    static CLOSE: Callers = Callers::new(&[("IO", "close")]);
    if CLOSE.have_called() {
        return Ok(raw::undefined()); // the most frequent case
    }
    match raw::caller_beyond::<8>("blocking_operation_wait", &OWN_AFFAIR) {
        Some(caller) if !caller.named && !this.is_closed() => {
            let place = ruby.integer_from_u64(caller.place as u64).as_value();
            raw::call_method(this.as_value(), "weigh", &[place, work])
        }
        Some(caller) if caller.by_override => {
            raw::call_method(this.as_value(), "carry_out", &[work])
        }
        _ => Ok(raw::undefined()),
    }
}

/// Methods whose blocking operations are left to the VM.
const OWN_AFFAIR: [&str; 2] = ["copy_stream", "close"];

/// `fetch(io, from, length, ahead)`: brings a stretch of a regular file into the page cache, the fiber being parked, unless
/// it is there, and asks for so many bytes after its beginning; lets others run who have waited for a while. False if it is
/// no regular file.
pub fn fetch(
    ruby: &Ruby,
    this: Obj<Selector>,
    io: Value,
    from: u64,
    length: usize,
    ahead: u64,
) -> Result<bool, Error> {
    let Entry::Usable(visit) = Selector::enter(ruby, &this)? else {
        return Ok(false);
    };
    visit.give_way_when_due()?;
    visit.selector.spent(length);
    files::fetch(&visit, &Watched::new(io)?, from, length, ahead)
}

/// `sync(io, data_only)`: fsync(2) or fdatasync(2) of a file, by the driver, the fiber being parked: 0, or the number of
/// the error. nil if the driver does not do that: nothing has been done then.
pub fn sync(
    ruby: &Ruby,
    this: Obj<Selector>,
    io: Value,
    data_only: bool,
) -> Result<Option<i32>, Error> {
    let Entry::Usable(visit) = Selector::enter(ruby, &this)? else {
        return Ok(None);
    };
    files::sync(&visit, &Watched::new(io)?, data_only)
}

/// `submit`: hands the kernel the writes that wait for the end of the turn.
pub fn submit(this: Obj<Selector>) {
    if !this.is_inert() {
        this.inner.borrow_mut().submit();
    }
}

/// `yield`: lets the other ready fibers run.
pub fn r#yield(ruby: &Ruby, this: Obj<Selector>, []: [Value; 0]) -> Result<bool, Error> {
    if let Entry::Usable(visit) = Selector::enter(ruby, &this)? {
        this.pass(visit.slot)?;
    }
    Ok(true)
}

/// `drain`
pub fn drain(ruby: &Ruby, this: Obj<Selector>) -> Result<(), Error> {
    match Selector::enter(ruby, &this)? {
        Entry::Usable(visit) => this.drain(&visit),
        Entry::Inert => Ok(()),
    }
}

/// `cancel`
pub fn cancel(ruby: &Ruby, this: Obj<Selector>) -> Result<(), Error> {
    match Selector::enter(ruby, &this)? {
        Entry::Usable(visit) => this.cancel(&visit),
        Entry::Inert => Ok(()),
    }
}
