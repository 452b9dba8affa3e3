//! Blocking work on other threads.

mod job;
mod job_state;
mod limits;
mod queues;
mod statistics;
mod workers;

// Miri does not support its system calls.
#[cfg_attr(all(unix, not(miri)), path = "pool/signal_mask/unix.rs")]
#[cfg_attr(any(windows, miri), path = "pool/signal_mask/windows.rs")]
#[allow(unsafe_code)]
mod signal_mask;

use std::{fmt, io, sync::Arc};

use crate::{handle::Handle, histogram::Histogram, token::Token};

pub use job::Job;
pub use job_state::Outcome;
pub use limits::{Limits, WorkClass};
pub use statistics::PoolStatistics;

use workers::Shared;

/// A pool of threads, bounded in number, for calls that have no non-blocking form: reads of files that are not in the page cache,
/// name lookups, fsync(2).
///
/// - **Started on demand.** A job that may begin but finds no idle thread starts a new thread, up to the limit. An idle
///   thread exits after [`Limits::idle`].
/// - **Completions are events.** When a job ends, the reactor's next turn reports its token with
///   [`Ready::NOTIFIED`](crate::Ready::NOTIFIED), and [`Job::take`] returns the result. Each job that is not dropped or
///   cancelled is notified once, whether its work returned or panicked; after [`Job::redirect`] both tokens may be
///   notified.
/// - **Memory belongs to the job**, never to the code that waits for it: see [`Job`].
/// - **Dropping the pool** drops queued jobs without running them; a panic of that goes no further. A running job
///   finishes on its thread, which then exits. The drop does not wait for it, so a name lookup that takes a minute does
///   not delay the end of the program.
/// - **Signals** are blocked in the workers, so that the kernel delivers them to the program's other threads. Signals
///   raised by the worker's own instructions are not blocked: SIGSEGV, SIGBUS, SIGFPE, SIGILL.
/// - **fork(2)** copies the pool but not its threads. In the child the pool refuses work ([`Refused::Foreign`]), its
///   jobs are [`Outcome::Dropped`], and dropping it does nothing. A reactor opened in the child has its own pool.
///
/// Like its reactor, it may be used by only one thread at a time.
///
/// ```
/// use reactor::{Events, Reactor, Ready, Token, pool::{Outcome, WorkClass}};
///
/// let mut reactor = Reactor::open(None)?;
/// let work = || std::fs::read_to_string("Cargo.toml").map(|text| text.lines().count());
/// let mut job = reactor.pool_mut().submit(Token::new(1, 0), WorkClass::Disk, work)?;
/// let mut events = Events::new();
/// while events.is_empty() {
///     reactor.turn(&mut events, None)?;
/// }
/// assert_eq!((events[0].token, events[0].ready), (Token::new(1, 0), Ready::NOTIFIED));
/// let Some(Outcome::Done(lines)) = job.take() else { unreachable!("it was reported") };
/// assert!(lines? > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pool {
    shared: Arc<Shared>,
    limits: Limits,
    /// The number of the next job.
    next: u64,
}

/// Why a job was refused.
///
/// ```
/// use reactor::{Reactor, Token, pool::{Refused, WorkClass}};
///
/// let mut reactor = Reactor::open(None)?;
/// match reactor.pool_mut().submit(Token::new(1, 0), WorkClass::Disk, || 6 * 7) {
///     Ok(job) => drop(job),
///     Err(Refused::NoThread(error)) => println!("cannot start a thread: {error}"),
///     Err(refused) => return Err(refused.into()),
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Refused {
    /// The pool belongs to the parent process.
    Foreign,
    /// There are no workers, and pthread_create(3) failed.
    NoThread(io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Foreign => formatter.write_str("the pool belongs to the parent process"),
            Refused::NoThread(error) => write!(formatter, "cannot start a pool thread: {error}"),
        }
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for io::Error {
    /// The error of pthread_create(3); otherwise [`io::ErrorKind::Unsupported`].
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoThread(error) => error,
            Refused::Foreign => Self::new(io::ErrorKind::Unsupported, refused),
        }
    }
}

