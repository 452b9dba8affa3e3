//! Waits for descriptors that the driver cannot poll.
//!
//! A file that is always ready has no urgent data, so no event ends a wait for urgent data. On Windows only sockets can
//! be polled: a worker waits for a pipe or console, and notifies the wait's token.

use std::{fmt, io};

use reactor::{
    Descriptor, Handle, Interest, Ready, Token,
    pool::{Job, Limits, Pool, Refused, WorkClass},
};

use crate::state::{
    State,
    fiber::Slot,
    wait::Purpose,
    wait_registration::{ReadinessWait, Watch},
};

/// The maximum number of such waits at a time, each on its own thread.
const MAX_WAITS: usize = 4096;

/// A worker that waits for a descriptor and notifies the wait's token. Dropping this ends the worker's wait.
pub trait WorkerWait: fmt::Debug + Send {
    /// The events for which the descriptor is ready; empty until the worker knows.
    fn ready(&mut self) -> Ready;

    /// Makes the worker notify the token and release the descriptor before this returns.
    fn end(&mut self) {}
}

/// Begins a wait for a descriptor that the driver refused with this error. `None` if the descriptor is always ready.
pub type BeginWorkerWait =
    fn(&mut Pool, Watch, Token, io::Error) -> io::Result<Option<Box<dyn WorkerWait>>>;

type UnpolledWait = (Descriptor, Token, Option<Box<dyn WorkerWait>>);

#[derive(Debug, Default)]
pub struct Unpolled {
    waits: Vec<UnpolledWait>,
    workers: Option<(BeginWorkerWait, Pool)>,
}

impl Unpolled {
    /// From now on, workers wait for the descriptors that the driver refuses and this function accepts. The workers
    /// notify through the handle.
    pub fn wait_by_workers(&mut self, handle: Handle, begin: BeginWorkerWait) {
        let mut pool = Pool::new(handle);
        pool.limit(Limits {
            threads: MAX_WAITS,
            network: MAX_WAITS,
            ..pool.limits()
        });
        self.workers = Some((begin, pool));
    }

    /// Adds a wait that no event ends.
    pub fn push(&mut self, descriptor: Descriptor, token: Token) -> ReadinessWait {
        self.waits.push((descriptor, token, None));
        ReadinessWait::Unpolled
    }

    /// Begins a worker's wait for a descriptor that the driver refused. `None` if the descriptor is always ready.
    #[cold]
    pub fn begin(
        &mut self,
        watch: Watch,
        token: Token,
        refused: io::Error,
    ) -> io::Result<Option<ReadinessWait>> {
        let Some((begin, pool)) = &mut self.workers else {
            return Err(refused);
        };
        let begun = begin(pool, watch, token, refused)?;
        Ok(begun.map(|wait| {
            self.waits.push((watch.descriptor, token, Some(wait)));
            ReadinessWait::ByWorker
        }))
    }

    /// Ends the waits with this token. Returns the events for which their descriptors were ready.
    pub fn end(&mut self, token: Token) -> Ready {
        let mut ready = Ready::EMPTY;
        self.waits.retain_mut(|(_, other, wait)| {
            let is_ended = *other == token;
            if let Some(wait) = wait.as_mut().filter(|_| is_ended) {
                ready |= wait.ready();
            }
            !is_ended
        });
        ready
    }

    /// The tokens of all waits for the descriptor.
    pub fn waiters(&self, descriptor: Descriptor) -> impl Iterator<Item = Token> + '_ {
        let waits = self.waits.iter();
        waits.filter_map(move |(other, token, _)| (*other == descriptor).then_some(*token))
    }
}

impl State {
    /// Begins a wait for something without a descriptor. `begin` gets the token to notify; if it returns `None`, no
    /// wait begins, and this method returns `None` too.
    pub fn begin_outside(
        &mut self,
        slot: Slot,
        begin: impl FnOnce(Handle, Token) -> Option<Box<dyn WorkerWait>>,
    ) -> Option<Token> {
        let handle = self.event_loop.reactor.as_ref()?.handle();
        let (io_number, events) = (0, Interest::READABLE.bits());
        let token = self
            .fibers
            .begin_wait(slot, Purpose::Readiness { io_number, events });
        let Some(wait) = begin(handle, token) else {
            self.fibers.end_wait(token);
            return None;
        };
        self.unpolled
            .waits
            .push((Descriptor::MAX, token, Some(wait)));
        Some(token)
    }

    /// Called when the descriptor is about to be closed: makes workers release it, and notifies its waits.
    pub fn end_worker_waits(&mut self, descriptor: Descriptor) {
        let waits = self.unpolled.waits.iter_mut();
        for (_, _, wait) in waits.filter(|(other, ..)| *other == descriptor) {
            if let Some(wait) = wait {
                wait.end();
            }
        }
    }

    /// Ends the wait.
    pub fn end_outside(&mut self, token: Token) {
        self.unpolled.end(token);
    }

    /// Like [`State::begin_job`], but for work that may wait forever: it runs on one of the threads that wait for
    /// descriptors refused by the driver.
    pub fn begin_unpolled_job<T: Send + 'static>(
        &mut self,
        slot: Slot,
        io_number: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Job<T>, Refused> {
        let token = self.fibers.begin_wait(slot, Purpose::Work { io_number });
        let job = match &mut self.unpolled.workers {
            Some((_, pool)) => pool.submit(token, WorkClass::Network, work),
            None => Err(Refused::Foreign),
        };
        if job.is_err() {
            self.fibers.end_wait(token);
        }
        job
    }

    /// Like [`Unpolled::wait_by_workers`], until the loop is closed.
    pub fn wait_by_workers(&mut self, begin: BeginWorkerWait) {
        if let Some(reactor) = &self.event_loop.reactor {
            self.unpolled.wait_by_workers(reactor.handle(), begin);
        }
    }
}
