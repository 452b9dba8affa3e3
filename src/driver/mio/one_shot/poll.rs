//! poll(2), on platforms without epoll and kqueue or because the build says so: there is no descriptor to poll.

use std::os::fd::RawFd;

pub(in crate::driver::mio) const ONE_SHOT: bool = true;

pub(in crate::driver::mio) fn descriptor(_poll: &mio::Poll) -> Option<RawFd> {
    None
}
