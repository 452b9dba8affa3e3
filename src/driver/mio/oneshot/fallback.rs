//! poll(2), because the platform has nothing better or the build says so: there is no queue.

use std::os::fd::RawFd;

pub(in crate::driver::mio) const ONE_SHOT: bool = true;

pub(in crate::driver::mio) fn descriptor(_poll: &mio::Poll) -> Option<RawFd> {
    None
}
