//! The Ruby object `Reactor::Selector`: the ready queue, parking, switching, and turning the reactor.
//!
//! There is no loop fiber. A fiber that parks transfers straight to the next ready one; if there is none it turns the
//! reactor itself, and if its own wait ends it just returns.
//!
//! Nothing of `Inner` is borrowed across a switch, a GVL release or any call into Ruby: each borrow ends within the
//! statement or block that needs it.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    time::{Duration, Instant},
};

use magnus::{
    DataTypeFunctions, Error, ExceptionClass, RHash, Ruby, Symbol, TypedData, Value, gc::Marker,
    prelude::*, typed_data::Obj,
};
use reactor::{Backend, Deadline, Events, Handle, Reactor, Sleep, TimerId, Token};

use crate::{
    blocking::Leases,
    convert,
    fibers::{Cause, Fibers, Pending, Purpose, Slot, State, cause_of},
    files::Trust,
    inspect,
    loans::Loans,
    queue::Queue,
    raw::methods::{Mark, Receiver},
    raw::{self, Pinned},
    ring::Company,
    share::Share,
    timeouts::Timeouts,
    trace::{self, Trace, What},
    virtual_time::{self, Patience, VirtualTime},
};

/// So many fibers are resumed between two looks at the kernel, at most, and so many between two at the clock.
const RESUMES_PER_POLL: u32 = 64;
const STRIDE: u32 = 4;

/// How long fibers may go on with transfers that need not wait, counted from the last look at the kernel: then whoever is
/// ready gets a turn. The clock is asked each [`LOOK`] bytes; a call counts for [`CALL`] bytes besides those it transfers.
///
/// So the bound is this, and 16 calls or one slice of a file (256 KiB) more.
const TERM: Duration = Duration::from_micros(500);
const LOOK: usize = 128 << 10;
const CALL: usize = 8 << 10;

/// How long a fiber may go on with starting others.
const STARTS: Duration = Duration::from_millis(2);

#[derive(TypedData, Default)]
#[magnus(
    class = "Reactor::Selector",
    mark,
    size,
    wb_protected,
    free_immediately
)]
pub struct Selector {
    pub inner: RefCell<Inner>,
    owner: Cell<Option<Owner>>,
    /// What was transferred without waiting since the clock was last asked whether that is enough, in bytes.
    spent: Cell<usize>,
    share: Share,
}

/// Who may use the selector: the thread that made it, or the one it was set on before its first use.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Owner {
    thread: usize,
    forks: u32,
    /// Until it is used on its thread, it may still be set on another.
    used: bool,
}

#[derive(Default)]
pub struct Inner {
    pub reactor: Option<Reactor>,
    pub fibers: Fibers,
    pub timeouts: Timeouts,
    pub counters: Counters,
    /// What happens is written down here while somebody wants to know it.
    pub trace: Option<Box<Trace>>,
    /// Descriptors in the hands of the pool's workers.
    pub leases: Leases,
    pub trust: Trust,
    /// How many fibers' sends share a turn.
    pub company: Company,
    /// Memory in their hands.
    pub loans: Loans,
    backend: Option<Backend>,
    queue: Queue,
    events: Events,
    /// The fiber that has control as far as we gave it.
    pub running: Option<Slot>,
    /// The fiber at which those return that end: it waits in `fiber` or `drain` and is not one of ours.
    base: Option<Slot>,
    /// Resumes since the last poll.
    resumed: u32,
    /// Operations to interrupt, by the VM's proxies of them, each with what it is to raise.
    interrupts: VecDeque<[Pinned; 2]>,
    /// How often the kernel was slept in, one time after the other, with nothing but an `unblock` to hope for.
    quiet: u32,
    /// Time as a test wants it.
    pub virtual_time: Option<VirtualTime>,
    /// Raised in a fiber, meant for whoever runs the scheduler.
    pub escaped: Option<Pinned>,
    /// The first error that ended a fiber while others went on.
    pub failure: Option<Pinned>,
    /// Where a fiber last started another, and since when it has done nothing else.
    starts: Option<(Token, Instant)>,
    /// A fiber has just ended: whoever gets control next got it from the VM.
    pub ended: bool,
    pub sleeping: bool,
    closed: bool,
}

/// What happened here, beside what the core counts.
#[derive(Default)]
pub struct Counters {
    pub fibers: u64,
    pub parks: u64,
    pub switches: u64,
    pub turns: u64,
    pub sleeps: u64,
    pub wakeups: u64,
    /// Sends the driver was asked to carry out.
    pub queued: u64,
    /// Operations on files the driver was asked to carry out.
    pub carried: u64,
}

/// The scheduler that stands behind a hook, entered by the current fiber.
pub struct Visit<'a> {
    pub selector: &'a Selector,
    /// The same as an object, for write barriers.
    pub object: Obj<Selector>,
    pub slot: Slot,
}

