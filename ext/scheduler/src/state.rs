//! The scheduler's state: which fibers there are, what each waits for, which one runs next.
//!
//! Plain data with private fields. Each part owns its invariants, and [`State`] is what concerns several of them. The
//! extension borrows a `State` for the length of one call, never across a switch, a GVL release or a call into Ruby.
//!
//! | file             | what of [`State`] it has |
//! |------------------|--------------------------|
//! | `turn`           | polling, the ready queue, sleeping |
//! | `fiber_lifecycle` | fibers that enter hooks, start, park and end |
//! | `wait_registration` | waits for descriptors, sleeps and timeouts |
//! | `interruption`   | what ends a wait from outside, and what a fiber raises |
//! | `pool_work`      | work on the pool, and what is better done there |
//! | `descriptor_pins` | descriptors that are in use, and the fibers and threads that wait to close them |
//! | `driver_operations` | sends and file operations of the driver |
//! | `watching`       | watchers: waits that no fiber makes |
//! | `unpolled`       | waits for what the driver does not poll |
//! | `observation`    | counters, rows, traces |

mod chance;
mod control;
pub mod descriptor_pins;
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
mod watchers;
pub mod watching;

use std::{any::Any, sync::Arc, time::Instant};

use control::Control;
use descriptor_pins::DescriptorPins;
use event_loop::EventLoop;
use fiber_table::FiberTable;
use object_ref::ObjectRef;
use observation::Counters;
use ready_queue::ReadyQueue;
use send_batching::SendBatching;
use slab::Slab;
use trace::Trace;
use unpolled::Unpolled;
use watchers::Watchers;

/// Everything a scheduler knows. See the module's table.
#[derive(Debug, Default)]
pub struct State {
    pub event_loop: EventLoop,
    pub fibers: FiberTable,
    queue: ReadyQueue,
    watchers: Watchers,
    unpolled: Unpolled,
    control: Control,
    pub pins: DescriptorPins,
    /// A clone of it is with each worker that reads a file into a buffer of Ruby's.
    pub lent_buffers: Arc<()>,
    /// The jobs of the pool that fibers wait for. The frame of a fiber does not own its job, because a fiber that the end of the
    /// scheduler abandons does not return: nothing would drop it.
    jobs: Slab<Box<dyn Any + Send>, 0>,
    /// Small writes to files are likely to take long until then.
    writes_are_slow_until: Option<Instant>,
    batching: SendBatching,
    counters: Counters,
    /// Kept while a trace is on.
    pub trace: Option<Box<Trace>>,
}

impl State {
    /// Every object of Ruby's that is kept here, except the watchers, for the garbage collector.
    pub fn for_each_object(&self, mut visit: impl FnMut(ObjectRef)) {
        let running = self.control.running;
        self.fibers.for_each_object(running, &mut visit);
        let watchers = self.watchers.records().values();
        watchers.for_each(|record| visit(record.io));
        self.control.for_each_object(&mut visit);
        self.pins.for_each_object(&mut visit);
    }

    /// Every watcher, for the garbage collector.
    pub fn for_each_watcher(&self, mut visit: impl FnMut(ObjectRef)) {
        self.watchers().for_each(&mut visit);
    }

    /// Bytes of the tables that grow with fibers, waits, timeouts and a trace. Those of the reactor are not counted.
    pub fn size(&self) -> usize {
        self.fibers.size()
            + self.queue.size()
            + self.watchers.records().size()
            + self.trace.as_deref().map_or(0, Trace::size)
    }
}

#[cfg(test)]
mod tests;
