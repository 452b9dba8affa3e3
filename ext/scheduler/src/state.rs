//! The scheduler's state: which fibers exist, what each waits for, and which runs next.
//!
//! Plain data with private fields. Each part maintains its own invariants; [`State`] has the methods that involve several
//! parts. The extension borrows a `State` for one call at a time, never across a switch, a GVL release or a call into Ruby.
//!
//! | file             | its part of [`State`] |
//! |------------------|--------------------------|
//! | `turn`           | polling, the ready queue, sleeping |
//! | `fiber_lifecycle` | entering hooks; starting, parking and ending fibers |
//! | `wait_registration` | waits for descriptors, sleeps and timeouts |
//! | `interruption`   | what ends a wait from outside, and what a fiber raises |
//! | `pool_work`      | work on the pool, and which transfers belong there |
//! | `descriptors_in_use` | descriptors in use, and the fibers and threads waiting to close them |
//! | `driver_operations` | sends and file operations that the driver carries out |
//! | `watchers`       | watchers: waits without a fiber |
//! | `unpolled`       | waits for descriptors that the driver cannot poll |
//! | `observation`    | counters, rows, traces |

mod chance;
mod current;
pub mod descriptors_in_use;
pub mod driver_operations;
pub mod event_loop;
pub mod fiber;
pub mod fiber_lifecycle;
mod fiber_table;
pub mod gvl_quota;
pub mod interruption;
pub mod object_ref;
pub mod observation;
pub mod pool_work;
pub mod ready_queue;
mod send_batching;
pub mod slab;
mod strand;
pub mod time_slice;
pub mod token_mark;
pub mod trace;
mod turn;
pub mod unpolled;
pub mod wait;
pub mod wait_registration;
pub mod watchers;

use std::{any::Any, sync::Arc, time::Instant};

use current::Current;
use descriptors_in_use::DescriptorsInUse;
use event_loop::EventLoop;
use fiber_table::FiberTable;
use object_ref::ObjectRef;
use observation::{Counters, HoldWatch};
use ready_queue::ReadyQueue;
use send_batching::SendBatching;
use slab::Slab;
use trace::Trace;
use unpolled::Unpolled;
use watchers::Watchers;

/// Everything a scheduler knows; see the module's table.
#[derive(Debug, Default)]
pub struct State {
    pub event_loop: EventLoop,
    pub fibers: FiberTable,
    queue: ReadyQueue,
    watchers: Watchers,
    unpolled: Unpolled,
    current: Current,
    pub descriptors_in_use: DescriptorsInUse,
    /// Each worker that reads a file into a Ruby buffer holds a clone.
    pub worker_buffers: Arc<()>,
    /// The pool jobs that fibers wait for. They are not owned by the fibers' stack frames, because a fiber abandoned at the
    /// end of the scheduler never returns, so nothing would drop its job.
    jobs: Slab<Box<dyn Any + Send>, 0>,
    /// Until then, small file writes are likely to be slow.
    writes_are_slow_until: Option<Instant>,
    batching: SendBatching,
    counters: Counters,
    /// Present while a thread watches how long fibers hold the loop.
    holds: Option<HoldWatch>,
    /// Present while a trace is being recorded.
    pub trace: Option<Box<Trace>>,
}

impl State {
    /// Visits every Ruby object kept here except watchers, for the garbage collector.
    pub fn for_each_object(&self, mut visit: impl FnMut(ObjectRef)) {
        let running = self.current.running;
        self.fibers.for_each_object(running, &mut visit);
        let watchers = self.watchers.records().values();
        watchers.for_each(|record| visit(record.io));
        self.current.for_each_object(&mut visit);
        let holder = self.holds.as_ref().and_then(HoldWatch::holder);
        holder.into_iter().for_each(&mut visit);
        self.descriptors_in_use.for_each_object(&mut visit);
    }
}

#[cfg(test)]
mod tests;
