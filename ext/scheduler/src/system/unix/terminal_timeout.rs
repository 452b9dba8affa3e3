//! Terminals whose read(2) may return fewer bytes than requested: at once, or after a time (VMIN and VTIME in termios(3)).

use std::time::Duration;

use rustix::termios::{LocalModes, SpecialCodeIndex, tcgetattr};

use crate::system::descriptor::{Descriptor, is_nonblocking};

/// VMIN in bytes, and VTIME as a duration.
struct Limits {
    least: usize,
    pause: Duration,
}

/// `None` if it is no terminal, or one that edits lines. The master of a pseudo-terminal reports the other end's settings,
/// which do not apply to it.
fn limits(descriptor: Descriptor) -> Option<Limits> {
    let settings = tcgetattr(descriptor).ok()?;
    if settings.local_modes.contains(LocalModes::ICANON) || is_master(descriptor) {
        return None;
    }
    let codes = &settings.special_codes;
    Some(Limits {
        least: codes[SpecialCodeIndex::VMIN].into(),
        pause: Duration::from_millis(100 * u64::from(codes[SpecialCodeIndex::VTIME])),
    })
}

/// Whether the descriptor is the master of a pseudo-terminal: on Linux, the device with major number 5 and minor number
/// 2.
fn is_master(descriptor: Descriptor) -> bool {
    let is_ptmx = |device| (rustix::fs::major(device), rustix::fs::minor(device)) == (5, 2);
    let stat = rustix::fs::fstat(descriptor);
    cfg!(target_os = "linux") && stat.is_ok_and(|stat| is_ptmx(stat.st_rdev))
}

/// How long read(2) waits for the first byte before it returns 0: VTIME, if VMIN is 0. poll(2) does not report the end
/// of that time. `None` if read(2) waits until the terminal is readable.
pub fn read_limit(descriptor: Descriptor) -> Option<Duration> {
    let limits = limits(descriptor)?;
    // With O_NONBLOCK it fails with EAGAIN instead of waiting.
    let is_waited_for = limits.pause > Duration::ZERO && is_nonblocking(descriptor);
    (limits.least == 0 && !is_waited_for).then_some(limits.pause)
}

/// How long read(2) waits for another byte after `done` bytes: VTIME, while `done` is less than VMIN and than `room`.
/// poll(2) reports the first byte. `None` if read(2) returns without waiting.
pub fn pause_limit(descriptor: Descriptor, done: usize, room: usize) -> Option<Duration> {
    let limits = limits(descriptor)?;
    let is_over = limits.pause == Duration::ZERO || done >= limits.least.min(room);
    (!is_over && !is_nonblocking(descriptor)).then_some(limits.pause)
}

/// How many bytes a read of at most `room` bytes gets without waiting for another byte. The terminal is readable.
pub fn unpaused_size(descriptor: Descriptor, room: usize) -> usize {
    if pause_limit(descriptor, 0, room).is_none() {
        return room;
    }
    let available = rustix::io::ioctl_fionread(descriptor).unwrap_or(0);
    room.min(available as usize).max(1) // 1: to read the end of the file
}
