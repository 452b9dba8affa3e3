//! The [strand](crate::state::strand) of a fiber's record.

use crate::state::{
    fiber::FiberRecord,
    strand::{StrandEntry, Timeout},
    wait::Wait,
};

impl FiberRecord {
    /// Innermost entry last.
    pub(in crate::state) fn strand(&self) -> &[StrandEntry] {
        self.rare.as_ref().map_or(&[], |rare| &rare.strand)
    }

    pub(in crate::state) fn entries_mut(&mut self) -> &mut [StrandEntry] {
        self.rare.as_mut().map_or(&mut [], |rare| &mut rare.strand)
    }

    pub(in crate::state) fn push_entry(&mut self, entry: StrandEntry) {
        self.rare.get_or_insert_default().strand.push(entry);
    }

    pub(in crate::state) fn remove_entry(&mut self, place: usize) -> Option<StrandEntry> {
        let strand = &mut self.rare.as_mut()?.strand;
        match place + 1 == strand.len() {
            true => strand.pop(),
            false => Some(strand.remove(place)),
        }
    }

    /// Whether another fiber runs for this one.
    pub(in crate::state) fn has_resumed(&self) -> bool {
        let mut strand = self.strand().iter();
        strand.any(|entry| matches!(entry, StrandEntry::Resumed { .. }))
    }

    /// Whether ending the innermost wait, or a timeout, may uncover another wait.
    pub(in crate::state) fn may_uncover(&self) -> bool {
        let last = self.strand().last();
        last.is_some_and(|entry| !matches!(entry, StrandEntry::Timeout(_)))
    }

    /// Whether a trap handler or finalizer is known to have interrupted a wait or other code of the fiber.
    pub fn is_in_handler(&self) -> bool {
        self.strand().iter().any(StrandEntry::shields)
    }

    /// The wait of the block of this timeout: the outermost one if others have begun during it.
    pub(in crate::state) fn wait_inside(&self, timeout: u32) -> &Wait {
        let is_it = |entry: &StrandEntry| matches!(entry, StrandEntry::Timeout(each) if each.number == timeout);
        let inside = self.strand().iter().skip_while(|entry| !is_it(entry));
        let mut covered = inside.filter_map(|entry| match entry {
            StrandEntry::Wait(wait) => Some(&**wait),
            _ => None,
        });
        covered.next().unwrap_or(&self.wait)
    }

    pub(in crate::state) fn timeout_mut(&mut self, number: u32) -> Option<&mut Timeout> {
        self.entries_mut().iter_mut().find_map(|entry| match entry {
            StrandEntry::Timeout(timeout) if timeout.number == number => Some(timeout),
            _ => None,
        })
    }
}