impl Pool {
    /// Creates a pool that reports completions through `handle`. It starts no threads yet.
    pub fn new(handle: Handle) -> Self {
        let limits = Limits::default();
        Self {
            shared: Arc::new(Shared::new(handle, limits)),
            limits,
            next: 0,
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Sets the limits; each 0 counts as 1. Threads beyond the new limits stay, but no new ones are added. Queued jobs get no
    /// new threads until another job is submitted.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = limits.at_least_one();
        if self.is_of_this_process() {
            self.shared.set_limits(self.limits);
        }
    }

    /// Queues `work` for a worker. When it ends, `token` is notified.
    ///
    /// # Errors
    ///
    /// [`Refused`]; `work` is then dropped.
    pub fn submit<T: Send + 'static>(
        &mut self,
        token: Token,
        class: WorkClass,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Job<T>, Refused> {
        // On failure the job is dropped here, which removes it from the queue.
        self.queue(token, class, work, |_job, error| {
            Err(Refused::NoThread(error))
        })
    }

    /// Like [`Pool::submit`], but if there are no workers and none can be started, runs `work` on this thread before
    /// returning.
    ///
    /// # Errors
    ///
    /// [`Refused::Foreign`]; `work` is then dropped.
    pub fn submit_or_run<T: Send + 'static>(
        &mut self,
        token: Token,
        class: WorkClass,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Job<T>, Refused> {
        self.queue(token, class, work, |job, _error| {
            job.run_here();
            Ok(())
        })
    }

    fn queue<T: Send + 'static>(
        &mut self,
        token: Token,
        class: WorkClass,
        work: impl FnOnce() -> T + Send + 'static,
        without_thread: impl FnOnce(&Job<T>, io::Error) -> Result<(), Refused>,
    ) -> Result<Job<T>, Refused> {
        if !self.is_of_this_process() {
            return Err(Refused::Foreign);
        }
        let number = self.next;
        let job = Job::new(work, token, Arc::clone(&self.shared), number);
        self.next += 1;
        if self.shared.push(number, class, job.task()) {
            self.shared
                .start_worker(number)
                .or_else(|error| without_thread(&job, error))?;
        }
        Ok(job)
    }

    /// Whether as many jobs of this class are running or queued as may run at a time. If so, another job would have to
    /// wait. False in a child of fork(2).
    pub fn is_busy(&self, class: WorkClass) -> bool {
        self.is_of_this_process() && self.shared.is_busy(class)
    }

    /// The counters. All are zero in a child of fork(2).
    pub fn statistics(&self) -> PoolStatistics {
        if !self.is_of_this_process() {
            return PoolStatistics::default();
        }
        self.shared.statistics()
    }

    /// How long jobs were queued before they began. Empty in a child of fork(2).
    #[cfg(feature = "unstable")] // as the type Histogram
    pub fn queue_times(&self) -> Histogram {
        if !self.is_of_this_process() {
            return Histogram::new();
        }
        self.shared.queue_times()
    }

    fn is_of_this_process(&self) -> bool {
        self.shared.is_of_this_process()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // In a child of fork(2), the lock may be held by a worker that does not exist there.
        if self.is_of_this_process() {
            self.shared.close();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Pool")
            .field("limits", &self.limits)
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::Arc,
        thread,
        time::{Duration, Instant},
    };

    use super::{Limits, Outcome, Pool, WorkClass};
    use crate::{driver::Wake, handle::Handle, token::Token};

    struct NoOwner;

    impl Wake for NoOwner {
        fn wake(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_idle_thread_is_used_again() {
        let mut pool = Pool::new(Handle::new(Arc::new(NoOwner)));
        pool.limit(Limits {
            idle: Duration::MAX,
            ..Limits::default()
        });
        for round in 0..10 {
            let mut job = pool
                .submit(Token::new(0, 0), WorkClass::Disk, move || round)
                .unwrap();
            // The worker becomes idle some time after its job ends.
            let deadline = Instant::now() + Duration::from_secs(60);
            while pool.statistics().ended <= round || pool.shared.idle() == 0 {
                assert!(Instant::now() < deadline, "it never becomes idle");
                thread::yield_now();
            }
            assert_eq!(job.take(), Some(Outcome::Done(round)));
        }
        assert_eq!(pool.statistics().started, 1);
    }
}
