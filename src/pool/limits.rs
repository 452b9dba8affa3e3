//! How many threads a pool may have for each class of work.

use std::{num::NonZero, thread, time::Duration};

/// What a job spends its time on. Each class has its own limit, so that a file read does not queue behind name lookups
/// that take seconds.
///
/// ```
/// use reactor::{Reactor, Token, pool::WorkClass};
///
/// let mut reactor = Reactor::open(None)?;
/// let name = || std::net::ToSocketAddrs::to_socket_addrs("localhost:80").map(Iterator::count);
/// let job = reactor.pool_mut().submit(Token::new(1, 0), WorkClass::Network, name)?;
/// drop(job); // A dropped job is not notified.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkClass {
    /// Copies memory and waits for nothing: a fraction of a millisecond.
    Cpu,
    /// Waits for a local device: milliseconds.
    Disk,
    /// Waits for the network or for another process: seconds, sometimes minutes.
    Network,
}

impl WorkClass {
    /// All classes, in order of their numbers.
    pub(super) const ALL: [Self; 3] = [Self::Cpu, Self::Disk, Self::Network];
}

/// The limits of a [`Pool`](crate::pool::Pool): threads, and how long an idle thread lives. Any number of jobs may be queued.
///
/// ```
/// use reactor::{Reactor, pool::Limits};
///
/// let mut reactor = Reactor::open(None)?;
/// reactor.pool_mut().limit(Limits { threads: 2, ..Limits::default() });
/// assert_eq!(reactor.pool().limits().threads, 2);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of threads; at least 1. Default: the sum of the three class limits.
    pub threads: usize,
    /// How many threads may run [`WorkClass::Cpu`] at a time; at least 1. Default: the number of processors minus one.
    /// The remaining one is left to the reactor's own thread.
    pub cpu: usize,
    /// How many threads may run [`WorkClass::Disk`] at a time; at least 1. Default: 16.
    pub disk: usize,
    /// How many threads may run [`WorkClass::Network`] at a time; at least 1. Default: 48.
    pub network: usize,
    /// How long an idle thread lives. Default: 10 s.
    pub idle: Duration,
}

impl Limits {
    /// The same limits, with each 0 raised to 1.
    pub(super) fn at_least_one(self) -> Self {
        Self {
            threads: self.threads.max(1),
            cpu: self.cpu.max(1),
            disk: self.disk.max(1),
            network: self.network.max(1),
            idle: self.idle,
        }
    }

    /// How many threads may run work of this class at a time.
    pub(super) fn of_class(&self, class: WorkClass) -> usize {
        match class {
            WorkClass::Cpu => self.cpu,
            WorkClass::Disk => self.disk,
            WorkClass::Network => self.network,
        }
    }
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
            idle: Duration::from_secs(10),
        }
    }
}
