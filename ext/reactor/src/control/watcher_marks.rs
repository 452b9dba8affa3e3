//! The object that marks a scheduler's watchers for the garbage collector.
//!
//! If an old object refers to a young one, or to one without write barriers such as an IO, each minor collection marks
//! all its references again. The scheduler refers to the watched IOs, so a separate object refers to the watchers: once
//! that object and the watchers are old, minor collections skip them until the next watcher begins.

use magnus::{DataTypeFunctions, Ruby, TypedData, Value, gc::Marker, prelude::*, typed_data::Obj};
use reactor_scheduler::state::object_ref::ObjectRef;

use crate::{
    control::scheduler::Scheduler,
    ruby::{
        object::{Object, object_ref, write_barrier},
        panics,
    },
};

/// `Reactor::WatcherMarks`: one per scheduler that has had a watcher. It and the scheduler keep each other alive.
#[derive(TypedData)]
#[magnus(class = "Reactor::WatcherMarks", mark, wb_protected, free_immediately)]
pub struct WatcherMarks {
    scheduler: ObjectRef,
}

impl DataTypeFunctions for WatcherMarks {
    fn mark(&self, marker: &Marker) {
        self.scheduler.mark(marker);
        if let Ok(scheduler) = Obj::<Scheduler>::try_convert(self.scheduler.value()) {
            let state = scheduler.state();
            state.watchers().for_each(|watcher| watcher.mark(marker));
        }
    }

    fn free(self: Box<Self>) {
        _ = panics::catch("end of watcher marks", || drop(self));
    }
}

impl Scheduler {
    /// Tells the garbage collector that the scheduler now refers to this watcher and this IO.
    pub fn keep_watcher(this: Obj<Self>, ruby: &Ruby, watcher: Value, io: ObjectRef) {
        let scheduler = object_ref(this);
        let marks = this.watcher_marks.get_or_init(|| {
            let marks = object_ref(ruby.obj_wrap(WatcherMarks { scheduler }));
            write_barrier(this, marks);
            marks
        });
        write_barrier(marks.value(), object_ref(watcher));
        write_barrier(this, io);
    }
}
