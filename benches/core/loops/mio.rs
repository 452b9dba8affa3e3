//! mio: as usually used, registering for each wait, and with registrations that are kept.

use std::{os::fd::RawFd, time::Duration};

use mio::{Events, Interest, Poll, Token, event::Source, unix::SourceFd};

use crate::loops::Loop;

struct Mio {
    poll: Poll,
    events: Events,
    descriptors: Vec<RawFd>,
    held: bool,
}

/// Registered once. Waiting is correct only if the source was drained first.
pub fn held(descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    let mio = Mio::open(descriptors, true);
    (0..descriptors.len()).for_each(|index| mio.register(index));
    Some(Box::new(mio))
}

/// Registered at the start of each wait and deregistered at its end.
pub fn each(descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    Some(Box::new(Mio::open(descriptors, false)))
}

impl Mio {
    fn open(descriptors: &[RawFd], held: bool) -> Self {
        Self {
            poll: Poll::new().expect("a queue"),
            events: Events::with_capacity(1024),
            descriptors: descriptors.to_vec(),
            held,
        }
    }

    fn register(&self, index: usize) {
        let mut source = SourceFd(&self.descriptors[index]);
        let registry = self.poll.registry();
        source
            .register(registry, Token(index), Interest::READABLE)
            .expect("a socket");
    }
}

impl Loop for Mio {
    fn begin(&mut self, index: usize) {
        if !self.held {
            self.register(index);
        }
    }

    fn collect(&mut self, ready: &mut Vec<usize>) {
        self.poll
            .poll(&mut self.events, Some(Duration::ZERO))
            .expect("a queue");
        ready.extend(self.events.iter().map(|event| event.token().0));
    }

    fn drained(&mut self, index: usize) {
        if !self.held {
            let mut source = SourceFd(&self.descriptors[index]);
            source.deregister(self.poll.registry()).expect("registered");
        }
    }
}