impl Visit<'_> {
    /// Lets the others run if this fiber, or those before it, have gone on for a while without anybody waiting.
    ///
    /// Whether it did. To be called with nothing in hand: what is raised in the fiber is raised here.
    pub fn give_way_when_due(&self) -> Result<bool, Error> {
        if self.selector.spent.get() < LOOK {
            return Ok(false);
        }
        self.selector.spent.set(0);
        match self.selector.clock() {
            Some(clock) if clock.elapsed() >= TERM => {
                self.selector.step_back(self.slot).map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Since when this fiber has started others, without a wait of its own in between. `None`: this is the first.
    fn starting_since(&self) -> Option<Instant> {
        let mut inner = self.selector.inner.borrow_mut();
        let here = inner.fibers.place(self.slot);
        let begun = inner.starts.take().filter(|(place, _)| *place == here);
        begun.map(|(_, since)| since)
    }

    /// A fiber that starts another goes on when that parks, and so it may rely on nothing having happened in between but
    /// that. When it has started several, for a while, it lets everybody run.
    fn give_way_after_starts(&self, begun: Instant, since: Option<Instant>) -> Result<(), Error> {
        if since.is_some_and(|since| since.elapsed() >= STARTS) {
            return self.selector.step_back(self.slot);
        }
        let mut inner = self.selector.inner.borrow_mut();
        inner.starts = Some((inner.fibers.place(self.slot), since.unwrap_or(begun)));
        Ok(())
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.selector.inner.borrow_mut().leave(self.slot);
    }
}

/// How a hook finds the scheduler.
pub enum Entry<'a> {
    Usable(Visit<'a>),
    /// We are a forked child of the process the scheduler belongs to: do what Ruby does without a scheduler.
    Inert,
}

impl Receiver for Selector {
    fn mark() -> &'static Mark<Self> {
        static MARK: Mark<Selector> = Mark::new();
        &MARK
    }
}

impl DataTypeFunctions for Selector {
    fn mark(&self, marker: &Marker) {
        let inner = self.inner.borrow();
        inner.fibers.mark(marker);
        inner.timeouts.mark(marker);
        for error in [inner.escaped, inner.failure].into_iter().flatten() {
            error.mark(marker);
        }
        for object in inner.interrupts.iter().flatten() {
            object.mark(marker);
        }
    }

    fn size(&self) -> usize {
        let inner = self.inner.borrow();
        size_of::<Self>() + inner.fibers.size() + inner.queue.size()
    }
}

impl Selector {
    /// `initialize(backend = nil)`
    pub fn initialize(ruby: &Ruby, this: Obj<Self>, arguments: &[Value]) -> Result<(), Error> {
        let backend = match arguments {
            [] => None,
            [name] if name.is_nil() => None,
            [name] => Some(named_backend(ruby, *name)?),
            _ => return Err(Error::new(ruby.exception_arg_error(), "too many arguments")),
        };
        let (reactor, backend) = match Reactor::open(backend) {
            Ok(reactor) => {
                let backend = reactor.backend();
                (reactor, backend)
            }
            Err(error) if error.raw_os_error().is_some() => {
                return Err(convert::system_error(ruby, &error));
            }
            Err(error) => return Err(Error::new(ruby.exception_arg_error(), error.to_string())),
        };
        let mut inner = this.inner.borrow_mut();
        if inner.reactor.is_some() || inner.closed {
            let message = "already initialized";
            return Err(Error::new(ruby.exception_runtime_error(), message));
        }
        inner.backend = backend;
        inner.reactor = Some(reactor);
        this.own(false);
        Ok(())
    }

    // --- entering ------------------------------------------------------------------------------------------------

    /// Begins a hook in the current fiber. ThreadError in another thread, RuntimeError once closed.
    pub fn enter<'a>(ruby: &Ruby, this: &'a Obj<Self>) -> Result<Entry<'a>, Error> {
        let selector: &'a Self = this;
        if !selector.admit(ruby, this.as_value())? {
            return Ok(Entry::Inert);
        }
        let fiber = raw::current_fiber();
        let mut inner = selector.inner.borrow_mut();
        if inner.closed || inner.reactor.is_none() {
            let message = "this scheduler is closed";
            return Err(Error::new(ruby.exception_runtime_error(), message));
        }
        let slot = match inner.fibers.find(fiber) {
            Some(slot) => slot,
            None => {
                drop(inner);
                let slot = selector.admit_fiber(*this);
                inner = selector.inner.borrow_mut();
                slot
            }
        };
        inner.running = Some(slot);
        inner.fibers.visit(slot);
        drop(inner);
        Ok(Entry::Usable(Visit {
            selector,
            object: *this,
            slot,
        }))
    }

    /// Whether a hook may do what needs no wait without entering: the scheduler can be used, and nobody is to be given way
    /// to. ThreadError in another thread.
    pub fn may_go_ahead(&self, ruby: &Ruby, this: Value) -> Result<bool, Error> {
        let inner = self.inner.borrow();
        let usable = !inner.closed && inner.reactor.is_some() && self.spent.get() < LOOK;
        drop(inner);
        Ok(self.admit(ruby, this)? && usable)
    }

    /// So many bytes were transferred without waiting.
    pub fn spent(&self, bytes: usize) {
        let spent = self.spent.get();
        self.spent
            .set(spent.saturating_add(bytes).saturating_add(CALL));
    }

    /// The slot of the current fiber, a new one if need be.
    pub fn admit_fiber(&self, this: Obj<Self>) -> Slot {
        let fiber = raw::current_fiber();
        let known = self.inner.borrow_mut().fibers.find(fiber);
        known.unwrap_or_else(|| {
            let slot = self.inner.borrow_mut().fibers.insert(fiber, false);
            raw::wrote(this, fiber);
            slot
        })
    }

    /// Whether the current thread may go on (ThreadError if not) in this process (false if not).
    fn admit(&self, ruby: &Ruby, this: Value) -> Result<bool, Error> {
        let thread = raw::current_thread().address();
        let Some(owner) = self.owner.get() else {
            let message = "uninitialized scheduler";
            return Err(Error::new(ruby.exception_runtime_error(), message));
        };
        if owner.forks != raw::fork_generation() {
            return Ok(false);
        }
        if owner.thread != thread {
            if owner.used || raw::current_scheduler() != Pinned::new(this) {
                let message = "this scheduler belongs to another thread";
                return Err(Error::new(ruby.exception_thread_error(), message));
            }
            self.own(true);
        } else if !owner.used {
            self.own(true);
        }
        Ok(true)
    }

    /// Whether the current thread is the scheduler's.
    pub fn is_at_home(&self) -> bool {
        let thread = raw::current_thread().address();
        self.owner.get().is_some_and(|owner| owner.thread == thread)
    }

    fn own(&self, used: bool) {
        self.owner.set(Some(Owner {
            thread: raw::current_thread().address(),
            forks: raw::fork_generation(),
            used,
        }));
    }

    /// Whether this process is a forked child of the one the scheduler belongs to.
    pub fn is_inert(&self) -> bool {
        self.owner
            .get()
            .is_some_and(|owner| owner.forks != raw::fork_generation())
    }

    /// Whether `scheduler` is the Ruby object of this selector.
    pub fn is(scheduler: Value, selector: &Self) -> bool {
        Obj::<Self>::try_convert(scheduler).is_ok_and(|it| std::ptr::eq(&*it, selector))
    }

    pub fn is_closed(&self) -> bool {
        self.is_inert() || self.inner.borrow().closed
    }

    /// Fibers of ours that have not finished.
    pub fn live(&self) -> usize {
        self.inner.borrow().fibers.live()
    }

    /// Releases the reactor's descriptors. Whatever is used afterwards raises. ThreadError in another thread.
    pub fn shutdown(ruby: &Ruby, this: Obj<Self>) -> Result<(), Error> {
        if !this.is_closed() && this.admit(ruby, this.as_value())? {
            let mut inner = this.inner.borrow_mut();
            inner.closed = true;
            inner.reactor = None;
            inner.loans.settle();
        }
        Ok(())
    }

    // --- parking -------------------------------------------------------------------------------------------------

    /// Suspends the current fiber until the wait begun for it is over. What is raised here instead (by a timeout, an
    /// interrupt, Fiber#raise, Fiber#kill, Thread#kill) comes back as the error; the caller undoes its registrations
    /// either way.
    #[inline(always)] // each frame less is memory of every fiber that is parked
    pub fn park(&self, slot: Slot) -> Result<Cause, Error> {
        self.inner.borrow_mut().parks(slot);
        let result = self.wait_for_turn(slot, Self::is_over);
        self.inner.borrow_mut().parked(slot);
        result
    }

    /// As [`Selector::park`], but what is pending for the fiber only ends the wait and is raised later. An error is one of
    /// the VM's own (Fiber#raise, Fiber#kill), or of the turn.
    #[inline(never)]
    pub fn park_through(&self, slot: Slot) -> Result<Cause, Error> {
        self.inner.borrow_mut().parks(slot);
        let result = self.wait_for_turn(slot, |this, slot| {
            let inner = this.inner.borrow();
            Ok(match inner.fibers.get(slot).map(|record| record.state) {
                Some(State::Woken(cause)) => Some(cause),
                Some(State::Parked(_)) => None,
                Some(State::Running) | None => Some(Cause::Disturbed),
            })
        });
        self.inner.borrow_mut().parked(slot);
        result
    }

    /// Raises what is pending for a fiber that does not wait.
    pub fn raise_pending(&self, slot: Slot) -> Result<(), Error> {
        self.is_over(slot).map(drop)
    }

    #[inline(always)]
    fn wait_for_turn(
        &self,
        slot: Slot,
        is_over: impl Fn(&Self, Slot) -> Result<Option<Cause>, Error>,
    ) -> Result<Cause, Error> {
        loop {
            if let Some(cause) = is_over(self, slot)? {
                return Ok(cause);
            }
            let next = self.inner.borrow_mut().next_ready();
            match next {
                Next::Fiber(next, _) if next == slot => {}
                Next::Fiber(next, fiber) => self.switch(slot, next, fiber)?,
                Next::Poll => self.turn(slot, false)?,
                Next::Nothing => self.turn(slot, true)?,
            }
        }
    }

    /// The end of the fiber's wait, if it has come; raises what is pending for the fiber.
    #[inline(never)]
    fn is_over(&self, slot: Slot) -> Result<Option<Cause>, Error> {
        let mut inner = self.inner.borrow_mut();
        let escaped = inner.take_escaped(slot);
        let Some(record) = inner.fibers.get_mut(slot) else {
            return Ok(Some(Cause::Unblocked));
        };
        let state = record.state;
        // A lock that was handed over is taken before anything is raised: nobody else would be told of it.
        let pending = match state {
            State::Woken(Cause::Unblocked) => None,
            _ => record.pending.take(),
        };
        let fired = record.fired > 0 && state != State::Woken(Cause::Unblocked);
        drop(inner);
        if let Some(error) = escaped {
            return Err(self.exception(error));
        }
        match pending {
            Some(Pending::Raise(exception)) => return Err(self.exception(exception)),
            Some(Pending::Kill) => return Err(self.kill(slot)),
            None => {}
        }
        if fired {
            return Err(Timeouts::raise(self, slot));
        }
        Ok(match state {
            State::Woken(cause) => Some(cause),
            State::Parked(_) => None,
            State::Running => Some(Cause::Disturbed),
        })
    }

    #[cold]
    #[inline(never)]
    pub fn exception(&self, exception: Pinned) -> Error {
        match magnus::Exception::from_value(exception.value()) {
            Some(exception) => exception.into(),
            None => raw::make_exception(&[exception.value()]).unwrap_or_else(|error| error),
        }
    }

    /// Gives control to another fiber; returns when this one gets it back, by whatever way.
    #[inline(always)]
    fn switch(&self, from: Slot, to: Slot, fiber: Pinned) -> Result<(), Error> {
        {
            let mut inner = self.inner.borrow_mut();
            inner.running = Some(to);
            inner.counters.switches += 1;
        }
        let result = raw::transfer(fiber, &[]);
        self.regained(from);
        self.came_back(from, result)
    }

    /// Control is back in `slot`. If it came from a fiber that neither ended nor parked (it used Fiber#raise,
    /// Fiber#kill or Fiber#transfer itself), that one is suspended without a wake-up to come: queue it.
    #[inline(never)]
    pub fn regained(&self, slot: Slot) {
        let mut inner = self.inner.borrow_mut();
        let left = inner.running.replace(slot);
        inner.note(What::Control, slot);
        if std::mem::take(&mut inner.ended) {
            return;
        }
        if let Some(left) = left.filter(|left| *left != slot) {
            let running = inner
                .fibers
                .get(left)
                .is_some_and(|r| r.state == State::Running);
            if running {
                inner.enqueue(left);
            }
        }
    }

    /// Ends the current fiber, which is one of ours: unwinds it, running its ensure blocks, and nothing can rescue it.
    #[cold]
    #[inline(never)]
    fn kill(&self, slot: Slot) -> Error {
        let fiber = raw::current_fiber();
        if let Some(record) = self.inner.borrow_mut().fibers.get_mut(slot) {
            record.killed = true;
        }
        raw::kill(fiber)
    }

    /// The VM strikes a fiber that is killed anew at each switch back into it, which would cut off an ensure block at its
    /// first wait: once is enough.
    #[inline(always)]
    fn came_back(&self, slot: Slot, result: Result<(), Error>) -> Result<(), Error> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.came_back_raising(slot, error),
        }
    }

    #[cold]
    #[inline(never)]
    fn came_back_raising(&self, slot: Slot, error: Error) -> Result<(), Error> {
        let once_more = raw::is_kill(&error) && {
            let mut inner = self.inner.borrow_mut();
            let record = inner.fibers.get_mut(slot);
            record.is_some_and(|record| std::mem::replace(&mut record.killed, true))
        };
        if once_more {
            raw::forget_kill();
            return Ok(());
        }
        Err(error)
    }

    // --- turning the reactor -------------------------------------------------------------------------------------

    /// One turn: what the kernel, the timers and other threads have for us; asleep without the GVL if `idle` and there
    /// is nothing.
    #[inline(never)]
    pub fn turn(&self, slot: Slot, idle: bool) -> Result<(), Error> {
        self.collect()?;
        self.raise_in_others(slot)?;
        let patience = virtual_time::patience(self, idle)?;
        let sleep = {
            let mut inner = self.inner.borrow_mut();
            if !idle || !inner.is_idle() || inner.fibers.has_turn(slot) {
                None
            } else {
                inner.lie_down(patience)
            }
        };
        if let Some((sleep, handle)) = sleep {
            raw::without_gvl(&sleep, &handle);
            drop(sleep);
            self.inner.borrow_mut().get_up();
            self.collect()?;
            if let Some(now) = self.clock() {
                self.share.rested(now);
            }
            virtual_time::go_on(self, patience);
            raw::check_interrupts().or_else(|error| self.forward(slot, error))?;
            inspect::raise_deadlock(self).or_else(|error| self.forward(slot, error))?;
        } else if raw::is_interrupted() {
            // A signal marks the fiber that has control, and the mark does not follow the switch we may be about to make.
            raw::check_interrupts().or_else(|error| self.forward(slot, error))?;
        } else if !raw::is_only_thread() {
            self.share_gvl(slot)?;
        }
        self.raise_in_others(slot)?;
        if self.inner.borrow().virtual_time.is_some() {
            self.give_way(slot)?; // where order matters more than a switch, even the one that looked stands in line
        }
        Ok(())
    }

    /// The time of the last look at the kernel.
    fn clock(&self) -> Option<Instant> {
        self.inner.borrow().reactor.as_ref().map(Reactor::clock)
    }

    /// Lets other threads have the GVL when it is their turn.
    fn share_gvl(&self, slot: Slot) -> Result<(), Error> {
        let Some(now) = self.clock().filter(|now| self.share.is_over(*now)) else {
            return Ok(());
        };
        let passed = raw::pass_gvl();
        self.share.given(now, Instant::now());
        passed.or_else(|error| self.forward(slot, error))
    }

    fn collect(&self) -> Result<(), Error> {
        let failed = {
            let mut inner = self.inner.borrow_mut();
            inner.collect()
        };
        failed.map_err(|error| convert::system_error(&ruby(), &error))
    }

    /// An exception that reached the polling fiber only because it happened to poll is raised in the fiber that runs
    /// the scheduler; where there is none, here.
    fn forward(&self, slot: Slot, error: Error) -> Result<(), Error> {
        let exception = match error.value() {
            Some(exception) => Pinned::new(exception),
            None => return Err(error), // Thread#kill: the VM itself carries it from here to the root fiber
        };
        let base = {
            let inner = self.inner.borrow();
            inner.base.filter(|base| *base != slot)
        };
        let Some(base) = base else { return Err(error) };
        let fiber = {
            let mut inner = self.inner.borrow_mut();
            inner.escaped = Some(exception);
            inner.fibers.get(base).map(|record| record.fiber)
        };
        match fiber {
            Some(fiber) => self.switch(slot, base, fiber),
            None => Err(error),
        }
    }

    /// Raises where it cannot be left to a fiber that gets control: in operations that only their proxies know, and for
    /// timeouts whose fiber is not parked itself but waits for an Enumerator that is.
    fn raise_in_others(&self, slot: Slot) -> Result<(), Error> {
        loop {
            let next = self.inner.borrow_mut().interrupts.pop_front();
            let Some([proxy, exception]) = next else {
                break;
            };
            let result = raw::call_method(proxy.value(), "raise", &[exception.value()]);
            self.regained(slot);
            result?;
        }
        loop {
            let next = {
                let mut inner = self.inner.borrow_mut();
                let Inner {
                    timeouts, fibers, ..
                } = &mut *inner;
                if fibers.has_turn(slot) {
                    return Ok(()); // came meanwhile: nobody would queue us again; the next who polls goes on
                }
                timeouts.next_indirect(fibers)
            };
            let Some((target, fiber)) = next else {
                return Ok(());
            };
            let error = Timeouts::raise(self, target);
            if let Some(exception) = error.value() {
                let result = raw::raise_in(fiber, exception);
                self.regained(slot);
                self.came_back(slot, result)?;
            }
        }
    }

    /// Lets the operation behind this proxy raise at the next turn.
    pub fn interrupt_later(&self, this: Value, proxy: Value, exception: Value) {
        let pair = [Pinned::new(proxy), Pinned::new(exception)];
        for object in pair {
            raw::wrote(this, object);
        }
        self.inner.borrow_mut().interrupts.push_back(pair);
        self.wake();
    }

    /// Other threads may be asleep on our behalf: tell the one that is.
    pub fn wake(&self) {
        let mut inner = self.inner.borrow_mut();
        if inner.sleeping && !self.is_inert() {
            inner.counters.wakeups += 1;
            if let Some(reactor) = &inner.reactor {
                _ = reactor.handle().wake();
            }
        }
    }

    // --- life of fibers ------------------------------------------------------------------------------------------

    /// Starts a fiber of ours: it runs at once, until it parks or ends, and then the caller goes on.
    pub fn start(
        this: Obj<Self>,
        visit: &Visit,
        fiber: Pinned,
        arguments: &[Value],
    ) -> Result<(), Error> {
        trace::birth(this, fiber, arguments)?;
        let child = {
            let mut inner = this.inner.borrow_mut();
            inner.counters.fibers += 1;
            inner.fibers.insert(fiber, true)
        };
        raw::wrote(this, fiber);
        let caller = visit.slot;
        let (outer, own) = {
            let mut inner = this.inner.borrow_mut();
            let spawner = inner.enqueue_first(caller);
            if let Some(record) = inner.fibers.get_mut(child) {
                record.spawner = spawner;
            }
            let own = inner.fibers.get(caller).is_some_and(|record| record.own);
            let outer = inner.base;
            if !own {
                inner.base = Some(caller);
            }
            inner.running = Some(child);
            inner.note(What::Control, child);
            (outer, own)
        };
        let starts = own.then(|| (Instant::now(), visit.starting_since()));
        let result = raw::transfer(fiber, arguments);
        this.regained(caller);
        let result = this.came_back(caller, result);
        if !own {
            // The hooks never see what a fiber writes that is none of ours.
            this.inner.borrow_mut().submit();
        }
        let result = result
            .and_then(|()| this.give_way(caller))
            .and_then(|()| this.return_to(caller));
        let mut inner = this.inner.borrow_mut();
        inner.base = outer;
        inner.fibers.finish(caller);
        drop(inner);
        result?;
        starts.map_or(Ok(()), |(begun, since)| {
            visit.give_way_after_starts(begun, since)
        })
    }

    /// Back in a fiber that was queued rather than parked: raise what is meant for it.
    fn return_to(&self, slot: Slot) -> Result<(), Error> {
        let mut inner = self.inner.borrow_mut();
        let escaped = inner.take_escaped(slot);
        let pending = inner.fibers.get_mut(slot).and_then(|r| r.pending.take());
        drop(inner);
        if let Some(error) = escaped {
            return Err(self.exception(error));
        }
        match pending {
            Some(Pending::Raise(exception)) => Err(self.exception(exception)),
            Some(Pending::Kill) => Err(self.kill(slot)),
            None => Ok(()),
        }
    }

    /// Goes to the back of the ready queue, and looks at the kernel once.
    pub fn pass(&self, slot: Slot) -> Result<(), Error> {
        let token = self.inner.borrow_mut().fibers.begin(slot, Purpose::Block);
        {
            let mut inner = self.inner.borrow_mut();
            if inner.fibers.wake(token, Cause::Elapsed) {
                inner.queue.push(token);
            }
        }
        self.go_last(slot)
    }

    /// Goes behind everybody who is ready, and behind everybody the kernel has news for.
    fn step_back(&self, slot: Slot) -> Result<(), Error> {
        {
            let mut inner = self.inner.borrow_mut();
            let token = inner.fibers.begin(slot, Purpose::Block);
            if inner.fibers.wake(token, Cause::Elapsed) {
                inner.queue.push_patient(token);
            }
        }
        self.go_last(slot)
    }

    /// Woken already: what follows only lets the others go first.
    fn go_last(&self, slot: Slot) -> Result<(), Error> {
        let result = self
            .turn(slot, false)
            .and_then(|()| self.give_way(slot))
            .and_then(|()| self.is_over(slot).map(drop));
        self.inner.borrow_mut().fibers.finish(slot);
        result
    }

    /// In the ready queue: lets those who stand before us go first, until it is our turn. (Control may also come back from
    /// a fiber that ended, out of turn.)
    fn give_way(&self, slot: Slot) -> Result<(), Error> {
        let queued = || {
            self.inner
                .borrow()
                .fibers
                .get(slot)
                .is_some_and(|r| r.queued)
        };
        while queued() {
            let next = self.inner.borrow_mut().next_ready();
            match next {
                Next::Fiber(next, fiber) if next != slot => self.switch(slot, next, fiber)?,
                Next::Poll => self.turn(slot, false)?,
                Next::Fiber(..) | Next::Nothing => break,
            }
        }
        Ok(())
    }

    /// Runs until no fiber of ours is left. Raises what escaped from one.
    pub fn drain(&self, visit: &Visit) -> Result<(), Error> {
        let slot = visit.slot;
        self.forbid_own(slot)?;
        let outer = {
            let mut inner = self.inner.borrow_mut();
            inner.note(What::Drain, slot);
            inner.base.replace(slot)
        };
        let result = self.drain_fibers(slot);
        let mut inner = self.inner.borrow_mut();
        inner.base = outer;
        inner.parked(slot);
        let failure = if result.is_ok() {
            inner.failure.take()
        } else {
            None
        };
        drop(inner);
        result?;
        failure.map_or(Ok(()), |failure| Err(self.exception(failure)))
    }

    fn forbid_own(&self, slot: Slot) -> Result<(), Error> {
        let own = self.inner.borrow().fibers.get(slot).is_some_and(|r| r.own);
        if own {
            let message = "a fiber cannot wait for the end of its own scheduler";
            return Err(error_named(&ruby(), "FiberError", message));
        }
        Ok(())
    }

    fn drain_fibers(&self, slot: Slot) -> Result<(), Error> {
        loop {
            self.return_to(slot)?;
            let next = {
                let mut inner = self.inner.borrow_mut();
                if inner.fibers.live() == 0 {
                    return Ok(());
                }
                inner.next_ready()
            };
            match next {
                Next::Fiber(next, _) if next == slot => {}
                Next::Fiber(next, fiber) => self.switch(slot, next, fiber)?,
                Next::Poll => self.turn(slot, false)?,
                Next::Nothing => self.turn(slot, true)?,
            }
        }
    }

    /// Ends every fiber of ours. Parked ones unwind when they next get control; one that waits for an Enumerator which is
    /// parked is killed, the VM finding the way.
    pub fn cancel(&self, visit: &Visit) -> Result<(), Error> {
        self.forbid_own(visit.slot)?;
        let slots: Vec<Slot> = self.inner.borrow().fibers.own().collect();
        for slot in slots {
            let at_once = {
                let mut inner = self.inner.borrow_mut();
                inner.kill(slot).filter(|_| slot != visit.slot)
            };
            if let Some(fiber) = at_once {
                self.inner.borrow_mut().enqueue_first(visit.slot);
                let killed = fiber.value().funcall::<_, _, Value>("kill", ());
                self.regained(visit.slot);
                self.inner.borrow_mut().fibers.finish(visit.slot);
                killed?;
            }
        }
        Ok(())
    }

    // --- what it is ----------------------------------------------------------------------------------------------

    pub fn backend_name(&self) -> Option<Symbol> {
        let backend = self.inner.borrow().backend?;
        Some(ruby().to_symbol(backend.name()))
    }

    pub fn statistics(ruby: &Ruby, this: Obj<Self>) -> Result<RHash, Error> {
        let rows = {
            let inner = this.inner.borrow();
            let mut rows = inner.counters.rows();
            rows.push(("live", inner.fibers.live() as u64));
            rows.push(("parked", inner.fibers.parked_count() as u64));
            if let Some(reactor) = &inner.reactor {
                rows.push(("timers", reactor.timers() as u64));
                rows.extend(reactor.statistics().rows());
                rows.extend(reactor.pool().statistics().rows());
            }
            rows
        };
        let hash = ruby.hash_new();
        for (name, value) in rows {
            hash.aset(ruby.to_symbol(name), value)?;
        }
        Ok(hash)
    }
}

