//! `Reactor::Semaphore`. Each change of its state is made without a call of Ruby, so nothing can interrupt it: no other
//! thread, trap handler, Thread#kill or shortage of stack. As with Thread::Mutex, a permit is taken when `acquire` returns.

use std::{
    cell::{RefCell, RefMut},
    collections::BTreeMap,
};

use magnus::{
    DataTypeFunctions, Error, RArray, Ruby, TryConvert, TypedData, Value,
    gc::Marker,
    prelude::*,
    scan_args::{get_kwargs, scan_args},
    typed_data::Obj,
};
use reactor_scheduler::state::object_ref::ObjectRef;

use crate::ruby::{
    call::call_method,
    error::{exception, ruby},
    fiber::current_fiber,
    object::{Object, object_ref},
    panics,
    thread::fork_generation,
    with_block::Block,
};

#[derive(TypedData, Default)]
#[magnus(class = "Reactor::Semaphore", mark, free_immediately)]
pub struct Semaphore {
    state: RefCell<State>,
}

/// A turn is a number; turns are served in order.
#[derive(Default)]
struct State {
    /// 0 before `initialize`.
    permits: usize,
    last_turn: u64,
    /// The fiber and the Thread::Queue on which it waits.
    waiting: BTreeMap<u64, [ObjectRef; 2]>,
    /// The fibers in a block with a permit.
    held: BTreeMap<u64, ObjectRef>,
    /// The queues of turns that were granted a permit, until the fibers have been woken.
    granted: BTreeMap<u64, ObjectRef>,
    /// Permits taken without a block.
    kept: usize,
    forks: u32,
}

impl DataTypeFunctions for Semaphore {
    fn mark(&self, marker: &Marker) {
        let state = self.state.borrow();
        let waiting = state.waiting.values().flatten();
        let objects = waiting.chain(state.held.values());
        objects
            .chain(state.granted.values())
            .for_each(|object| object.mark(marker));
    }

    fn free(self: Box<Self>) {
        _ = panics::catch("end of a semaphore", || drop(self));
    }
}

impl State {
    fn available(&self) -> usize {
        self.permits.saturating_sub(self.held.len() + self.kept)
    }

    fn next_turn(&mut self) -> u64 {
        self.last_turn += 1;
        self.last_turn
    }

    /// Takes a free permit.
    fn take(&mut self, fiber: ObjectRef) -> Option<u64> {
        (self.available() > 0).then(|| {
            let turn = self.next_turn();
            self.held.insert(turn, fiber);
            turn
        })
    }

    fn wait(&mut self, fiber: ObjectRef, queue: ObjectRef) -> u64 {
        let turn = self.next_turn();
        self.waiting.insert(turn, [fiber, queue]);
        self.grant();
        turn
    }

    /// Forgets a turn that waits or has a permit.
    fn end(&mut self, turn: u64) {
        self.waiting.remove(&turn);
        self.held.remove(&turn);
        self.granted.remove(&turn);
        self.grant();
    }

    /// In a forked child, only the fiber that has forked continues.
    fn leave_parent(&mut self, own: ObjectRef) {
        self.forks = fork_generation();
        self.waiting.clear();
        self.granted.clear();
        self.held.retain(|_, fiber| *fiber == own);
    }

    fn keep(&mut self, turn: u64) {
        self.held.remove(&turn);
        self.kept += 1;
    }

    /// Releases a permit that was taken without a block, if there is one.
    fn release(&mut self) -> bool {
        let is_kept = self.kept > 0;
        self.kept -= usize::from(is_kept);
        self.grant();
        is_kept
    }

    /// Passes free permits to the fibers that wait, which [`wake`] then wakes.
    fn grant(&mut self) {
        while self.available() > 0 {
            let Some((turn, [fiber, queue])) = self.waiting.pop_first() else {
                return;
            };
            self.held.insert(turn, fiber);
            self.granted.insert(turn, queue);
        }
    }
}

impl Semaphore {
    /// Calls Ruby only while the state is not borrowed: a garbage collection marks it.
    fn state(&self) -> Result<RefMut<'_, State>, Error> {
        if self.state.borrow().permits == 0 {
            let message = "Reactor::Semaphore not initialized";
            return Err(Error::new(ruby().exception_type_error(), message));
        }
        let fiber = current_fiber();
        let mut state = self.state.borrow_mut();
        if state.forks != fork_generation() {
            state.leave_parent(fiber);
        }
        Ok(state)
    }
}

/// `initialize(permits)`
pub fn initialize(this: Obj<Semaphore>, permits: Value) -> Result<(), Error> {
    let permits = usize::try_convert(call("count", &[permits])?)?;
    let mut state = this.state.borrow_mut();
    state.permits = permits;
    state.forks = fork_generation();
    Ok(())
}

