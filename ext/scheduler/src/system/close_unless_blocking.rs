//! close(2) where it cannot block.

use std::os::fd::RawFd;

use crate::system::{
    descriptor::{self, borrow},
    kind::DescriptorKind,
};

/// Closes a socket or a pipe. False, and nothing done, for a close that may block: a file with data that must be written, and
/// a socket that lingers (SO_LINGER in socket(7)). Nor for a number that is no descriptor.
///
/// As in Ruby itself, an error is not reported, because the descriptor is gone either way.
pub fn close_unless_blocking(descriptor: RawFd) -> bool {
    if descriptor < 0 {
        return false;
    }
    let is_instant = match rustix::net::sockopt::socket_linger(borrow(descriptor)) {
        Ok(linger) => linger.is_none(),
        Err(_) => DescriptorKind::of(descriptor) == DescriptorKind::Pipe,
    };
    if is_instant {
        descriptor::close(descriptor);
    }
    is_instant
}
