//! The Ruby object `Reactor::NativeScheduler`: the scheduler's state, its owner, its time slice and its quota of the GVL.

use std::cell::{Ref, RefCell, RefMut};

use magnus::{
    DataTypeFunctions, Error, RHash, Ruby, Symbol, TypedData, Value, gc::Marker, prelude::*,
    typed_data::Obj,
};
use reactor::Reactor;
use reactor_scheduler::state::{State, gvl_quota::GvlQuota, time_slice::TimeSlice};

use crate::{
    control::owner::Owner,
    ruby::{
        convert,
        error::{self, ruby, runtime_error},
        method::{Receiver, ReceiverType},
        object::Object,
    },
};

#[derive(TypedData, Default)]
#[magnus(
    class = "Reactor::NativeScheduler",
    mark,
    size,
    wb_protected,
    free_immediately
)]
pub struct Scheduler {
    state: RefCell<State>,
    owner: Owner,
    slice: TimeSlice,
    quota: GvlQuota,
}

impl Receiver for Scheduler {
    fn receiver_type() -> &'static ReceiverType<Self> {
        static TYPE: ReceiverType<Scheduler> = ReceiverType::new();
        &TYPE
    }
}

impl DataTypeFunctions for Scheduler {
    fn mark(&self, marker: &Marker) {
        self.state().for_each_object(|object| object.mark(marker));
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.state().size()
    }
}

impl Scheduler {
    /// `initialize(backend = nil)`
    pub fn initialize(this: Obj<Self>, arguments: &[Value]) -> Result<(), Error> {
        let backend = convert::optional_backend(arguments)?;
        let reactor = Reactor::open(backend).map_err(|error| error::unavailable(&error))?;
        if !this.state_mut().open(reactor) {
            return Err(runtime_error("already initialized"));
        }
        this.owner.claim();
        Ok(())
    }

    /// `shutdown`: releases the reactor's descriptors. Every later use raises. ThreadError in another thread.
    pub fn shutdown(ruby: &Ruby, this: Obj<Self>) -> Result<(), Error> {
        if !this.is_closed() && this.check_owner(ruby, this.as_value())? {
            this.state_mut().close();
        }
        Ok(())
    }

    // --- its parts -----------------------------------------------------------------------------------------------

    #[inline]
    pub fn state(&self) -> Ref<'_, State> {
        self.state.borrow()
    }

    #[inline]
    pub fn state_mut(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    pub fn slice(&self) -> &TimeSlice {
        &self.slice
    }

    pub fn quota(&self) -> &GvlQuota {
        &self.quota
    }

    // --- its owner -----------------------------------------------------------------------------------------------

    /// Whether the current thread may use it (ThreadError if not) in this process (false if not).
    pub fn check_owner(&self, ruby: &Ruby, this: Value) -> Result<bool, Error> {
        self.owner.check(ruby, this)
    }

    pub fn is_owner_thread(&self) -> bool {
        self.owner.is_current_thread()
    }

    /// `forked_child?`: whether this process is a forked child of the one the scheduler belongs to.
    pub fn is_forked_child(&self) -> bool {
        self.owner.is_forked_child()
    }

    /// Whether `object` is the Ruby object of this scheduler.
    pub fn is_object(&self, object: Value) -> bool {
        Obj::<Self>::try_convert(object).is_ok_and(|it| std::ptr::eq(&*it, self))
    }

    // --- what it is ----------------------------------------------------------------------------------------------

    /// `closed?`
    pub fn is_closed(&self) -> bool {
        self.is_forked_child() || self.state().is_closed()
    }

    /// `live`: fibers made by `Fiber.schedule` that have not finished.
    pub fn live(&self) -> usize {
        self.state().live()
    }

    /// `backend`
    pub fn backend_name(&self) -> Option<Symbol> {
        let backend = self.state().backend()?;
        Some(ruby().to_symbol(backend.name()))
    }

    /// `stats`
    pub fn statistics(ruby: &Ruby, this: Obj<Self>) -> Result<RHash, Error> {
        let rows = this.state().statistics();
        let hash = ruby.hash_new();
        for (name, value) in rows {
            hash.aset(ruby.to_symbol(name), value)?;
        }
        Ok(hash)
    }

    /// Ends the sleep of the scheduler's thread, if it sleeps on behalf of this process.
    pub fn wake_thread(&self) {
        if !self.is_forked_child() {
            self.state_mut().wake_thread();
        }
    }
}