/// Who is to run next.
enum Next {
    Fiber(Slot, Pinned),
    /// Somebody is ready, but the kernel has waited long enough.
    Poll,
    Nothing,
}

impl Inner {
    #[inline(never)]
    fn next_ready(&mut self) -> Next {
        if self.resumed >= RESUMES_PER_POLL || self.is_overdue() {
            return Next::Poll;
        }
        while let Some(token) = self.queue.pop() {
            if let Some(fiber) = self.fibers.take_queued(token) {
                self.resumed += 1;
                return Next::Fiber(token.index(), fiber);
            }
        }
        Next::Nothing
    }

    /// Fibers that are quickly done are polled for by number; others by the time they have taken. Asking the clock takes as
    /// long as half a switch: so only the first few resumes after a poll do, and then every fourth.
    fn is_overdue(&self) -> bool {
        let look = self.resumed > 0 && (self.resumed <= STRIDE || self.resumed % STRIDE == 0);
        let clock = self.reactor.as_ref().filter(|_| look).map(Reactor::clock);
        clock.is_some_and(|clock| clock.elapsed() >= TERM)
    }

    // Around each wait and each sleep: counted, and written down if somebody wants it.

    fn parks(&mut self, slot: Slot) {
        self.counters.parks += 1;
        let clock = self.reactor.as_ref().map(Reactor::clock);
        if let Some(record) = self.fibers.get_mut(slot) {
            record.since = clock;
        }
        self.note(What::Park, slot);
    }

