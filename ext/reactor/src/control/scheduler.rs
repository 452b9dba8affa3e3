//! The Ruby object `Reactor::NativeScheduler`: the scheduler's state, its thread, its time slice and its GVL quota.

use std::cell::{Cell, OnceCell, Ref, RefCell, RefMut};

use magnus::{
    DataTypeFunctions, Error, RHash, Ruby, Symbol, TypedData, Value, gc::Marker, prelude::*,
    typed_data::Obj,
};
use reactor::Reactor;
use reactor_scheduler::state::{
    State, descriptors_in_use::Use, gvl_quota::GvlQuota, object_ref::ObjectRef,
    time_slice::TimeSlice,
};

use crate::{
    control::{children::Children, thread_affinity::ThreadAffinity, unpolled_wait},
    ruby::{
        call::call_method,
        convert,
        error::{self, ruby, runtime_error},
        object::{Object, object_ref, write_barrier},
        panics,
        thread::{self, blocking_call},
    },
};

#[derive(TypedData, Default)]
#[magnus(
    class = "Reactor::NativeScheduler",
    mark,
    wb_protected,
    free_immediately
)]
pub struct Scheduler {
    state: RefCell<State>,
    pub affinity: ThreadAffinity,
    pub slice: TimeSlice,
    pub quota: GvlQuota,
    pub children: Children,
    /// The VM refuses to lock this mutex in a trap handler or finalizer. The refusal shows that one of them is running.
    mutex: Cell<Option<ObjectRef>>,
    /// The object that marks the watchers (`watcher_marks.rs`).
    pub watcher_marks: OnceCell<ObjectRef>,
}

impl DataTypeFunctions for Scheduler {
    fn mark(&self, marker: &Marker) {
        self.state().for_each_object(|object| object.mark(marker));
        if let Some(mutex) = self.mutex.get() {
            mutex.mark(marker);
        }
        if let Some(watcher_marks) = self.watcher_marks.get() {
            watcher_marks.mark(marker);
        }
    }

    fn free(self: Box<Self>) {
        _ = panics::catch("end of a scheduler", || drop(self));
    }
}

impl Scheduler {
    /// `initialize(backend = nil)`
    pub fn initialize(this: Obj<Self>, arguments: &[Value]) -> Result<(), Error> {
        let backend = convert::optional_backend(arguments)?;
        call_method(this.as_value(), "make_starter", &[])?;
        let reactor =
            Reactor::open(backend).map_err(|error| error::unavailable(backend, &error))?;
        if !this.state_mut().event_loop.open(reactor) {
            return Err(runtime_error("already initialized"));
        }
        this.state_mut().wait_by_workers(unpolled_wait::begin);
        this.affinity.claim();
        let mutex = thread::new_mutex()?;
        write_barrier(this, mutex);
        this.mutex.set(Some(mutex));
        Ok(())
    }

    /// Releases the reactor's descriptors. Every later use raises.
    pub fn shutdown(&self) {
        let mut finish = Some(self.state_mut().close());
        blocking_call(|| finish.take().map(|finish| finish()));
        if let Some(finish) = finish {
            finish(); // an interrupt is pending, so `blocking_call` did not call it
        }
        self.push_to_closers();
    }

    // --- its parts -----------------------------------------------------------------------------------------------

    pub fn state(&self) -> Ref<'_, State> {
        self.state.borrow()
    }

    pub fn state_mut(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    /// Whether the running code is a trap handler, or a finalizer deferred by the VM.
    pub fn runs_in_handler(&self) -> bool {
        self.mutex.get().is_some_and(thread::runs_in_handler)
    }

    // --- its thread ----------------------------------------------------------------------------------------------

    /// Whether the current thread may use the scheduler (ThreadError if not) in this process (false if not).
    pub fn check_thread(&self, ruby: &Ruby, this: Value) -> Result<bool, Error> {
        self.affinity.check(ruby, this)
    }

    /// `forked_child?`: whether this process is a forked child of the scheduler's process.
    pub fn is_forked_child(&self) -> bool {
        self.affinity.is_forked_child()
    }

    /// Whether `object` is the Ruby object of this scheduler.
    pub fn is_object(&self, object: Value) -> bool {
        Obj::<Self>::try_convert(object).is_ok_and(|it| std::ptr::eq(&*it, self))
    }

    // --- threads that wait to close an IO whose descriptor is in use -----------------------------------------------
    //
    // Each thread waits for an element in its own Thread::Queue, so the wait can be interrupted. If the closer is a
    // fiber of another scheduler, that scheduler parks the fiber.

    /// Arranges for a push to the queue once no worker or driver operation uses the descriptor of this IO object. If none
    /// uses it now, returns false and does nothing.
    pub fn push_when_unused(this: Obj<Self>, io_number: u64, queue: Value) -> bool {
        let queue = object_ref(queue);
        write_barrier(this, queue);
        this.state_mut().push_when_unused(io_number, queue)
    }

    /// Ends one use of a descriptor, and wakes the closers that may close it now.
    pub fn end_use(&self, usage: Use) {
        self.state_mut().descriptors_in_use.end(usage);
        self.push_to_closers();
    }

    fn push_to_closers(&self) {
        loop {
            let queue = self.state_mut().release_closers();
            let Some(queue) = queue else { break };
            let queue = queue.value();
            let nil = Ruby::get_with(queue).qnil().as_value();
            _ = call_method(queue, "push", &[nil]); // fails only if the closer has closed its queue
        }
    }

    // --- its properties ------------------------------------------------------------------------------------------

    /// `closed?`: also true in a forked child.
    pub fn is_closed(&self) -> bool {
        self.is_forked_child() || self.state().event_loop.is_closed
    }

    /// `live`: the number of fibers created by `Fiber.schedule` that have not ended.
    pub fn live(&self) -> usize {
        self.state().fibers.live()
    }

    /// `backend`
    pub fn backend_name(&self) -> Option<Symbol> {
        let backend = self.state().event_loop.backend?;
        Some(ruby().to_symbol(backend.name()))
    }

    /// `stats`
    pub fn statistics(ruby: &Ruby, this: Obj<Self>) -> RHash {
        let rows = this.state().statistics();
        convert::counters(ruby, rows)
    }

    /// Ends the sleep of the scheduler's thread, if it is asleep in this process.
    pub fn wake_thread(&self) {
        if !self.is_forked_child() {
            self.state_mut().wake_thread();
        }
    }
}
