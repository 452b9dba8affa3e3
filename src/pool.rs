//! Work that may block, done by other threads.

#[cfg_attr(unix, path = "pool/signal_mask/unix.rs")]
#[cfg_attr(windows, path = "pool/signal_mask/windows.rs")]
#[allow(unsafe_code)]
mod signal_mask;

#[cfg_attr(target_os = "linux", path = "pool/time_slice/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "pool/time_slice/other.rs")]
#[allow(unsafe_code)]
mod time_slice;

mod job;

use std::{
    collections::VecDeque,
    fmt, io,
    num::NonZero,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use crate::{handle::Handle, token::Token};

pub use job::{Job, Outcome};
pub use time_slice::lengthen_time_slice;

use job::{RunOutcome, Task};

/// A bounded pool of threads for what the kernel offers no non-blocking call for: files that are not in the page cache,
/// names, fsync(2).
///
/// - **Nothing before it is needed.** The first job starts the first thread; another one is started when a job finds no
///   idle thread and the limit is not reached; an idle one ends after a while.
/// - **Completions are events.** When a job has ended, its token is reported with
///   [`Ready::NOTIFIED`](crate::Ready::NOTIFIED) by the reactor's next turn, and [`Job::take`] has the result. Each job
///   that somebody still waits for is notified exactly once, whether its work returned or panicked.
/// - **Memory belongs to the job**, never to whoever waits: see [`Job`].
/// - **The end.** When the pool is dropped, queued jobs are dropped without having been run; those that are going on go
///   on to their end on their thread, which then ends too. Nobody waits for them: a name that takes a minute to resolve
///   does not hold up the end of the program.
/// - **Signals** are blocked in the workers, so that they reach the threads that expect them.
/// - **Precedence.** Where threads are more than processors, one that wakes up for an event goes before the workers: their
///   time slice is longer by a quarter (Linux 6.12 and later).
/// - **fork(2)** copies the pool but not its threads. In the child it refuses work ([`Refused::Foreign`]), its jobs are
///   [`Outcome::Dropped`], and dropping it touches nothing; a reactor that the child opens has a pool of its own.
///
/// Used by one thread at a time, like the reactor it belongs to.
///
/// ```
/// use reactor::{Events, Outcome, WorkClass, Reactor, Ready, Token};
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
    process: u32,
    next: u64,
}

/// How much a [`Pool`] may take.
///
/// ```
/// use reactor::{Limits, Reactor};
///
/// let mut reactor = Reactor::open(None)?;
/// reactor.pool_mut().limit(Limits { threads: 2, ..Limits::default() });
/// assert_eq!(reactor.pool().limits().threads, 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Threads at once; at least 1. Default: as many as the three classes may have together.
    pub threads: usize,
    /// How many of them may be at work that is [`WorkClass::Cpu`], which takes a core's time; at least 1. Default: as many as
    /// there are processors, but one: that is left to the reactor's own thread.
    pub cpu: usize,
    /// How many of them may be at work that is [`WorkClass::Disk`], which takes a disk's time; at least 1. Default: 16.
    pub disk: usize,
    /// How many of them may be at work that is [`WorkClass::Network`], which only waits; at least 1. Default: 48.
    pub network: usize,
    /// Jobs that wait for a thread; at least 1. Default: 1024.
    pub queue: usize,
    /// How long an idle thread stays. Default: 10 s.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let (cpu, disk, network) = (1.max(processors - 1), 16, 48);
        Self {
            threads: cpu + disk + network,
            cpu,
            disk,
            network,
            queue: 1024,
            idle: Duration::from_secs(10),
        }
    }
}

/// How long work may take: what waits for a disk must not stand behind what waits for the other end of the world.
///
/// ```
/// use reactor::{WorkClass, Reactor, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let name = || std::net::ToSocketAddrs::to_socket_addrs("localhost:80").map(Iterator::count);
/// let job = reactor.pool_mut().submit(Token::new(1, 0), WorkClass::Network, name)?;
/// drop(job); // Whoever drops a job is not told of its end.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkClass {
    /// It waits for nobody and copies memory: a fraction of a millisecond.
    Cpu,
    /// It waits for a local device: milliseconds.
    Disk,
    /// It waits for the network, or for somebody: seconds, and perhaps many.
    Network,
}