    fn parked(&mut self, slot: Slot) {
        self.note(What::Unpark, slot);
        self.fibers.finish(slot);
    }

    /// Writes down what happens to a fiber.
    pub fn note(&mut self, what: What, slot: Slot) {
        trace::note(&mut self.trace, &self.fibers, what, slot);
    }

    fn lie_down(&mut self, patience: Option<Patience>) -> Option<(Sleep, Handle)> {
        let reactor = self.reactor.as_mut()?;
        let stuck = self.fibers.is_stuck() && reactor.timers() == 0;
        self.quiet = if stuck { self.quiet + 1 } else { 0 };
        let limit = match patience {
            Some(patience) => Some(patience.left()),
            None => stuck.then(|| inspect::patience(self.quiet)),
        };
        self.sleeping = true;
        self.counters.sleeps += 1;
        if let Some(trace) = &mut self.trace {
            trace.turn(What::Sleep);
        }
        Some((reactor.sleep(limit), reactor.handle()))
    }

    fn get_up(&mut self) {
        self.sleeping = false;
        if let Some(trace) = &mut self.trace {
            trace.turn(What::Wake);
        }
    }

    /// Whether nobody can run.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.interrupts.is_empty()
    }

    /// Whether the last sleep ended only because its time was up, with nothing but an `unblock` to hope for.
    pub fn slept_in_vain(&self) -> bool {
        self.quiet > 0 && self.is_idle() && self.fibers.is_stuck()
    }

    /// The non-blocking half of a turn: wakes everybody whose event is there.
    fn collect(&mut self) -> std::io::Result<()> {
        self.resumed = 0;
        self.company.leave();
        self.counters.turns += 1;
        if let Some(trace) = &mut self.trace {
            trace.turn(What::Turn);
        }
        let Some(reactor) = &mut self.reactor else {
            return Ok(());
        };
        self.events.clear();
        reactor.collect(&mut self.events)?;
        for event in self.events.iter() {
            if Timeouts::owns(event.token) {
                if let Some(token) = self.timeouts.fire(event.token, &mut self.fibers) {
                    self.queue.push_due(token);
                    trace::note(&mut self.trace, &self.fibers, What::Ready, token.index());
                }
                continue;
            }
            let cause = cause_of(event.ready);
            if self.fibers.wake(event.token, cause) {
                match cause {
                    Cause::Elapsed => self.queue.push_due(event.token),
                    _ => self.queue.push(event.token),
                }
                let slot = event.token.index();
                trace::note(&mut self.trace, &self.fibers, What::Ready, slot);
            }
        }
        if let Some(trace) = &mut self.trace {
            trace.turn(What::Turned);
        }
        self.queue.looked();
        Ok(())
    }

    /// Ends the wait with this token and queues its fiber.
    pub fn wake(&mut self, token: Token, cause: Cause) -> bool {
        let woken = self.fibers.wake(token, cause);
        if woken {
            self.queue.push(token);
            self.note(What::Ready, token.index());
        }
        woken
    }

    /// Does anybody wait for control? Entries that have been overtaken by events are dropped on the way.
    pub fn somebody_is_ready(&mut self) -> bool {
        let fibers = &self.fibers;
        self.queue.has(|token| fibers.is_queued(token))
    }

    fn enqueue(&mut self, slot: Slot) {
        if let Some(token) = self.fibers.requeue(slot) {
            self.queue.push(token);
        }
    }

    fn enqueue_first(&mut self, slot: Slot) -> Option<Token> {
        let token = self.fibers.requeue(slot)?;
        self.queue.push_first(token);
        Some(token)
    }

    fn leave(&mut self, slot: Slot) {
        self.fibers.leave(slot);
        if self.running == Some(slot) && self.fibers.get(slot).is_none() {
            self.running = None; // the slot will be somebody else's
        }
    }

    /// The error meant for whoever runs the scheduler, if `slot` is that one.
    fn take_escaped(&mut self, slot: Slot) -> Option<Pinned> {
        let concerned = self.base.is_none_or(|base| base == slot);
        let own = self.fibers.get(slot).is_some_and(|record| record.own);
        if concerned && !own {
            self.escaped.take()
        } else {
            None
        }
    }

    /// Sentences a fiber; returned if it is not parked, so that the caller has to kill it itself.
    fn kill(&mut self, slot: Slot) -> Option<Pinned> {
        if let Some((token, _)) = self.fibers.parked(slot) {
            self.wake(token, Cause::Disturbed);
        } else if !matches!(self.fibers.get(slot)?.state, State::Woken(_)) {
            return Some(self.fibers.get(slot)?.fiber);
        }
        self.fibers.get_mut(slot)?.pending = Some(Pending::Kill);
        None
    }

    /// The point so long from now on the timers' clock.
    pub fn deadline(&self, limit: Option<Duration>) -> Option<Deadline> {
        Some(self.reactor.as_ref()?.deadline(limit?))
    }

    /// The deadline timer of a wait.
    pub fn timer(&mut self, deadline: Option<Deadline>, token: Token) -> Option<TimerId> {
        Some(self.reactor.as_mut()?.timer(deadline?, token))
    }

    pub fn cancel_timer(&mut self, timer: Option<TimerId>) {
        if let (Some(reactor), Some(timer)) = (&mut self.reactor, timer) {
            reactor.cancel(timer);
        }
    }
}

