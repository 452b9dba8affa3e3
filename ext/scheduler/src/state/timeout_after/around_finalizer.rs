//! Timeouts around code that a finalizer has interrupted, and timeouts that have begun in the finalizer.
//!
//! The frames of a fiber tell that a finalizer runs in it. The blocks of timeouts are frames, too: those between the finalizer and
//! the innermost frame have begun in the finalizer. Frames are looked at only when a timeout has fired.

use super::Timeouts;
use crate::state::{
    fiber::{FiberRecord, Slot},
    fiber_table::FiberTable,
    wait::Life,
};

impl Timeouts {
    /// See [`State::blocks_inside_fired`](crate::state::State::blocks_inside_fired).
    pub fn blocks_inside_fired(&self, slot: Slot, fibers: &FiberTable) -> usize {
        let fiber = fibers.life(slot);
        let fired = self
            .of_fiber(fiber, fibers.depth(slot))
            .filter(|timeout| timeout.fired);
        fired
            .map(|timeout| timeout.number)
            .min()
            .map_or(0, |outermost| {
                let timeouts = self.entries.values();
                1 + timeouts
                    .filter(|timeout| timeout.home == fiber && timeout.number > outermost)
                    .count()
            })
    }

    /// A finalizer has interrupted the fiber's code, and the fiber's `inside` innermost blocks of timeouts have begun in it. The
    /// timeouts around that code are raised after the outermost of these blocks. Without any, they are raised after the hook that
    /// the fiber has entered last. False if they cannot be told from the timeouts of a trap handler.
    pub fn set_code_aside(&mut self, slot: Slot, inside: usize, fibers: &mut FiberTable) -> bool {
        let fiber = fibers.life(slot);
        let Some(began) = self.outermost(fiber, inside) else {
            return fibers.set_code_aside(slot, None, 0);
        };
        let (number, hooks) = began;
        let began_inside = self
            .of_fiber(fiber, fibers.depth(slot))
            .filter(|timeout| timeout.number >= number);
        let fired = began_inside.filter(|timeout| timeout.fired).count() as u32;
        if !fibers.set_code_aside(slot, Some(hooks), fired) {
            return false;
        }
        for timeout in self.entries.values_mut() {
            if timeout.number >= number && timeout.fiber == fiber {
                timeout.depth += 1;
            } else if timeout.number >= number && is_owned(timeout.fiber, fiber, fibers) {
                timeout.depth_of_owner += 1;
            }
        }
        true
    }

    /// The number of the outermost of the fiber's innermost blocks, and how many hooks were active then.
    fn outermost(&self, fiber: Life, innermost: usize) -> Option<(u64, u32)> {
        let timeouts = self.entries.values();
        let mut blocks: Vec<_> = (timeouts.filter(|timeout| timeout.home == fiber))
            .map(|timeout| (timeout.number, timeout.hooks))
            .collect();
        blocks.sort_unstable();
        blocks.iter().rev().take(innermost).next_back().copied()
    }

    /// The fiber got from [`Timeouts::next_indirect`] is in a finalizer, in which its `inside` innermost blocks of timeouts have
    /// begun. The timeouts around the finalizer are not raised there. Without such blocks, nothing is raised during the wait of the
    /// fiber that this one has resumed.
    pub fn put_off(&mut self, slot: Slot, inside: usize, fibers: &mut FiberTable) {
        let fiber = fibers.life(slot);
        let wait = if inside == 0 {
            let Some(wait) = fibers.parked_on_behalf_of(slot) else {
                return;
            };
            Some(wait)
        } else if self.set_code_aside(slot, inside, fibers) {
            None
        } else {
            return;
        };
        for (token, timeout) in self.entries.iter_mut() {
            if timeout.fired && timeout.fiber == fiber {
                timeout.put_off = wait;
                if !self.fired.contains(&token) {
                    self.fired.push(token);
                }
            }
        }
    }
}

fn is_owned(fiber: Life, owner: Life, fibers: &FiberTable) -> bool {
    fiber != owner && fibers.alive(fiber).and_then(FiberRecord::owner) == Some(owner)
}
