//! The reactor: a wait begins, is answered and ends, and the read's outcome is reported.

use std::{
    os::fd::RawFd,
    time::{Duration, Instant},
};

use reactor::{
    Attempt, Backend, Events, Interest, OwnerId, Reactor, Selector, Token, Wait, WaitId,
};

use crate::loops::Loop;

const READ: Interest = Interest::READABLE;

struct Ours<Inner> {
    inner: Inner,
    events: Events,
    sources: Vec<(RawFd, Option<WaitId>)>,
}

/// The selector alone, on epoll.
pub fn selector_on_epoll(descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    selector(Backend::Epoll, descriptors)
}

/// The selector alone, on io_uring.
pub fn selector_on_uring(descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    selector(Backend::Uring, descriptors)
}

/// With the clock, the timers and the inbox for other threads.
pub fn reactor_on_epoll(descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    Some(open(Reactor::open(Some(Backend::Epoll)).ok()?, descriptors))
}

fn selector(backend: Backend, descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    let selector = Selector::open(Some(backend)).ok()?;
    Some(open((selector, Instant::now()), descriptors))
}

/// All sources are registered and drained.
fn open<Inner: Waits + 'static>(inner: Inner, descriptors: &[RawFd]) -> Box<dyn Loop> {
    let sources = descriptors
        .iter()
        .map(|descriptor| (*descriptor, None))
        .collect();
    let mut ours = Ours {
        inner,
        events: Events::new(),
        sources,
    };
    for index in 0..descriptors.len() {
        ours.begin(index);
        ours.drained(index);
    }
    Box::new(ours)
}

/// The methods shared by selectors and reactors.
trait Waits {
    fn wait(&mut self, descriptor: RawFd, owner: OwnerId, token: Token) -> Wait;
    fn end(&mut self, wait: WaitId);
    fn collect(&mut self, events: &mut Events);
    fn attempted(&mut self, descriptor: RawFd, owner: OwnerId);
}

impl Waits for (Selector, Instant) {
    fn wait(&mut self, descriptor: RawFd, owner: OwnerId, token: Token) -> Wait {
        self.0
            .wait(descriptor, owner, READ, token, self.1)
            .expect("a socket")
    }

    fn end(&mut self, wait: WaitId) {
        self.0.end(wait);
    }

    fn collect(&mut self, events: &mut Events) {
        self.0
            .poll(events, Some(Duration::ZERO), self.1)
            .expect("a queue");
    }

    fn attempted(&mut self, descriptor: RawFd, owner: OwnerId) {
        self.0.attempted(descriptor, owner, READ, Attempt::Short);
    }
}

impl Waits for Reactor {
    fn wait(&mut self, descriptor: RawFd, owner: OwnerId, token: Token) -> Wait {
        Reactor::wait(self, descriptor, owner, READ, token).expect("a socket")
    }

    fn end(&mut self, wait: WaitId) {
        Reactor::end(self, wait);
    }

    fn collect(&mut self, events: &mut Events) {
        Reactor::collect(self, events).expect("a queue");
    }

    fn attempted(&mut self, descriptor: RawFd, owner: OwnerId) {
        Reactor::attempted(self, descriptor, owner, READ, Attempt::Short);
    }
}

fn owner(index: usize) -> OwnerId {
    OwnerId(index as u64 + 1)
}

impl<Inner: Waits> Loop for Ours<Inner> {
    fn begin(&mut self, index: usize) {
        let (descriptor, wait) = &mut self.sources[index];
        let token = Token::new(index as u32, 0);
        match self.inner.wait(*descriptor, owner(index), token) {
            Wait::Pending(pending) => *wait = Some(pending),
            Wait::Ready(_) => unreachable!("a socket can be waited for"),
        }
    }

    fn collect(&mut self, ready: &mut Vec<usize>) {
        self.events.clear();
        self.inner.collect(&mut self.events);
        ready.extend(self.events.iter().map(|event| event.token.index() as usize));
    }

    fn drained(&mut self, index: usize) {
        let (descriptor, wait) = &mut self.sources[index];
        if let Some(wait) = wait.take() {
            self.inner.end(wait);
        }
        self.inner.attempted(*descriptor, owner(index));
    }
}
