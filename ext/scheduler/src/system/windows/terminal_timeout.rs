//! Terminals whose reads may return fewer bytes than requested: consoles have no such setting.

use std::time::Duration;

use crate::system::descriptor::Descriptor;

/// `None`: a read waits for the first byte.
pub const fn read_limit(_: Descriptor) -> Option<Duration> {
    None
}

/// `None`: a read returns when it has a byte.
pub const fn pause_limit(_: Descriptor, _done: usize, _room: usize) -> Option<Duration> {
    None
}
