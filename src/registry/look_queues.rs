//! The look queues: unanswered waits in the order in which they were last armed.

use std::{cmp::Reverse, time::Instant};

use crate::registry::{entries::Entries, node::NONE};

/// The look queues. A wait begins in the first one, and moves on with each look. It stays in the last one.
pub(super) const QUEUES: usize = 5;

/// `newer` of a node that is on the list of recent waits. `older` is the sequence number of its last wait then.
const RECENT: u32 = NONE - 1;

/// The heads of the look queues have this number and the ones after it.
const HEADS: u32 = RECENT - QUEUES as u32;

/// For so many waits the memory in which they are sorted is kept.
const KEPT: usize = 256;

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
/// and stays there when the wait ends, also for the next wait. Before a look may be due, and if a wait lasts from one sleep of
/// the thread to the next, the nodes that wait then are queued in the order in which their waits began.
#[derive(Debug)]
pub(super) struct LookQueues {
    recent: Vec<u32>,
    /// The sequence number of the newest wait when the thread last slept.
    slept_at: u32,
    /// Empty; kept for its memory.
    lasting: Vec<(Reverse<u32>, u32)>,
    /// The oldest and the newest wait of each queue. Head and waits form a ring, so that no link is checked for an end of the
    /// queue.
    heads: [Links; QUEUES],
    /// A bit for each queue that is not empty.
    occupied: u8,
}

impl LookQueues {
    pub(super) fn new() -> Self {
        let mut heads = [Links::NONE; QUEUES];
        for (number, head) in (HEADS..).zip(&mut heads) {
            (head.older, head.newer) = (number, number);
        }
        Self {
            recent: Vec::new(),
            slept_at: 0,
            lasting: Vec::new(),
            heads,
            occupied: 0,
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

    /// All recent waits enter the first queue. `sequence` is that of the newest.
    pub(super) fn queue_recent(&mut self, entries: &mut Entries, sequence: u32) {
        self.queue_older(entries, sequence, 0);
    }

    /// The thread is about to sleep. The recent waits that have lasted since before its last sleep enter the first queue. Returns
    /// the number of the oldest of the others. So each wait is looked at here once, or twice if it lasts.
    pub(super) fn before_sleep(&mut self, entries: &mut Entries, sequence: u32) -> Option<u32> {
        let count = sequence.wrapping_sub(self.slept_at);
        self.slept_at = sequence;
        self.queue_older(entries, sequence, count)
    }

    /// The recent waits but the newest ones, of which there are `count`, enter the first queue. Returns the number of the oldest
    /// one that is left.
    fn queue_older(&mut self, entries: &mut Entries, sequence: u32, count: u32) -> Option<u32> {
        let (mut oldest, mut oldest_age) = (None, 0);
        let mut left = 0;
        for place in 0..self.recent.len() {
            let number = self.recent[place];
            let node = entries.node_mut(number);
            let age = sequence.wrapping_sub(node.links.older);
            if age < count {
                if node.is_waiting() && age >= oldest_age {
                    (oldest, oldest_age) = (Some(number), age);
                }
                self.recent[left] = number;
                left += 1;
            } else if node.is_waiting() {
                self.lasting.push((Reverse(age), number));
            } else {
                node.links = Links::NONE;
            }
        }
        self.recent.truncate(left);
        if !self.lasting.is_empty() {
            self.queue_lasting(entries);
        }
        oldest
    }

    #[inline(never)] // once for each wait that lasts
    fn queue_lasting(&mut self, entries: &mut Entries) {
        let mut lasting = std::mem::take(&mut self.lasting);
        lasting.sort_unstable();
        for (_, number) in lasting.drain(..) {
            self.queue(entries, number, 0);
        }
        lasting.shrink_to(KEPT);
        self.lasting = lasting;
    }

    /// The queues with a wait.
    pub(super) fn occupied(&self) -> impl Iterator<Item = usize> + use<> {
        let mut left = self.occupied;
        std::iter::from_fn(move || {
            let queue = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (queue < QUEUES).then_some(queue)
        })
    }

    /// When the oldest wait of a queue was last armed, and its number.
    pub(super) fn oldest(&self, entries: &Entries, queue: usize) -> Option<(Instant, u32)> {
        let number = self.heads[queue].newer;
        if number >= HEADS {
            return None;
        }
        Some((entries.node(number).armed()?, number))
    }

    /// The number of the oldest recent wait. `sequence` is that of the newest.
    pub(super) fn oldest_recent(&self, entries: &Entries, sequence: u32) -> Option<u32> {
        let nodes = self
            .recent
            .iter()
            .map(|number| (*number, entries.node(*number)));
        let waiting = nodes.filter(|(_, node)| node.is_waiting());
        let oldest = waiting.max_by_key(|(_, node)| sequence.wrapping_sub(node.links.older));
        oldest.map(|(number, _)| number)
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
        self.occupied |= 1 << queue;
    }

    /// Removes a wait from its queue.
    pub(super) fn remove(&mut self, entries: &mut Entries, number: u32) {
        let links = self.links(entries, number);
        let Links { older, newer } = std::mem::replace(links, Links::NONE);
        self.links(entries, older).newer = newer;
        self.links(entries, newer).older = older;
        if older == newer {
            // Both neighbours are the head.
            self.occupied &= !(1 << (older - HEADS));
        }
    }

    /// The links of a wait, or of a head.
    fn links<'own>(&'own mut self, entries: &'own mut Entries, number: u32) -> &'own mut Links {
        match number.checked_sub(HEADS) {
            Some(queue) => &mut self.heads[queue as usize],
            None => &mut entries.node_mut(number).links,
        }
    }
}
