//! Plain epoll, through libc.

use std::{io, os::fd::RawFd};

use crate::loops::Loop;

const BATCH: usize = 1024;
const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDHUP) as u32;

struct Epoll {
    queue: RawFd,
    descriptors: Vec<RawFd>,
    events: Vec<libc::epoll_event>,
    oneshot: bool,
}

/// Edge-triggered, registered once: the system calls of the reactor, without its cache.
pub fn held(descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    Epoll::open(descriptors, READ | libc::EPOLLET as u32, false)
}

/// `EPOLLONESHOT`: registered once, re-armed by each wait.
pub fn oneshot(descriptors: &[RawFd]) -> Option<Box<dyn Loop>> {
    Epoll::open(descriptors, libc::EPOLLONESHOT as u32, true)
}

impl Epoll {
    fn open(descriptors: &[RawFd], events: u32, oneshot: bool) -> Option<Box<dyn Loop>> {
        // SAFETY: the call takes no pointer.
        let queue = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(queue >= 0, "{}", io::Error::last_os_error());
        let epoll = Self {
            queue,
            descriptors: descriptors.to_vec(),
            events: Vec::with_capacity(BATCH),
            oneshot,
        };
        for index in 0..descriptors.len() {
            epoll.control(libc::EPOLL_CTL_ADD, index, events);
        }
        Some(Box::new(epoll))
    }

    fn control(&self, operation: libc::c_int, index: usize, events: u32) {
        let mut event = libc::epoll_event {
            events,
            u64: index as u64,
        };
        // SAFETY: the event outlives the call.
        let result =
            unsafe { libc::epoll_ctl(self.queue, operation, self.descriptors[index], &mut event) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
    }
}

impl Loop for Epoll {
    fn begin(&mut self, index: usize) {
        if self.oneshot {
            self.control(libc::EPOLL_CTL_MOD, index, READ | libc::EPOLLONESHOT as u32);
        }
    }

    fn collect(&mut self, ready: &mut Vec<usize>) {
        self.events.clear();
        let room = self.events.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: the kernel writes at most BATCH events to the vector's capacity, and returns their number.
        unsafe {
            let count = libc::epoll_wait(self.queue, room, BATCH as libc::c_int, 0);
            self.events.set_len(count.max(0) as usize);
        }
        ready.extend(self.events.iter().map(|event| event.u64 as usize));
    }

    fn drained(&mut self, _index: usize) {}
}

impl Drop for Epoll {
    fn drop(&mut self) {
        // SAFETY: we own the descriptor, and do not use it again.
        unsafe { libc::close(self.queue) };
    }
}
