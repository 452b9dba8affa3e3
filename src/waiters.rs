//! Who waits: a slab of nodes, linked by descriptor in the order of coming, and by age until they have re-armed.

use std::time::Instant;

use crate::{
    event::{Event, Events, Ready},
    interest::Interest,
    table::{Entry, NONE, Table},
    token::Token,
};

/// Names a wait that was begun; good until it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitId(Token);

#[derive(Debug)]
struct Waiter {
    token: Token,
    /// The descriptor's index.
    index: u32,
    generation: u32,
    interest: Interest,
    answered: Ready,
    since: Instant,
    /// Not answered yet: in the descriptor's list.
    linked: bool,
    /// Not re-armed yet: in the list by age.
    young: bool,
    previous: u32,
    next: u32,
    older: u32,
    younger: u32,
}

/// All waiters. No allocation once it has grown to the number that wait at a time.
#[derive(Debug)]
pub struct Waiters {
    nodes: Vec<Waiter>,
    free: Vec<u32>,
    oldest: u32,
    youngest: u32,
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            youngest: NONE,
        }
    }
}

impl Waiters {
    pub fn add(
        &mut self,
        entry: &mut Entry,
        index: u32,
        interest: Interest,
        token: Token,
        now: Instant,
    ) -> WaitId {
        let mut node = Waiter {
            token,
            index,
            generation: 0,
            interest,
            answered: Ready::EMPTY,
            since: now,
            linked: true,
            young: true,
            previous: entry.last,
            next: NONE,
            older: self.youngest,
            younger: NONE,
        };
        let number = match self.free.pop() {
            Some(number) => {
                node.generation = self.nodes[number as usize].generation;
                self.nodes[number as usize] = node;
                number
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        match self.nodes.get_mut(entry.last as usize) {
            Some(last) => last.next = number,
            None => entry.first = number,
        }
        entry.last = number;
        match self.nodes.get_mut(self.youngest as usize) {
            Some(youngest) => youngest.younger = number,
            None => self.oldest = number,
        }
        self.youngest = number;
        let generation = self.nodes[number as usize].generation;
        WaitId(Token::new(number, generation))
    }

    /// Takes a waiter out, wherever it still is, and tells what answered it.
    pub fn end(&mut self, wait: WaitId, table: &mut Table) -> Ready {
        let number = wait.0.index();
        let current = self
            .nodes
            .get(number as usize)
            .is_some_and(|node| Token::new(number, node.generation) == wait.0);
        if !current {
            return Ready::EMPTY;
        }
        let entry = table.entry(self.nodes[number as usize].index);
        self.unlink(entry, number);
        self.leave_ages(number);
        let node = &mut self.nodes[number as usize];
        node.generation = node.generation.wrapping_add(1);
        self.free.push(number);
        node.answered
    }

    /// Answers those who asked for any of what is ready. Whether there was anybody.
    pub fn answer(&mut self, entry: &mut Entry, ready: Ready, out: &mut Events) -> bool {
        let mut answered = false;
        let mut number = entry.first;
        while let Some(node) = self.nodes.get(number as usize) {
            let next = node.next;
            if ready.answers(node.interest).is_some() {
                self.answer_one(entry, number, ready, out);
                answered = true;
            }
            number = next;
        }
        answered
    }

    /// Answers everybody, whatever was asked for.
    pub fn answer_all(&mut self, entry: &mut Entry, ready: Ready, out: &mut Events) {
        while entry.first != NONE {
            self.answer_one(entry, entry.first, ready, out);
        }
    }

    fn answer_one(&mut self, entry: &mut Entry, number: u32, ready: Ready, out: &mut Events) {
        self.unlink(entry, number);
        self.leave_ages(number);
        let node = &mut self.nodes[number as usize];
        node.answered |= ready;
        out.push(Event {
            token: node.token,
            ready,
        });
    }

    /// What the waiters of a descriptor ask for, as bits of [`Interest`].
    pub fn wanted(&self, entry: &Entry) -> u8 {
        let mut wanted = 0;
        let mut number = entry.first;
        while let Some(node) = self.nodes.get(number as usize) {
            wanted |= node.interest.bits();
            number = node.next;
        }
        wanted
    }

    /// The descriptor whose waiter has waited longest without re-arming, and since when.
    pub fn oldest(&self) -> Option<(u32, Instant)> {
        let node = self.nodes.get(self.oldest as usize)?;
        Some((node.index, node.since))
    }

    /// The oldest has re-armed.
    pub fn grow_old(&mut self) {
        if self.oldest != NONE {
            self.leave_ages(self.oldest);
        }
    }

    fn unlink(&mut self, entry: &mut Entry, number: u32) {
        let node = &mut self.nodes[number as usize];
        if !std::mem::take(&mut node.linked) {
            return;
        }
        let (previous, next) = (node.previous, node.next);
        match self.nodes.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => entry.first = next,
        }
        match self.nodes.get_mut(next as usize) {
            Some(next) => next.previous = previous,
            None => entry.last = previous,
        }
    }

    fn leave_ages(&mut self, number: u32) {
        let node = &mut self.nodes[number as usize];
        if !std::mem::take(&mut node.young) {
            return;
        }
        let (older, younger) = (node.older, node.younger);
        match self.nodes.get_mut(older as usize) {
            Some(older) => older.younger = younger,
            None => self.oldest = younger,
        }
        match self.nodes.get_mut(younger as usize) {
            Some(younger) => younger.older = older,
            None => self.youngest = older,
        }
    }
}
