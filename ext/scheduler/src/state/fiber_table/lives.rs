//! Names of fibers that outlive the fibers, and the owner of a fiber: the one on whose behalf it runs.

use reactor::Token;

use super::FiberTable;
use crate::state::{
    fiber::{FiberRecord, Slot},
    wait::Life,
};

impl FiberTable {
    /// The fiber that is in this slot now.
    pub fn life(&self, slot: Slot) -> Life {
        let number = self.lives.get(slot as usize).copied().unwrap_or(0);
        Life { slot, number }
    }

    pub fn is_alive(&self, life: Life) -> bool {
        self.alive(life).is_some()
    }

    /// The record of a fiber that may have ended.
    pub fn alive(&self, life: Life) -> Option<&FiberRecord> {
        self.get(life.slot).filter(|_| self.life(life.slot) == life)
    }

    pub(in crate::state) fn alive_mut(&mut self, life: Life) -> Option<&mut FiberRecord> {
        match self.life(life.slot) == life {
            true => self.get_mut(life.slot),
            false => None,
        }
    }

    /// The fiber on whose behalf this one runs: itself, unless another fiber has resumed it.
    pub fn owner_or_self(&self, slot: Slot) -> Life {
        let owner = self.get(slot).and_then(FiberRecord::owner);
        owner.unwrap_or_else(|| self.life(slot))
    }

    /// Whether the fiber on whose behalf this one runs is another one, and in a hook: perhaps in a timeout.
    pub fn has_owner_in_hook(&self, slot: Slot) -> bool {
        let owner = self.get(slot).and_then(FiberRecord::owner);
        let owner = owner.and_then(|owner| self.alive(owner));
        owner.is_some_and(FiberRecord::is_in_hook)
    }

    /// How many waits of the fiber are set aside.
    pub fn depth(&self, slot: Slot) -> u32 {
        self.get(slot).map_or(0, FiberRecord::depth)
    }

    /// How many waits are set aside of the fiber on whose behalf this one runs; 0 if that is the fiber itself.
    pub fn depth_of_owner(&self, slot: Slot) -> u32 {
        let owner = self.get(slot).and_then(FiberRecord::owner);
        let owner = owner.filter(|owner| self.is_alive(*owner));
        owner.map_or(0, |owner| self.depth(owner.slot))
    }

    /// Whether a trap handler waits in the middle of the wait of a fiber that runs on behalf of this one.
    pub fn is_interrupted_on_behalf_of(&self, life: Life) -> bool {
        let is_interrupted =
            |record: &FiberRecord| record.has_outer_wait() && record.owner() == Some(life);
        self.waits_set_aside > 0 && self.records().any(is_interrupted)
    }

    /// The wait of a fiber that runs on behalf of this one, and is parked.
    pub fn parked_on_behalf_of(&self, slot: Slot) -> Option<Token> {
        let life = self.life(slot);
        let of_owner = self.owned_by(life);
        of_owner
            .filter_map(|slot| self.parked(slot))
            .map(|(wait, _)| wait)
            .next()
    }

    fn owned_by(&self, owner: Life) -> impl Iterator<Item = Slot> + '_ {
        let slots = 0..self.lives.len() as Slot;
        slots.filter(move |slot| self.get(*slot).and_then(FiberRecord::owner) == Some(owner))
    }

    /// The fiber has entered a hook. If its owner is in the middle of a wait, a trap handler there has resumed it.
    pub(in crate::state) fn note_resumed_in_wait(&mut self, slot: Slot) {
        let fiber = self.life(slot);
        let owner = self.get(slot).and_then(FiberRecord::owner);
        let owner = owner.and_then(|owner| self.alive_mut(owner));
        if let Some(owner) = owner.filter(|owner| owner.is_in_wait()) {
            owner.set_resumed_in_wait(fiber);
        }
    }

    /// Whether the fiber that a trap handler has resumed in the middle of this one's wait is parked or queued.
    #[cold]
    pub(in crate::state) fn waits_for_resumed(&self, slot: Slot) -> bool {
        let owner = Some(self.life(slot));
        let resumed = self.get(slot).and_then(FiberRecord::resumed_in_wait);
        let resumed = resumed.and_then(|fiber| self.alive(fiber));
        resumed.is_some_and(|record| record.owner() == owner && !record.is_suspended_elsewhere())
    }

    /// Whether a fiber's wait is over, and no entry of the ready queue will give it control. A fiber that waits for one that a trap
    /// handler has resumed needs no entry.
    pub(in crate::state) fn has_stranded(&self) -> bool {
        let mut slots = 0..self.lives.len() as Slot;
        slots.any(|slot| self.may_run(slot) && !self.waits_for_resumed(slot))
    }

    /// Notes on whose behalf a fiber runs that the scheduler did not make.
    pub fn set_owner(&mut self, slot: Slot, owner: Option<Life>) {
        let owner = owner.filter(|owner| owner.slot != slot && self.is_alive(*owner));
        if let (Some(owner), Some(record)) = (owner, self.get_mut(slot)) {
            record.set_owner(owner);
        }
    }
}
