//! The locks and threads of the core in a model: loom's, which run each interleaving of the threads in turn.
//!
//! loom knows no time. Here a timed wait on a condition variable may end when the model says that the time is over.

use std::{
    cell::{Cell, RefCell},
    io,
    sync::{
        Arc, LockResult, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub(crate) use loom::sync::{Mutex, MutexGuard};

thread_local! {
    /// The condition variables of this execution. loom runs all threads of an execution on one thread of the system.
    static CONDVARS: RefCell<Vec<Weak<Waits>>> = const { RefCell::new(Vec::new()) };
    static REFUSED_THREADS: Cell<usize> = const { Cell::new(0) };
}

struct Waits {
    condvar: loom::sync::Condvar,
    /// How often the time of all timed waits was over.
    expiries: AtomicUsize,
}

/// A condition variable. A wait whose time is over may have consumed a notification, as pthread_cond_timedwait(3) says.
pub(crate) struct Condvar(Arc<Waits>);

impl Condvar {
    pub(crate) fn new() -> Self {
        let waits = Arc::new(Waits {
            condvar: loom::sync::Condvar::new(),
            expiries: AtomicUsize::new(0),
        });
        CONDVARS.with_borrow_mut(|condvars| {
            condvars.retain(|condvar| condvar.strong_count() > 0);
            condvars.push(Arc::downgrade(&waits));
        });
        Self(waits)
    }

    pub(crate) fn wait<'guard, T>(
        &self,
        guard: MutexGuard<'guard, T>,
    ) -> LockResult<MutexGuard<'guard, T>> {
        self.0.condvar.wait(guard)
    }

    pub(crate) fn wait_timeout<'guard, T>(
        &self,
        guard: MutexGuard<'guard, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'guard, T>, WaitTimeoutResult)> {
        let before = self.0.expiries.load(Ordering::Relaxed);
        let guard = self.wait(guard).unwrap_or_else(PoisonError::into_inner);
        let expired = self.0.expiries.load(Ordering::Relaxed) != before;
        Ok((guard, WaitTimeoutResult(expired && limit < Duration::MAX)))
    }

    pub(crate) fn notify_one(&self) {
        self.0.condvar.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.condvar.notify_all();
    }
}

pub(crate) struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(crate) fn timed_out(&self) -> bool {
        self.0
    }
}

/// An atomic whose accesses are all sequentially consistent, as those of the core are.
///
/// Each access is a read-modify-write here. Otherwise loom, which keeps the modification order only in part, would let a swap
/// read a value that was overwritten.
pub(crate) struct AtomicBool(loom::sync::atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> Self {
        Self(loom::sync::atomic::AtomicBool::new(value))
    }

    pub(crate) fn load(&self, ordering: Ordering) -> bool {
        assert_eq!(ordering, Ordering::SeqCst, "a weaker order is not modelled");
        self.0.fetch_or(false, ordering)
    }

    pub(crate) fn store(&self, value: bool, ordering: Ordering) {
        self.swap(value, ordering);
    }

    pub(crate) fn swap(&self, value: bool, ordering: Ordering) -> bool {
        assert_eq!(ordering, Ordering::SeqCst, "a weaker order is not modelled");
        self.0.swap(value, ordering)
    }
}

/// Starts threads, unless the model says that none can be started.
pub(crate) struct Builder;

impl Builder {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn name(self, _: String) -> Self {
        self
    }

    pub(crate) fn spawn<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<loom::thread::JoinHandle<T>> {
        let refused = REFUSED_THREADS.take();
        if refused > 0 {
            REFUSED_THREADS.set(refused - 1);
            // What other threads do meanwhile.
            loom::thread::yield_now();
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(loom::thread::spawn(body))
    }
}

/// What a model decides.
pub mod control {
    use std::sync::{Weak, atomic::Ordering};

    use super::{CONDVARS, REFUSED_THREADS, Waits};

    /// Lets the time of all timed waits of this execution be over.
    pub fn expire_waits() {
        let waits: Vec<_> =
            CONDVARS.with_borrow(|all| all.iter().filter_map(Weak::upgrade).collect());
        for waits in waits {
            let Waits { condvar, expiries } = &*waits;
            expiries.fetch_add(1, Ordering::Relaxed);
            condvar.notify_all();
        }
    }

    /// Lets the next starts of threads fail.
    pub fn refuse_threads(count: usize) {
        REFUSED_THREADS.set(count);
    }
}
