//! The idle queues: unanswered waits in the order in which they were last armed.

use std::time::Instant;

use crate::registry::waiters::{NONE, Waiters};

/// The idle queues. A wait begins in the first one, and moves on with each look. It stays in the last one.
pub(in crate::registry) const QUEUES: usize = 5;

/// Both ends of an idle queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdleQueue {
    oldest: u32,
    newest: u32,
}

impl IdleQueue {
    pub(super) const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
    };
}

impl Waiters {
    /// The idle queues that are not empty.
    #[inline]
    pub(in crate::registry) fn idle_queues(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.occupied;
        std::iter::from_fn(move || {
            let queue = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (queue < QUEUES).then_some(queue)
        })
    }

    /// When the oldest wait of an idle queue was last armed, and its slot.
    pub(in crate::registry) fn oldest(&self, queue: usize) -> Option<(Instant, u32)> {
        let node = self.nodes.get(self.idle[queue].oldest as usize)?;
        Some((node.armed, node.slot))
    }

    /// The oldest wait of an idle queue is armed again: it moves to the end of the next queue, and from the last queue to the
    /// end of the same.
    pub(in crate::registry) fn move_on(&mut self, queue: usize, now: Instant) {
        let number = self.idle[queue].oldest;
        if number == NONE {
            return;
        }
        self.unqueue(number);
        self.nodes[number as usize].armed = now;
        self.queue(number, (queue + 1).min(QUEUES - 1));
    }

    /// Appends a node to an idle queue.
    #[inline(always)] // the queue is a constant for a wait that begins
    pub(super) fn queue(&mut self, number: u32, queue: usize) {
        self.occupied |= 1 << queue;
        let idle = &mut self.idle[queue];
        let newest = std::mem::replace(&mut idle.newest, number);
        let node = &mut self.nodes[number as usize];
        node.queue = queue as u8;
        node.older = newest;
        node.newer = NONE;
        match newest {
            NONE => idle.oldest = number,
            newest => self.nodes[newest as usize].newer = number,
        }
    }

    /// Removes a node from its idle queue.
    #[inline(always)] // at the end of each wait
    pub(super) fn unqueue(&mut self, number: u32) {
        let node = &self.nodes[number as usize];
        let (queue, older, newer) = (usize::from(node.queue), node.older, node.newer);
        match older {
            NONE => self.idle[queue].oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        match newer {
            NONE => self.idle[queue].newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        if older == NONE && newer == NONE {
            self.occupied &= !(1 << queue);
        }
    }
}
