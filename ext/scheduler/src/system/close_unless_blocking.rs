//! close(2) where it cannot block.

use std::os::fd::RawFd;

use crate::system::{
    descriptor::{self, borrow},
    kind::DescriptorKind,
};

/// Closes a socket or a pipe. False, and nothing done, for a close that may block: a file with data that must be written, and
/// a socket that lingers (SO_LINGER in socket(7)).
///
/// As in Ruby itself, an error is not reported, because the descriptor is gone either way.
pub fn close_unless_blocking(descriptor: RawFd) -> bool {
    let is_instant = match DescriptorKind::of(descriptor) {
        DescriptorKind::StreamSocket | DescriptorKind::OtherSocket => {
            let linger = rustix::net::sockopt::socket_linger(borrow(descriptor));
            matches!(linger, Ok(None))
        }
        DescriptorKind::Pipe => true,
        _ => false,
    };
    if is_instant {
        descriptor::close(descriptor);
    }
    is_instant
}
