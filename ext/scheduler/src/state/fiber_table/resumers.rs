//! Fiber ids, which outlive the fibers, and each fiber's resumer: the fiber for which it runs.

use std::time::Instant;

use super::FiberTable;
use crate::state::{
    fiber::{FiberRecord, Slot},
    strand::StrandEntry,
    wait::FiberId,
};

impl FiberTable {
    /// The id of the fiber now in this slot.
    pub fn id(&self, slot: Slot) -> FiberId {
        FiberId::new(slot, self[slot].born)
    }

    /// The record of a fiber that may have ended.
    pub fn by_id(&self, id: FiberId) -> Option<&FiberRecord> {
        let record = self.get(id.index());
        record.filter(|record| record.born == id.generation())
    }

    /// The fiber for which this one runs: itself, unless another fiber resumed it.
    pub fn resumer_or_self(&self, slot: Slot) -> FiberId {
        let resumer = self[slot].resumer;
        resumer.unwrap_or_else(|| self.id(slot))
    }

    /// The record of the fiber that resumed this one, if any, unless it has ended.
    pub fn resumer(&self, slot: Slot) -> Option<&FiberRecord> {
        self.by_id(self[slot].resumer?)
    }

    /// Records the fiber for which this one runs. Called when a hook begins in a fiber that the scheduler did not
    /// create.
    pub fn set_resumer(&mut self, slot: Slot, resumer: Option<FiberId>) {
        let resumer =
            resumer.filter(|resumer| resumer.index() != slot && self.by_id(*resumer).is_some());
        self.leave_resumer(slot);
        let record = &mut self[slot];
        record.resumer = resumer.or(record.resumer);
        if let Some(resumer) = self.resumer_mut(slot) {
            let during = resumer.wait.number;
            resumer.push_entry(StrandEntry::Resumed {
                fiber: slot,
                during,
            });
        }
    }

    /// The fiber no longer runs for another one.
    pub(super) fn leave_resumer(&mut self, slot: Slot) {
        if let Some(resumer) = self.resumer_mut(slot) {
            let is_it = |entry: &StrandEntry| matches!(entry, StrandEntry::Resumed { fiber, .. } if *fiber == slot);
            if let Some(place) = resumer.strand().iter().rposition(is_it) {
                resumer.remove_entry(place);
            }
        }
    }

    fn resumer_mut(&mut self, slot: Slot) -> Option<&mut FiberRecord> {
        let resumer = self[slot].resumer?;
        self.by_id(resumer)?;
        Some(&mut self[resumer.index()])
    }

    /// The fibers that run for this one, each with the number of the wait during which it was resumed.
    fn resumed(&self, slot: Slot) -> impl Iterator<Item = (&FiberRecord, u32)> {
        self.resumed_by(&self[slot])
    }

    fn resumed_by<'a>(
        &'a self,
        record: &'a FiberRecord,
    ) -> impl Iterator<Item = (&'a FiberRecord, u32)> {
        record.strand().iter().filter_map(|entry| match entry {
            StrandEntry::Resumed { fiber, during } => Some((&self[*fiber], *during)),
            _ => None,
        })
    }

    /// Whether a trap handler is running in a fiber that runs for this one.
    pub(super) fn has_handler_on_behalf(&self, slot: Slot) -> bool {
        self.resumed(slot).any(|(record, _)| record.is_in_handler())
    }

    /// The fiber that last entered a hook on behalf of this one, which has resumed it, or another that has.
    pub fn running_for(&self, slot: Slot) -> Option<Slot> {
        let mut strand = self[slot].strand().iter().rev();
        let resumed = strand.find_map(|entry| match entry {
            StrandEntry::Resumed { fiber, .. } => Some(*fiber),
            _ => None,
        });
        resumed.filter(|_| self[slot].is_suspended())
    }

    /// Whether a fiber that runs for this one has been woken by what it waited for.
    pub(super) fn has_answer_on_behalf(&self, slot: Slot) -> bool {
        self.resumed(slot)
            .any(|(record, _)| record.wait.is_answered())
    }

    /// Whether this fiber has resumed another fiber that is parked. If so, only the parked fiber can be given control.
    pub fn waits_for_parked(&self, slot: Slot) -> bool {
        self.resumed(slot)
            .any(|(record, _)| record.wait.is_parked())
    }

    /// When the fiber has parked, or the one that it has resumed and that is parked.
    pub fn waiting_since(&self, record: &FiberRecord) -> Option<Instant> {
        let mut parked = self
            .resumed_by(record)
            .filter(|(resumed, _)| resumed.wait.is_parked());
        let resumed = parked.find_map(|(resumed, _)| resumed.wait.parked_at);
        record.wait.parked_at.or(resumed)
    }

    /// Whether a trap handler resumed another fiber during this one's wait, and that fiber is parked or queued.
    pub(in crate::state) fn waits_for_resumed(&self, slot: Slot) -> bool {
        let (record, mut resumed) = (&self[slot], self.resumed(slot));
        let waits_for_it = |(resumed, during): (&FiberRecord, u32)| {
            during == record.wait.number && !resumed.is_suspended()
        };
        record.is_in_wait() && resumed.any(waits_for_it)
    }

    /// Whether a fiber's wait has ended but no ready-queue entry will run it. A fiber needs no entry while it waits for
    /// another fiber that a trap handler resumed.
    pub(in crate::state) fn has_stranded(&self) -> bool {
        let mut slots = 0..self.records.len() as Slot;
        slots.any(|slot| self.may_run(slot) && !self.waits_for_resumed(slot))
    }
}
