//! The look queues: unanswered waits in the order in which they were last armed.

use std::{cmp::Reverse, time::Instant};

use crate::registry::{entries::Entries, node::NONE};

/// The look queues. A wait begins in the first one, and moves on with each look. It stays in the last one.
pub(super) const QUEUES: usize = 5;

/// `newer` of a node that is on the list of recent waits. `older` is the sequence number of its last wait then.
const RECENT: u32 = NONE - 1;

/// The heads of the look queues have this number and the ones after it.
const HEADS: u32 = RECENT - QUEUES as u32;

/// From so many recent waits on, they are queued before the thread sleeps, so that a look for the oldest is short.
const MANY: usize = 8;

/// A node's neighbours in its look queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    older: u32,
    newer: u32,
}

impl Links {
    /// In no queue.
    pub(super) const NONE: Self = Self {
        older: NONE,
        newer: NONE,
    };

    #[inline(always)] // in each wait
    pub(super) fn is_queued(self) -> bool {
        self.newer < RECENT
    }
}

/// All look queues.
///
/// Most waits are answered soon, so a wait does not enter a queue when it begins. Its node is put on the list of recent waits,
/// and stays there when the wait ends, also for the next wait. Before a look may be due, the nodes that wait then are
/// queued in the order in which their waits began.
#[derive(Debug)]
pub(super) struct LookQueues {
    recent: Vec<u32>,
    /// The oldest and the newest wait of each queue. Head and waits form a ring, so that no link is checked for an end of the
    /// queue.
    heads: [Links; QUEUES],
}

impl LookQueues {
    pub(super) fn new() -> Self {
        let mut heads = [Links::NONE; QUEUES];
        for (number, head) in (HEADS..).zip(&mut heads) {
            (head.older, head.newer) = (number, number);
        }
        Self {
            recent: Vec::new(),
            heads,
        }
    }

    /// A wait begins. `sequence` goes up with each wait.
    #[inline(always)] // in each wait
    pub(super) fn begin(&mut self, links: &mut Links, number: u32, sequence: u32) {
        links.older = sequence;
        if links.newer != RECENT {
            links.newer = RECENT;
            self.add_recent(number);
        }
    }

    #[cold] // once in 100 ms for each node that is in use
    #[inline(never)]
    fn add_recent(&mut self, number: u32) {
        self.recent.push(number);
    }

    /// The recent waits enter the first queue. `sequence` is that of the newest.
    pub(super) fn queue_recent(&mut self, entries: &mut Entries, sequence: u32) {
        let mut recent = std::mem::take(&mut self.recent);
        recent.retain(|number| {
            let node = entries.node_mut(*number);
            if !node.is_waiting() {
                node.links = Links::NONE;
            }
            node.is_waiting()
        });
        recent.sort_unstable_by_key(|number| {
            Reverse(sequence.wrapping_sub(entries.node(*number).links.older))
        });
        for number in recent.drain(..) {
            self.queue(entries, number, 0);
        }
        self.recent = recent;
    }

    /// As [`LookQueues::queue_recent`], if there are so many recent waits that the next [`LookQueues::oldest`] would be long.
    pub(super) fn queue_many(&mut self, entries: &mut Entries, sequence: u32) {
        if self.recent.len() > MANY {
            self.queue_recent(entries, sequence);
        }
    }

    /// When the oldest wait of a queue was last armed, and its number. `sequence` is that of the newest wait.
    pub(super) fn oldest(
        &self,
        entries: &Entries,
        queue: usize,
        sequence: u32,
    ) -> Option<(Instant, u32)> {
        let number = self.heads[queue].newer;
        if number < HEADS {
            return Some((entries.node(number).armed()?, number));
        }
        if queue > 0 {
            return None;
        }
        let recent = self.recent.iter().copied();
        let nodes = recent.map(|number| (number, entries.node(number)));
        let waiting = nodes.filter(|(_, node)| node.is_waiting());
        let oldest = waiting.max_by_key(|(_, node)| sequence.wrapping_sub(node.links.older));
        oldest.and_then(|(number, node)| Some((node.armed()?, number)))
    }

    /// The oldest wait of a queue is armed again: it moves to the end of the next queue, and from the last queue to the end of
    /// the same.
    pub(super) fn move_on(&mut self, entries: &mut Entries, queue: usize, now: Instant) {
        let number = self.heads[queue].newer;
        if number >= HEADS {
            return;
        }
        self.remove(entries, number);
        entries.node_mut(number).arm(now);
        self.queue(entries, number, (queue + 1).min(QUEUES - 1));
    }

    /// Appends a wait to a queue.
    fn queue(&mut self, entries: &mut Entries, number: u32, queue: usize) {
        let head = HEADS + queue as u32;
        let newest = self.heads[queue].older;
        self.links(entries, newest).newer = number;
        *self.links(entries, number) = Links {
            older: newest,
            newer: head,
        };
        self.heads[queue].older = number;
    }

    /// Removes a wait from its queue.
    pub(super) fn remove(&mut self, entries: &mut Entries, number: u32) {
        let links = self.links(entries, number);
        let Links { older, newer } = std::mem::replace(links, Links::NONE);
        self.links(entries, older).newer = newer;
        self.links(entries, newer).older = older;
    }

    /// The links of a wait, or of a head.
    fn links<'own>(&'own mut self, entries: &'own mut Entries, number: u32) -> &'own mut Links {
        match number.checked_sub(HEADS) {
            Some(queue) => &mut self.heads[queue as usize],
            None => &mut entries.node_mut(number).links,
        }
    }
}
