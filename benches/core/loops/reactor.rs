//! The reactor: a wait begins, is answered and ends, and the read's outcome is reported.

use std::os::fd::RawFd;

use reactor::{Attempt, Backend, Events, Interest, OwnerId, Reactor, Token, Wait, WaitId};

use crate::loops::Loop;

const READ: Interest = Interest::READABLE;

struct Ours {
    reactor: Reactor,
    events: Events,
    sources: Vec<RawFd>,
}

pub fn on_epoll(descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    open(Backend::Epoll, descriptors)
}

pub fn on_uring(descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    open(Backend::Uring, descriptors)
}

/// All sources are registered and drained.
fn open(backend: Backend, descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    let mut ours = Ours {
        reactor: Reactor::open(Some(backend)).ok()?,
        events: Events::new(),
        sources: descriptors.to_vec(),
    };
    for index in 0..descriptors.len() {
        let wait = ours.wait(index);
        ours.reactor.end(wait);
        ours.drained(index);
    }
    Some(Box::new(ours))
}

fn owner(index: usize) -> OwnerId {
    OwnerId(index as u64 + 1)
}

impl Ours {
    fn wait(&mut self, index: usize) -> WaitId {
        let (descriptor, token) = (self.sources[index], Token::new(index as u32, 0));
        match self.reactor.wait(descriptor, owner(index), READ, token) {
            Ok(Wait::Pending(wait)) => wait,
            other => unreachable!("a socket can be waited for: {other:?}"),
        }
    }
}

impl Loop for Ours {
    fn begin(&mut self, index: usize) {
        self.wait(index);
    }

    fn collect(&mut self, ready: &mut Vec<usize>) {
        self.events.clear();
        self.reactor.collect(&mut self.events).expect("a queue");
        ready.extend(self.events.iter().map(|event| event.token.index() as usize));
    }

    fn drained(&mut self, index: usize) {
        let descriptor = self.sources[index];
        self.reactor
            .attempted(descriptor, owner(index), READ, Attempt::Short);
    }
}
