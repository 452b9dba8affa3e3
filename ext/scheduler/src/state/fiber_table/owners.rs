//! Names of fibers that outlive the fibers, and the owner of a fiber: the one on whose behalf it runs.

use super::FiberTable;
use crate::state::{
    fiber::{FiberRecord, Slot},
    strand::StrandEntry,
    wait::FiberId,
};

impl FiberTable {
    /// The fiber that is in this slot now.
    pub fn id(&self, slot: Slot) -> FiberId {
        FiberId::new(slot, self[slot].born)
    }

    /// The record of a fiber that may have ended.
    pub fn by_id(&self, id: FiberId) -> Option<&FiberRecord> {
        let record = self.get(id.index());
        record.filter(|record| record.born == id.generation())
    }

    /// The fiber on whose behalf this one runs: itself, unless another fiber has resumed it.
    pub fn owner_or_self(&self, slot: Slot) -> FiberId {
        let owner = self[slot].owner;
        owner.unwrap_or_else(|| self.id(slot))
    }

    /// The fiber on whose behalf this one runs, if that is another one and has not ended.
    pub fn owner(&self, slot: Slot) -> Option<&FiberRecord> {
        self.by_id(self[slot].owner?)
    }

    /// Notes on whose behalf a fiber runs that the scheduler did not make, and in which a hook has begun.
    pub fn set_owner(&mut self, slot: Slot, owner: Option<FiberId>) {
        let owner = owner.filter(|owner| owner.index() != slot && self.by_id(*owner).is_some());
        self.leave_owner(slot);
        let record = &mut self[slot];
        record.owner = owner.or(record.owner);
        if let Some(owner) = self.owner_mut(slot) {
            let during = owner.wait.number;
            owner.push_entry(StrandEntry::Resumed {
                fiber: slot,
                during,
            });
        }
    }

    /// The fiber runs on behalf of its owner no more.
    pub(super) fn leave_owner(&mut self, slot: Slot) {
        if let Some(owner) = self.owner_mut(slot) {
            let is_it = |entry: &StrandEntry| matches!(entry, StrandEntry::Resumed { fiber, .. } if *fiber == slot);
            if let Some(place) = owner.strand().iter().rposition(is_it) {
                owner.remove_entry(place);
            }
        }
    }

    fn owner_mut(&mut self, slot: Slot) -> Option<&mut FiberRecord> {
        let owner = self[slot].owner?;
        self.by_id(owner)?;
        Some(&mut self[owner.index()])
    }

    /// The fibers that run on behalf of this one, and the number of its wait in the middle of which it has resumed each.
    fn resumed(&self, slot: Slot) -> impl Iterator<Item = (&FiberRecord, u32)> {
        let strand = self[slot].strand();
        strand.iter().filter_map(|entry| match entry {
            StrandEntry::Resumed { fiber, during } => Some((&self[*fiber], *during)),
            _ => None,
        })
    }

    /// Whether a trap handler waits in the middle of the wait of a fiber that runs on behalf of this one.
    pub(super) fn has_handler_on_behalf(&self, slot: Slot) -> bool {
        self.resumed(slot).any(|(record, _)| record.is_in_handler())
    }

    /// Whether a fiber is parked that this one has resumed: control can be given to that one only.
    pub fn waits_for_parked(&self, slot: Slot) -> bool {
        self.resumed(slot).any(|(record, _)| record.wait.goes_on())
    }

    /// Whether a trap handler has resumed another fiber in the middle of this one's wait, and that fiber is parked or queued.
    pub(in crate::state) fn waits_for_resumed(&self, slot: Slot) -> bool {
        let (record, mut resumed) = (&self[slot], self.resumed(slot));
        let waits_for_it = |(resumed, during): (&FiberRecord, u32)| {
            during == record.wait.number && !resumed.is_suspended()
        };
        record.is_in_wait() && resumed.any(waits_for_it)
    }

    /// Whether a fiber's wait is over, and no entry of the ready queue will give it control. A fiber that waits for one that a trap
    /// handler has resumed needs no entry.
    pub(in crate::state) fn has_stranded(&self) -> bool {
        let mut slots = 0..self.records.len() as Slot;
        slots.any(|slot| self.may_run(slot) && !self.waits_for_resumed(slot))
    }
}
