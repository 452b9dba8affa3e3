//! The platform's queue where it is poll(2), because there is neither epoll nor kqueue or because the build says so: a registration
//! is armed for one event, and there is no descriptor to poll.

use std::os::fd::RawFd;

pub(in crate::driver::mio) const ONE_SHOT: bool = true;

pub(in crate::driver::mio) fn descriptor(_poll: &mio::Poll) -> Option<RawFd> {
    None
}
