//! The look queues: unanswered waits in the order in which they were last armed.

use std::time::Instant;

use crate::registry::waiters::{NONE, Waiters};

/// The look queues. A wait begins in the first one, and moves on with each look. It stays in the last one.
pub(in crate::registry) const QUEUES: usize = 5;

/// Both ends of a look queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct LookQueue {
    oldest: u32,
    newest: u32,
}

impl LookQueue {
    pub(super) const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
    };
}

impl Waiters {
    /// The look queues that are not empty.
    #[inline]
    pub(in crate::registry) fn look_queues(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.occupied;
        std::iter::from_fn(move || {
            let queue = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (queue < QUEUES).then_some(queue)
        })
    }

    /// When the oldest wait of a look queue was last armed, and its slot.
    pub(in crate::registry) fn oldest(&self, queue: usize) -> Option<(Instant, u32)> {
        let node = self.nodes.get(self.look_queues[queue].oldest as usize)?;
        Some((node.armed, node.slot))
    }

    /// The oldest wait of a look queue is armed again: it moves to the end of the next queue, and from the last queue to the
    /// end of the same.
    pub(in crate::registry) fn move_on(&mut self, queue: usize, now: Instant) {
        let number = self.look_queues[queue].oldest;
        if number == NONE {
            return;
        }
        self.unqueue(number);
        self.nodes[number as usize].armed = now;
        self.queue(number, (queue + 1).min(QUEUES - 1));
    }

    /// Appends a node to a look queue.
    #[inline(always)] // the queue is a constant for a wait that begins
    pub(super) fn queue(&mut self, number: u32, queue: usize) {
        self.occupied |= 1 << queue;
        let ends = &mut self.look_queues[queue];
        let newest = std::mem::replace(&mut ends.newest, number);
        let node = &mut self.nodes[number as usize];
        node.queue = queue as u8;
        node.older = newest;
        node.newer = NONE;
        match newest {
            NONE => ends.oldest = number,
            newest => self.nodes[newest as usize].newer = number,
        }
    }

    /// Removes a node from its look queue.
    #[inline(always)] // at the end of each wait
    pub(super) fn unqueue(&mut self, number: u32) {
        let node = &self.nodes[number as usize];
        let (queue, older, newer) = (usize::from(node.queue), node.older, node.newer);
        match older {
            NONE => self.look_queues[queue].oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        match newer {
            NONE => self.look_queues[queue].newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        if older == NONE && newer == NONE {
            self.occupied &= !(1 << queue);
        }
    }
}
