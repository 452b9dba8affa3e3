//! Time for tests: a clock that stands still while fibers run, and jumps to the next timer when none can.
//!
//! What else could wake a fiber is waited for first: for so long, in real time, as the test was told to be patient. Read
//! `lib/reactor/testing.rb` for the rules.

use std::time::{Duration, Instant};

use magnus::{Error, Ruby, Value, prelude::*, typed_data::Obj};

use crate::{
    convert,
    fibers::{Hook, Record, State},
    raw,
    selector::Selector,
};

#[derive(Debug)]
pub struct VirtualTime {
    /// What the clock showed when it was stopped.
    start: Instant,
    /// How long to wait for the outside before each jump.
    settle: Duration,
    /// While there are any, the clock does not jump.
    holds: usize,
}

/// How long to sleep before the clock jumps, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    until: Instant,
}

impl Patience {
    pub fn left(self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

/// `virtual_time(settle)`: stops the clock of sleeps and timeouts. RuntimeError if it was stopped before.
pub fn start(ruby: &Ruby, this: Obj<Selector>, settle: Value) -> Result<(), Error> {
    let settle = convert::interval(settle)?;
    let mut inner = this.inner.borrow_mut();
    let reactor = match &mut inner.reactor {
        Some(reactor) if !reactor.is_clock_frozen() => reactor,
        _ => {
            drop(inner);
            let message = "this scheduler is closed, or its time is virtual already";
            return Err(Error::new(ruby.exception_runtime_error(), message));
        }
    };
    reactor.freeze_clock();
    let start = reactor.now();
    inner.virtual_time = Some(VirtualTime {
        start,
        settle,
        holds: 0,
    });
    Ok(())
}

/// `virtual_elapsed`: nanoseconds of virtual time since it began; nil if time is real.
pub fn elapsed(this: Obj<Selector>) -> Option<u64> {
    let inner = this.inner.borrow();
    let start = inner.virtual_time.as_ref()?.start;
    let now = inner.reactor.as_ref()?.now();
    Some((now - start).as_nanos() as u64)
}

/// `virtual_hold(begins)`: from true to false the clock does not jump.
pub fn hold(this: Obj<Selector>, begins: bool) {
    if let Some(time) = &mut this.inner.borrow_mut().virtual_time {
        time.holds = if begins {
            time.holds + 1
        } else {
            time.holds.saturating_sub(1)
        };
    }
}

/// Before an idle sleep: how long it shall be, if the clock is to jump after it. `None` if it is not.
pub fn patience(selector: &Selector, idle: bool) -> Result<Option<Patience>, Error> {
    let settle = {
        let inner = selector.inner.borrow();
        let timers = inner.reactor.as_ref().map_or(0, |r| r.timers());
        match &inner.virtual_time {
            Some(time) if idle && timers > 0 && time.holds == 0 && inner.is_idle() => {
                if inner.fibers.records().any(is_at_work) {
                    return Ok(None);
                }
                time.settle
            }
            _ => return Ok(None),
        }
    };
    let scheduler = raw::current_scheduler().value();
    let outside = Selector::is(scheduler, selector)
        && raw::call_method(scheduler, "outside?", &[])?.to_bool();
    let settle = if outside { settle } else { Duration::ZERO };
    Ok(Some(Patience {
        until: Instant::now() + settle,
    }))
}

/// It waits for work that is being done in this process, and that ends by itself.
fn is_at_work(record: &Record) -> bool {
    record.hook == Hook::Other && matches!(record.state, State::Parked(_))
}

/// After it: the clock jumps if all the time has passed and still nobody can run.
pub fn go_on(selector: &Selector, patience: Option<Patience>) {
    let mut inner = selector.inner.borrow_mut();
    if patience.is_some_and(|patience| patience.left().is_zero()) && inner.is_idle() {
        if let Some(reactor) = &mut inner.reactor {
            reactor.advance_to_next_timer();
        }
    }
}
