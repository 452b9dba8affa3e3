//! Raw epoll: descriptors are registered once, level-triggered, each with a number.

use std::{io, os::fd::AsFd, os::fd::OwnedFd, time::Duration};

use rustix::event::{Timespec, epoll};

pub struct Poll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Poll {
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let events = Vec::with_capacity(256);
        Ok(Self { epoll, events })
    }

    pub fn add(&self, source: impl AsFd, number: usize) -> io::Result<()> {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&self.epoll, source, data, epoll::EventFlags::IN)?;
        Ok(())
    }

    /// Waits for reading, or for reading and writing.
    pub fn change(&self, source: impl AsFd, number: usize, writing: bool) -> io::Result<()> {
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, writing);
        let data = epoll::EventData::new_u64(number as u64);
        epoll::modify(&self.epoll, source, data, flags)?;
        Ok(())
    }

    /// The numbers of the ready descriptors, after at most `limit`.
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<Vec<usize>> {
        let mut numbers = Vec::with_capacity(self.events.capacity());
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        self.events.clear();
        let room = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, room, limit.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(numbers),
            Err(error) => return Err(error.into()),
        }
        numbers.extend(self.events.iter().map(|event| event.data.u64() as usize));
        Ok(numbers)
    }
}
