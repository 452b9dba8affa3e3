//! Counters.

/// What a selector has done since it was opened. Plain numbers, for tests and for the curious.
///
/// ```
/// let reactor = reactor::Reactor::open(None)?;
/// for (name, value) in reactor.statistics().rows() {
///     println!("{name:>12} {value}");
/// }
/// assert_eq!(reactor.statistics().waits, 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Waits asked for.
    pub waits: u64,
    /// Waits that needed no system call, because the direction was known to be drained.
    pub skipped: u64,
    /// Descriptors registered with the kernel.
    pub registered: u64,
    /// Registrations armed again, changed or not.
    pub rearmed: u64,
    /// Registrations the kernel had forgotten and that were made afresh.
    pub renewed: u64,
    /// Registrations ended: descriptors forgotten, or reported again while nobody wanted them.
    pub deregistered: u64,
    /// Registrations that were left to end with their descriptors, which their owners closed.
    pub closed: u64,
    /// Polls.
    pub polls: u64,
    /// Events the kernel reported.
    pub events: u64,
    /// Events of an older life of a descriptor, dropped.
    pub stale: u64,
    /// Events that reported a direction nobody was waiting for.
    pub spurious: u64,
}

impl Statistics {
    /// The counters with their names.
    pub const fn rows(&self) -> [(&'static str, u64); 11] {
        [
            ("waits", self.waits),
            ("skipped", self.skipped),
            ("registered", self.registered),
            ("rearmed", self.rearmed),
            ("renewed", self.renewed),
            ("deregistered", self.deregistered),
            ("closed", self.closed),
            ("polls", self.polls),
            ("events", self.events),
            ("stale", self.stale),
            ("spurious", self.spurious),
        ]
    }
}