/// Why a job was not taken.
///
/// ```
/// use std::sync::{Arc, Barrier};
///
/// use reactor::{Limits, WorkClass, Reactor, Refused, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// reactor.pool_mut().limit(Limits { threads: 1, queue: 1, ..Limits::default() });
/// let barrier = Arc::new(Barrier::new(2)); // Nobody comes: the first job never ends.
/// let mut jobs = Vec::new();
/// let refused = loop {
///     let barrier = Arc::clone(&barrier);
///     let work = move || drop(barrier.wait());
///     match reactor.pool_mut().submit(Token::new(1, 0), WorkClass::Disk, work) {
///         Ok(job) => jobs.push(job),
///         Err(refused) => break refused,
///     }
/// };
/// assert!(matches!(refused, Refused::Full));
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub enum Refused {
    /// As many jobs are queued as may be; [`Pool::notify_when_capacity`] tells when that is over.
    Full,
    /// The pool belongs to the parent of this process.
    Foreign,
    /// There is no worker and none could be started: pthread_create(3).
    NoThread(io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Full => formatter.write_str("the queue of the pool is full"),
            Refused::Foreign => formatter.write_str("the pool belongs to the parent process"),
            Refused::NoThread(error) => write!(formatter, "no thread for the pool: {error}"),
        }
    }
}

impl std::error::Error for Refused {}

/// What a pool has done and has to do.
///
/// ```
/// let reactor = reactor::Reactor::open(None)?;
/// assert_eq!(reactor.pool().statistics().threads, 0, "nothing before it is needed");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Jobs handed in.
    pub jobs: u64,
    /// Jobs that were run to their end, panics included.
    pub ended: u64,
    /// Jobs taken back before they began.
    pub cancelled: u64,
    /// Jobs that panicked.
    pub panicked: u64,
    /// Threads started so far.
    pub started: u64,
    /// Threads there are.
    pub threads: u64,
    /// Jobs that wait for a thread.
    pub queued: u64,
    /// Jobs going on.
    pub running: u64,
}

