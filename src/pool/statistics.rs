//! The counters of a pool.

/// What a pool has done since it was created, and its current load.
///
/// ```
/// let reactor = reactor::Reactor::open(None)?;
/// assert_eq!(reactor.pool().statistics().threads, 0, "the first job starts the first thread");
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Jobs submitted so far.
    pub jobs: u64,
    /// Jobs that ran to completion so far, including those that panicked.
    pub ended: u64,
    /// Jobs withdrawn before they began.
    pub cancelled: u64,
    /// Jobs that panicked.
    pub panicked: u64,
    /// Threads started so far.
    pub started: u64,
    /// Current number of threads.
    pub threads: u64,
    /// Jobs queued now.
    pub queued: u64,
    /// Jobs running now.
    pub running: u64,
}

impl PoolStatistics {
    /// The counters with their names.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
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
        .into_iter()
    }
}
