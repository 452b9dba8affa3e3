//! Counters of a scheduler, beside those of the core.

#[derive(Debug, Default)]
pub struct Counters {
    pub fibers: u64,
    pub parks: u64,
    pub switches: u64,
    pub turns: u64,
    pub sleeps: u64,
    pub wakeups: u64,
    /// Milliseconds of garbage collection during sleeps.
    pub gc_asleep: u64,
    /// Sends that were queued for the driver.
    pub queued: u64,
    /// Reads and syncs of files that were given to the driver.
    pub carried: u64,
}

impl Counters {
    /// Changes whenever control goes from one fiber to another, or to the reactor.
    pub fn progress(&self) -> u64 {
        self.fibers + self.parks + self.switches + self.turns
    }

    pub fn rows(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("fibers", self.fibers),
            ("parks", self.parks),
            ("switches", self.switches),
            ("turns", self.turns),
            ("sleeps", self.sleeps),
            ("wakeups", self.wakeups),
            ("gc_asleep_ns", self.gc_asleep * 1_000_000),
            ("queued", self.queued),
            ("carried", self.carried),
        ]
    }
}