impl PoolStatistics {
    /// The counters with their names.
    pub const fn rows(&self) -> [(&'static str, u64); 8] {
        [
            ("pool_jobs", self.jobs),
            ("pool_ended", self.ended),
            ("pool_cancelled", self.cancelled),
            ("pool_panicked", self.panicked),
            ("pool_started", self.started),
            ("pool_threads", self.threads),
            ("pool_queued", self.queued),
            ("pool_running", self.running),
        ]
    }
}

impl Pool {
    /// A pool whose completions go through `handle`. Starts nothing.
    pub fn new(handle: Handle) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State::default()),
                changed: Condvar::new(),
                handle,
            }),
            limits: Limits::default(),
            process: std::process::id(),
            next: 0,
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Sets the limits, each raised to 1 where it is 0. Threads and jobs beyond them are not ended, but there are no new
    /// ones.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = Limits {
            threads: limits.threads.max(1),
            cpu: limits.cpu.max(1),
            disk: limits.disk.max(1),
            network: limits.network.max(1),
            queue: limits.queue.max(1),
            idle: limits.idle,
        };
        if self.is_of_this_process() {
            self.shared.state().limits = self.limits;
            self.shared.changed.notify_all();
        }
    }

    /// Has `work` done by a worker; `token` is reported when it has ended.
    ///
    /// # Errors
    ///
    /// [`Refused`]; the work is then dropped. [`Pool::has_capacity`] tells before.
    pub fn submit<T: Send + 'static>(
        &mut self,
        token: Token,
        class: WorkClass,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Job<T>, Refused> {
        if !self.is_of_this_process() {
            return Err(Refused::Foreign);
        }
        let number = self.next;
        let job = Job::new(work, token, Arc::clone(&self.shared), number, self.process);
        let mut state = self.shared.state();
        state.limits = self.limits;
        if state.queued() >= self.limits.queue {
            return Err(Refused::Full);
        }
        self.next += 1;
        state.statistics.jobs += 1;
        state.queue_of(class).queue.push_back(Queued {
            number,
            task: job.task(),
        });
        let start = state.startable() > state.idle && state.threads < self.limits.threads;
        state.threads += usize::from(start);
        state.idle += usize::from(start);
        self.shared.wake_idle_worker(state);
        if start {
            self.start()?; // on failure the job is dropped here, and out of the queue with it
        }
        Ok(job)
    }

    /// Whether [`Pool::submit`] would find room in the queue: only its own calls make that less.
    pub fn has_capacity(&self) -> bool {
        !self.is_of_this_process() || self.shared.state().queued() < self.limits.queue
    }

    /// `token` will be reported once, when the queue has room again, or at once if it has.
    ///
    /// All that were crowded out are told together, and whoever comes first gets the room.
    pub fn notify_when_capacity(&self, token: Token) {
        if self.has_capacity() {
            self.shared.notify(token);
        } else {
            self.shared.state().capacity_waiters.push(token);
        }
    }

    /// What the pool has done and has to do. All zero in a child of the process it belongs to.
    pub fn statistics(&self) -> PoolStatistics {
        if !self.is_of_this_process() {
            return PoolStatistics::default();
        }
        let state = self.shared.state();
        PoolStatistics {
            threads: state.threads as u64,
            queued: state.queued() as u64,
            running: state.running() as u64,
            ..state.statistics
        }
    }

    fn start(&self) -> Result<(), Refused> {
        let shared = Arc::clone(&self.shared);
        let thread = thread::Builder::new().name("reactor-pool".to_owned());
        let started = signal_mask::without_signals(|| {
            thread.spawn(move || {
                lengthen_time_slice();
                shared.work();
            })
        });
        let mut state = self.shared.state();
        match started {
            Ok(_) => {
                state.statistics.started += 1;
                Ok(())
            }
            Err(error) => {
                state.threads -= 1;
                state.idle -= 1;
                if state.threads > 0 {
                    return Ok(()); // the others will get round to it
                }
                Err(Refused::NoThread(error))
            }
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            return; // a worker may have held the lock when the process was copied
        }
        let queues = {
            let mut state = self.shared.state();
            state.closed = true;
            state
                .queues
                .each_mut()
                .map(|class_queue| std::mem::take(&mut class_queue.queue))
        };
        self.shared.changed.notify_all();
        for queued in queues.into_iter().flatten() {
            if let Some(token) = queued.task.discard() {
                self.shared.notify(token);
            }
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

/// What the workers hold.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    handle: Handle,
}

#[derive(Default)]
struct State {
    /// By class.
    queues: [ClassQueue; 3],
    limits: Limits,
    threads: usize,
    idle: usize,
    closed: bool,
    /// To be told when the queue has room.
    capacity_waiters: Vec<Token>,
    statistics: PoolStatistics,
}

#[derive(Default)]
struct ClassQueue {
    queue: VecDeque<Queued>,
    running: usize,
}

struct Queued {
    number: u64,
    task: Arc<dyn Task>,
}

impl Shared {
    /// The life of a worker, who counts as idle from before its first breath.
    fn work(&self) {
        self.state().idle -= 1;
        while let Some((queued, class)) = self.next() {
            let ran = queued.task.run();
            {
                let mut state = self.state();
                state.queue_of(class).running -= 1;
                state.count(ran);
            }
            // The count first: whoever hears of the end finds it counted.
            if let RunOutcome::Ended {
                notify: Some(token),
                ..
            } = ran
            {
                self.notify(token);
            }
        }
    }

    /// The next job; None when the worker has been idle for long, or the pool is gone.
    fn next(&self) -> Option<(Queued, WorkClass)> {
        let mut state = self.state();
        loop {
            if let Some(found) = state.take() {
                self.tell_capacity_waiters(state);
                return Some(found);
            }
            if state.closed {
                break;
            }
            state.idle += 1;
            let idle = state.limits.idle;
            let (woken, wait) = self
                .changed
                .wait_timeout(state, idle)
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if wait.timed_out() && state.startable() == 0 {
                break;
            }
        }
        state.threads -= 1;
        None
    }

    /// Tells those who were crowded out, if there is room now.
    fn tell_capacity_waiters(&self, mut state: MutexGuard<'_, State>) {
        let mut waiters = Vec::new();
        if state.queued() < state.limits.queue {
            waiters = std::mem::take(&mut state.capacity_waiters);
        }
        self.wake_idle_worker(state);
        for token in waiters {
            self.notify(token);
        }
    }

    /// Wakes an idle worker, if there is something for it to begin. (To wake nobody is a system call, too.)
    fn wake_idle_worker(&self, state: MutexGuard<'_, State>) {
        let wanted = state.idle > 0 && state.startable() > 0;
        drop(state);
        if wanted {
            self.changed.notify_one();
        }
    }

    fn notify(&self, token: Token) {
        // It is in the inbox even where waking the owner failed.
        _ = self.handle.notify(token);
    }

    /// A job was taken back: its place in the queue is free.
    fn remove(&self, number: u64) {
        let mut state = self.state();
        state.statistics.cancelled += 1;
        let mut removed = None;
        for ClassQueue { queue, .. } in &mut state.queues {
            if let Ok(place) = queue.binary_search_by_key(&number, |queued| queued.number) {
                removed = queue.remove(place);
            }
        }
        self.tell_capacity_waiters(state);
        drop(removed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers and lists: no foreign code runs under the lock, and nothing is ever half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn queue_of(&mut self, class: WorkClass) -> &mut ClassQueue {
        &mut self.queues[class as usize]
    }

    /// How many jobs of each class may begin.
    fn open(&self) -> [usize; 3] {
        let Limits {
            cpu, disk, network, ..
        } = self.limits;
        let mut open = [cpu, disk, network];
        for (open, class_queue) in open.iter_mut().zip(&self.queues) {
            *open = open
                .saturating_sub(class_queue.running)
                .min(class_queue.queue.len());
        }
        open
    }

    /// Queued jobs that may begin.
    fn startable(&self) -> usize {
        self.open().into_iter().sum()
    }

    fn queued(&self) -> usize {
        self.queues
            .iter()
            .map(|class_queue| class_queue.queue.len())
            .sum()
    }

    fn running(&self) -> usize {
        self.queues
            .iter()
            .map(|class_queue| class_queue.running)
            .sum()
    }

    /// The oldest job that may begin; from now on it is going on.
    fn take(&mut self) -> Option<(Queued, WorkClass)> {
        let open = self.open();
        let number = |class: WorkClass| Some(self.queues[class as usize].queue.front()?.number);
        let classes = [WorkClass::Cpu, WorkClass::Disk, WorkClass::Network].into_iter();
        let class = classes
            .filter(|class| open[*class as usize] > 0)
            .min_by_key(|class| number(*class))?;
        let class_queue = self.queue_of(class);
        let queued = class_queue.queue.pop_front()?;
        class_queue.running += 1;
        Some((queued, class))
    }

    fn count(&mut self, ran: RunOutcome) {
        if let RunOutcome::Ended { panicked, .. } = ran {
            self.statistics.ended += 1;
            self.statistics.panicked += u64::from(panicked);
        }
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

    struct NoSleeper;

    impl Wake for NoSleeper {
        fn wake(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_idle_thread_is_used_again() {
        let mut pool = Pool::new(Handle::new(Arc::new(NoSleeper)));
        pool.limit(Limits {
            idle: Duration::MAX,
            ..Limits::default()
        });
        for round in 0..10 {
            let mut job = pool
                .submit(Token::new(0, 0), WorkClass::Disk, move || round)
                .unwrap();
            assert_eq!(job.wait(), Outcome::Done(round));
            // The worker is idle some time after its job has ended.
            let deadline = Instant::now() + Duration::from_secs(60);
            while pool.shared.state().idle == 0 {
                assert!(Instant::now() < deadline, "it never becomes idle");
                thread::yield_now();
            }
        }
        assert_eq!(pool.statistics().started, 1);
    }
}
