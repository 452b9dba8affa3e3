//! Work that has no non-blocking form: done by the core's pool while the fiber is parked.
//!
//! The work owns all the memory it touches and nothing of Ruby's; a descriptor it uses stays open while it is going on,
//! because whoever closes the IO first waits for it ([`await_leases`]).

use magnus::{Error, Ruby};
use reactor::{Job, Outcome, Refused, Token, WorkClass};

use crate::{
    convert,
    fibers::{Cause, Purpose, Slot},
    selector::{Inner, Selector, Visit, ruby},
};

/// What a fiber that is interrupted does about its work, if that has begun. (What has not begun is taken back.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// Waits for the end: the work changes something, or uses the descriptor of the IO with this number.
    Waits(u64),
    /// Leaves at once: nobody minds how it ends.
    Leaves,
}

/// What became of the work.
pub struct Settled<T> {
    /// `None` if it was taken back, or left.
    pub result: Option<T>,
    /// What was raised in the fiber meanwhile. The caller puts in order what is to be put in order, and raises it.
    pub raised: Option<Error>,
}

/// Has `work` done by the pool; the fiber is parked until it has ended.
///
/// # Errors
///
/// What was raised before anything had begun; RuntimeError if the work panicked; ThreadError if there is no thread.
pub fn on_pool<T: Send + 'static>(
    visit: &Visit,
    pace: WorkClass,
    interrupted: Interrupted,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Settled<T>, Error> {
    let watching = match interrupted {
        Interrupted::Waits(number) => number,
        Interrupted::Leaves => 0,
    };
    let lease = (watching, visit.slot);
    visit.selector.inner.borrow_mut().leases.take(lease);
    let settled = await_room(visit, watching)
        .and_then(|()| begin(visit, watching, pace, work))
        .map(|mut job| settle(visit, watching, interrupted, &mut job));
    visit.selector.inner.borrow_mut().release(lease);
    let (outcome, raised) = settled?;
    let result = match outcome {
        None => None,
        Some(Outcome::Done(result)) => Some(result),
        Some(Outcome::Panicked(message)) => return Err(failed(&ruby(), &message)),
        Some(Outcome::Dropped) => return Err(failed(&ruby(), "the scheduler was closed")),
    };
    Ok(Settled { result, raised })
}

/// Parks until the queue has room.
pub fn await_room(visit: &Visit, watching: u64) -> Result<(), Error> {
    loop {
        {
            let mut inner = visit.selector.inner.borrow_mut();
            let full = |inner: &Inner| {
                inner
                    .reactor
                    .as_ref()
                    .is_some_and(|r| !r.pool().has_capacity())
            };
            if !full(&inner) {
                return Ok(());
            }
            let token = inner.fibers.await_work(visit.slot, watching);
            if let Some(reactor) = &inner.reactor {
                reactor.pool().notify_when_capacity(token);
            }
        }
        visit.selector.park(visit.slot)?;
    }
}

pub fn begin<T: Send + 'static>(
    visit: &Visit,
    watching: u64,
    pace: WorkClass,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Job<T>, Error> {
    let mut inner = visit.selector.inner.borrow_mut();
    let token = inner.fibers.await_work(visit.slot, watching);
    let job = match &mut inner.reactor {
        Some(reactor) => reactor.pool_mut().submit(token, pace, work),
        None => Err(Refused::Foreign),
    };
    job.map_err(|refused| {
        inner.fibers.finish(visit.slot);
        drop(inner);
        match refused {
            Refused::NoThread(error) => convert::system_error(&ruby(), &error),
            refused => failed(&ruby(), &refused.to_string()),
        }
    })
}

/// Parks until the job has ended, or its fiber may leave it.
fn settle<T: Send + 'static>(
    visit: &Visit,
    watching: u64,
    interrupted: Interrupted,
    job: &mut Job<T>,
) -> (Option<Outcome<T>>, Option<Error>) {
    let mut raised = None;
    loop {
        if let Err(error) = visit.selector.park(visit.slot) {
            if job.cancel() || interrupted == Interrupted::Leaves {
                return (None, Some(error));
            }
            // What unwinds without an exception (a kill, a throw) is not to be kept while other Ruby code runs.
            let unwinding = error.value().is_none();
            raised = Some(error);
            if unwinding {
                return (Some(job.wait()), raised);
            }
        }
        if let Some(outcome) = job.take() {
            return (Some(outcome), raised);
        }
        let token = {
            let mut inner = visit.selector.inner.borrow_mut();
            inner.fibers.await_work(visit.slot, watching)
        };
        job.redirect(token);
    }
}

fn failed(ruby: &Ruby, message: &str) -> Error {
    Error::new(ruby.exception_runtime_error(), message.to_owned())
}

/// The IO objects, by number, whose descriptors are in the hands of workers, and on whose behalf; and who waits to close
/// them.
#[derive(Debug, Default)]
pub struct Leases {
    held: Vec<(u64, Slot)>,
    closers: Vec<(u64, Token)>,
}

impl Leases {
    pub fn take(&mut self, lease: (u64, Slot)) {
        if lease.0 != 0 {
            self.held.push(lease);
        }
    }

    pub fn holds(&self, number: u64) -> bool {
        self.held.iter().any(|(held, _)| *held == number)
    }

    /// The fibers for which a worker uses it.
    pub fn holders(&self, number: u64) -> impl Iterator<Item = Slot> + '_ {
        let held = self.held.iter().filter(move |(held, _)| *held == number);
        held.map(|(_, slot)| *slot)
    }
}

impl Inner {
    /// The worker is done with the descriptor: whoever waits to close it may look again.
    pub fn release(&mut self, lease: (u64, Slot)) {
        let held = &mut self.leases.held;
        if let Some(place) = held.iter().position(|held| *held == lease) {
            held.swap_remove(place);
        }
        let number = lease.0;
        if self.leases.closers.is_empty() || self.leases.holds(number) {
            return;
        }
        let (told, others) = std::mem::take(&mut self.leases.closers)
            .into_iter()
            .partition::<Vec<_>, _>(|(closing, _)| *closing == number);
        self.leases.closers = others;
        for (_, token) in told {
            self.wake(token, Cause::Unblocked);
        }
    }
}

/// Parks until no worker uses the descriptor of the IO with this number.
pub fn await_leases(selector: &Selector, slot: Slot, number: u64) -> Result<(), Error> {
    loop {
        {
            let mut inner = selector.inner.borrow_mut();
            if !inner.leases.holds(number) {
                return Ok(());
            }
            let token = inner.fibers.begin(slot, Purpose::Io);
            inner.leases.closers.push((number, token));
        }
        selector.park(slot)?;
    }
}