impl Counters {
    /// Changes whenever control goes from one fiber to another, or to the reactor.
    pub fn pulse(&self) -> u64 {
        self.fibers + self.parks + self.switches + self.turns
    }

    fn rows(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("fibers", self.fibers),
            ("parks", self.parks),
            ("switches", self.switches),
            ("turns", self.turns),
            ("sleeps", self.sleeps),
            ("wakeups", self.wakeups),
            ("queued", self.queued),
            ("carried", self.carried),
        ]
    }
}

/// A backend by Symbol or String. ArgumentError with the reason if it is unknown or cannot be had here.
pub fn named_backend(ruby: &Ruby, name: Value) -> Result<Backend, Error> {
    let text: String = match Symbol::from_value(name) {
        Some(symbol) => symbol.name()?.into_owned(),
        None => String::try_convert(name)?,
    };
    text.parse::<Backend>()
        .map_err(|error| Error::new(ruby.exception_arg_error(), error.to_string()))
}

/// An exception of a class that magnus has no method for.
#[cold]
#[inline(never)]
pub fn error_named(ruby: &Ruby, class: &str, message: &'static str) -> Error {
    match ruby.eval::<ExceptionClass>(class) {
        Ok(class) => Error::new(class, message),
        Err(error) => error,
    }
}

pub fn ruby() -> Ruby {
    // Only reached from methods that Ruby called.
    Ruby::get().unwrap_or_else(|_| std::process::abort())
}
