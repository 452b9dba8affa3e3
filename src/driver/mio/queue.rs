//! The platform's queue where it is epoll(7) or kqueue(2): it keeps its registrations armed, and has a descriptor that can be polled.

use std::os::fd::{AsRawFd, RawFd};

pub(in crate::driver::mio) const ONE_SHOT: bool = false;

pub(in crate::driver::mio) fn descriptor(poll: &mio::Poll) -> Option<RawFd> {
    Some(poll.as_raw_fd())
}