/// `permits`
pub fn permits(this: Obj<Semaphore>) -> Result<usize, Error> {
    Ok(this.state()?.permits)
}

/// `available`
pub fn available(this: Obj<Semaphore>) -> Result<usize, Error> {
    Ok(this.state()?.available())
}

/// `waiting`
pub fn waiting(this: Obj<Semaphore>) -> Result<usize, Error> {
    Ok(this.state()?.waiting.len())
}

/// `holders`: the fibers in a block with a permit.
pub fn holders(ruby: &Ruby, this: Obj<Semaphore>) -> RArray {
    let held = &this.state.borrow().held;
    ruby.ary_from_iter(held.values().map(|fiber| fiber.value()))
}

/// `acquire(timeout: nil)`
pub fn acquire(
    ruby: &Ruby,
    this: Value,
    arguments: &[Value],
    block: &mut Block,
) -> Result<Value, Error> {
    let seconds = seconds(arguments)?.unwrap_or(ruby.qnil().as_value());
    match hold(ruby, this, seconds, block)? {
        Some(result) => Ok(result),
        None => Err(exception(object_ref(call("too_late", &[seconds])?))),
    }
}

/// `try_acquire(timeout: 0)`
pub fn try_acquire(
    ruby: &Ruby,
    this: Value,
    arguments: &[Value],
    block: &mut Block,
) -> Result<Value, Error> {
    let seconds = seconds(arguments)?.unwrap_or(ruby.integer_from_i64(0).as_value());
    let result = hold(ruby, this, seconds, block)?;
    Ok(result.unwrap_or(ruby.qfalse().as_value()))
}

/// `release`
pub fn release(this: Obj<Semaphore>) -> Result<(), Error> {
    let released = this.state()?.release();
    if !released {
        let message = "no permit to release";
        return Err(Error::new(ruby().exception_thread_error(), message));
    }
    wake(this)
}

/// Calls what `lib/reactor/semaphore.rb` has for this file: methods of the class, which no subclass overrides.
fn call(name: &str, arguments: &[Value]) -> Result<Value, Error> {
    call_method(Semaphore::class(&ruby()).as_value(), name, arguments)
}

/// The value of `timeout:`, checked.
fn seconds(arguments: &[Value]) -> Result<Option<Value>, Error> {
    if arguments.is_empty() {
        return Ok(None);
    }
    let keywords = scan_args::<(), (), (), (), _, ()>(arguments)?.keywords;
    let options = get_kwargs::<_, (), (Option<Value>,), ()>(keywords, &[], &["timeout"])?;
    let limit = |value| call("limit", &[value]);
    options.optional.0.map(limit).transpose()
}

/// Waits for a permit. With a block, releases it when the block ends, and returns its value; otherwise true. `None` if
/// the time elapses.
fn hold(
    ruby: &Ruby,
    this: Value,
    seconds: Value,
    block: &mut Block,
) -> Result<Option<Value>, Error> {
    let this = Obj::<Semaphore>::try_convert(this)?;
    let fiber = current_fiber();
    let taken = this.state()?.take(fiber);
    let taken = taken.map_or_else(|| block.note(wait(this, seconds)), |turn| Ok(Some(turn)))?;
    let Some(turn) = taken else {
        return Ok(None);
    };
    if !ruby.block_given() {
        this.state()?.keep(turn);
        return Ok(Some(ruby.qtrue().as_value()));
    }
    let result = block.call(&[]);
    this.state()?.end(turn);
    wake(this)?;
    result.map(Some)
}

/// Waits in line.
fn wait(this: Obj<Semaphore>, seconds: Value) -> Result<Option<u64>, Error> {
    let queue = call("queue", &[])?;
    let fiber = current_fiber();
    let turn = this.state()?.wait(fiber, object_ref(queue));
    let waited = wake(this).and_then(|()| call("wait", &[queue, seconds]));
    if waited.is_ok() && this.state()?.held.contains_key(&turn) {
        this.state()?.granted.remove(&turn);
        return Ok(Some(turn));
    }
    this.state()?.end(turn);
    let woken = wake(this);
    waited?;
    woken.map(|()| None)
}

/// Wakes the fibers that were granted a permit. What a call raises may have come before the fiber was woken, so the next
/// call wakes it again: an element too many in its queue has no effect.
fn wake(this: Obj<Semaphore>) -> Result<(), Error> {
    loop {
        let next = this
            .state()?
            .granted
            .first_key_value()
            .map(|(turn, queue)| (*turn, queue.value()));
        let Some((turn, queue)) = next else {
            return Ok(());
        };
        call_method(queue, "push", &[queue])?;
        this.state()?.granted.remove(&turn);
    }
}
