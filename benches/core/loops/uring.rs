//! Plain io_uring: each wait is an `IORING_OP_POLL_ADD`, and one system call submits them all.

use std::os::fd::RawFd;

use io_uring::{IoUring, opcode::PollAdd, types::Fd};

use crate::loops::Loop;

pub fn poll_add(descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    let ring = IoUring::new(2048).ok()?;
    Some(Box::new(Ring {
        ring,
        descriptors: descriptors.to_vec(),
    }))
}

struct Ring {
    ring: IoUring,
    descriptors: Vec<RawFd>,
}

impl Loop for Ring {
    fn begin(&mut self, index: usize) {
        let entry = PollAdd::new(Fd(self.descriptors[index]), libc::POLLIN as u32);
        let entry = entry.build().user_data(index as u64);
        // SAFETY: the entry has no pointer.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("room for more than the largest set");
    }

    fn collect(&mut self, ready: &mut Vec<usize>) {
        self.ring.submit().expect("a ring");
        ready.extend(
            self.ring
                .completion()
                .map(|entry| entry.user_data() as usize),
        );
    }

    fn drained(&mut self, _index: usize) {}
}
