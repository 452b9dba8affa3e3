//! The crate polling in its default mode, oneshot: each wait arms the source.

use std::{
    os::fd::{BorrowedFd, RawFd},
    time::Duration,
};

use polling::{Event, Events, Poller};

use crate::loops::Loop;

struct Polling {
    poller: Poller,
    events: Events,
    descriptors: Vec<RawFd>,
}

pub fn oneshot(descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    let poller = Poller::new().expect("a queue");
    for (index, descriptor) in descriptors.iter().enumerate() {
        // SAFETY: the sources outlive the loops.
        unsafe { poller.add(*descriptor, Event::none(index)) }.expect("a socket");
    }
    Some(Box::new(Polling {
        poller,
        events: Events::new(),
        descriptors: descriptors.to_vec(),
    }))
}

impl Loop for Polling {
    fn begin(&mut self, index: usize) {
        // SAFETY: the sources outlive the loops.
        let source = unsafe { BorrowedFd::borrow_raw(self.descriptors[index]) };
        self.poller
            .modify(source, Event::readable(index))
            .expect("registered");
    }

    fn collect(&mut self, ready: &mut Vec<usize>) {
        self.events.clear();
        self.poller
            .wait(&mut self.events, Some(Duration::ZERO))
            .expect("a queue");
        ready.extend(self.events.iter().map(|event| event.key));
    }

    fn drained(&mut self, _index: usize) {}
}
