//! Terminals whose read(2) returns without data after a time (VTIME), or at once.

use std::{os::fd::RawFd, time::Duration};

use rustix::termios::{LocalModes, SpecialCodeIndex, tcgetattr};

use crate::system::descriptor::{borrow, is_nonblocking};

/// How long read(2) waits for the first byte of a terminal before it returns 0: VTIME, if VMIN is 0 (termios(3)). poll(2) does
/// not report that. `None`: no terminal, or one that is waited for until it is readable.
pub fn read_limit(descriptor: RawFd) -> Option<Duration> {
    let settings = tcgetattr(borrow(descriptor)).ok()?;
    if settings.local_modes.contains(LocalModes::ICANON) {
        return None;
    }
    let codes = &settings.special_codes;
    if codes[SpecialCodeIndex::VMIN] != 0 {
        return None;
    }
    let tenths = u64::from(codes[SpecialCodeIndex::VTIME]);
    // With O_NONBLOCK there is no time to wait for: EAGAIN.
    let is_waited_for = tenths > 0 && is_nonblocking(descriptor);
    (!is_waited_for).then_some(Duration::from_millis(100 * tenths))
}
