//! Several loops doing the same work: a byte arrives at one of many sources, is reported, and is read.
//!
//! Each loop implements starting a wait, polling and ending a wait with its library's system calls.

mod epoll;
mod mio;
mod polling;
mod reactor;
mod uring;

use std::{
    io::{Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::{UnixDatagram, UnixStream},
    },
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The numbers of registered sources.
pub const SIZES: [usize; 3] = [1, 100, 10_000];

/// One way to wait for many sources.
pub trait Loop {
    /// Begins to wait until this source is readable.
    fn begin(&mut self, index: usize);
    /// Appends the indexes of the ready sources, without blocking.
    fn collect(&mut self, ready: &mut Vec<usize>);
    /// Ends the wait of a source that was reported and then drained.
    fn drained(&mut self, index: usize);
}

/// Creates a loop for these descriptors; None if it is unavailable. Loops that keep registrations register them now.
pub type Open = fn(&[RawFd]) -> Option<Box<dyn Loop>>;

/// All loops, with their names in the results.
pub const LOOPS: [(&str, Open); 8] = [
    ("raw epoll", epoll::held),
    ("raw epoll, oneshot", epoll::oneshot),
    ("reactor on epoll", reactor::on_epoll),
    ("reactor on io_uring", reactor::on_uring),
    ("mio, held", mio::held),
    ("mio, register and deregister", mio::each),
    ("polling", polling::oneshot),
    ("raw io_uring, poll_add", uring::poll_add),
];

/// Sources. The active ones have a peer. The idle ones, opened in between, never receive bytes.
pub struct Sources {
    pairs: Vec<(UnixStream, UnixStream)>,
    idle: Vec<UnixDatagram>,
    ready: Vec<usize>,
}

impl Sources {
    /// Creates `all` sources, `active` of them active. Raises the limit of open files.
    pub fn new(active: usize, all: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        setrlimit(Resource::Nofile, raised).expect("up to the maximum");
        let (mut pairs, mut idle) = (Vec::new(), Vec::new());
        for number in 0..all {
            // Opened alternately, so that active descriptors are not adjacent in the tables of the kernel or a loop.
            if pairs.len() * all <= number * active && pairs.len() < active {
                let (ours, theirs) = UnixStream::pair().expect("descriptors are left");
                ours.set_nonblocking(true).expect("a socket");
                pairs.push((ours, theirs));
            } else {
                idle.push(UnixDatagram::unbound().expect("descriptors are left"));
            }
        }
        Self {
            pairs,
            idle,
            ready: Vec::new(),
        }
    }

    /// The descriptors, the active ones first.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let active = self.pairs.iter().map(|(ours, _)| ours.as_raw_fd());
        let idle = self.idle.iter().map(|socket| socket.as_raw_fd());
        active.chain(idle).collect()
    }

    /// A byte arrives at each of these sources, is reported and read: begin, write, collect, read, drained.
    pub fn cycle(
        &mut self,
        candidate: &mut dyn Loop,
        indexes: impl Iterator<Item = usize> + Clone,
    ) {
        for index in indexes.clone() {
            candidate.begin(index);
            self.pairs[index]
                .1
                .write_all(b"x")
                .expect("room for a byte");
        }
        let mut left = indexes.count();
        while left > 0 {
            self.ready.clear();
            candidate.collect(&mut self.ready);
            for index in &self.ready {
                let count = self.pairs[*index]
                    .0
                    .read(&mut [0; 16])
                    .expect("it was reported");
                assert_eq!(count, 1);
                candidate.drained(*index);
            }
            left -= self.ready.len();
        }
    }
}
