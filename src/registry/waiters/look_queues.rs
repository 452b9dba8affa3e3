//! The look queues: unanswered waits in the order in which they were last armed.

use std::time::Instant;

use crate::registry::waiters::{Node, Waiters};

/// The look queues. A wait begins in the first one, and moves on with each look. It stays in the last one.
pub(in crate::registry) const QUEUES: usize = 5;

/// The head of a look queue as a node: the first nodes of the slab are the heads. Head and waits form a ring, so that no link
/// is checked for an end of the queue.
pub(super) fn heads() -> Vec<Node> {
    let now = Instant::now(); // never read
    let head = |number| Node {
        older: number,
        newer: number,
        ..Node::free(now)
    };
    (0..QUEUES as u32).map(head).collect()
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
        let number = self.nodes[queue].newer as usize;
        let node = &self.nodes[number];
        (number != queue).then_some((node.armed, node.slot))
    }

    /// The oldest wait of a look queue is armed again: it moves to the end of the next queue, and from the last queue to the
    /// end of the same.
    pub(in crate::registry) fn move_on(&mut self, queue: usize, now: Instant) {
        let number = self.nodes[queue].newer;
        if number as usize == queue {
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
        let newest = std::mem::replace(&mut self.nodes[queue].older, number);
        self.nodes[newest as usize].newer = number;
        let node = &mut self.nodes[number as usize];
        node.older = newest;
        node.newer = queue as u32;
    }

    /// Removes a node from its look queue.
    #[inline(always)] // at the end of each wait
    pub(super) fn unqueue(&mut self, number: u32) {
        let node = &self.nodes[number as usize];
        let (older, newer) = (node.older, node.newer);
        self.nodes[older as usize].newer = newer;
        self.nodes[newer as usize].older = older;
        if older == newer {
            // Both neighbours are the head.
            self.occupied &= !(1 << older);
        }
    }
}
