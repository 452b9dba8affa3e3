//! The counters of waits and polls.

/// What a reactor has done for descriptors since it was opened.
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
#[non_exhaustive]
pub struct Statistics {
    /// Waits started.
    pub waits: u64,
    /// Waits that made no system call, because all their directions were drained.
    pub skipped: u64,
    /// Descriptors registered with the kernel.
    pub registered: u64,
    /// Registrations re-armed, with the same or another interest.
    pub rearmed: u64,
    /// Registrations that the kernel no longer had and that were added again.
    pub renewed: u64,
    /// Registrations ended by [`Reactor::deregister`](crate::Reactor::deregister), or because of spurious events.
    pub deregistered: u64,
    /// Registrations that ended when the owner closed the descriptor; see
    /// [`Reactor::note_close`](crate::Reactor::note_close).
    pub closed: u64,
    /// Polls of the driver.
    pub polls: u64,
    /// Events that the kernel reported.
    pub events: u64,
    /// Events of an older registration generation, which were dropped.
    pub stale: u64,
    /// Events for directions that no wait asked for.
    pub spurious: u64,
}

impl Statistics {
    /// The counters with their names.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
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
        .into_iter()
    }
}
