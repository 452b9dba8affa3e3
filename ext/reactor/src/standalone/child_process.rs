//! Child processes: how to learn that one has ended or stopped, and leave its status to `Process.wait`.

use std::os::fd::RawFd;

use magnus::Error;
use rustix::{
    io::Errno,
    process::{Pid, WaitId, WaitIdOptions, waitid},
};

use crate::ruby::{error::system_error, thread::blocking_call};

/// Bits of Process.wait's flags, see wait(2).
const UNTRACED: i32 = libc::WUNTRACED;
const CONTINUED: i32 = libc::WCONTINUED;

/// `Reactor::Internal.pidfd(pid)`: a descriptor that is readable once the child has ended (pidfd_open(2)); nil if there is no process
/// with this number, or if the kernel cannot do it.
#[cfg(target_os = "linux")]
pub fn pidfd(pid: i32) -> Option<RawFd> {
    use rustix::process::{PidfdFlags, pidfd_open};
    use std::os::fd::IntoRawFd;

    let descriptor = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    Some(descriptor.into_raw_fd())
}

/// `Reactor::Internal.pidfd(pid)`: nil, because only Linux has them.
#[cfg(not(target_os = "linux"))]
pub fn pidfd(_: i32) -> Option<RawFd> {
    None
}

/// `Reactor::Internal.await_child(pid, flags)`: stops the calling thread, without the GVL, until Process.wait(pid, flags) would have
/// an answer. It takes nothing (waitid(2) with WNOWAIT), so the status is not lost when the thread is killed meanwhile.
///
/// Returns early if the thread is interrupted; also at once when there is no child with this number, which the caller finds out.
pub fn await_child(pid: i32, flags: i32) -> Result<(), Error> {
    let mut options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    options.set(WaitIdOptions::STOPPED, flags & UNTRACED != 0);
    options.set(WaitIdOptions::CONTINUED, flags & CONTINUED != 0);
    let which = match pid {
        -1 => WaitId::All,
        _ if pid <= 0 => WaitId::Pgid(Pid::from_raw(pid.wrapping_neg())),
        _ => Pid::from_raw(pid).map_or(WaitId::All, WaitId::Pid),
    };
    match blocking_call(|| waitid(which, options)) {
        None | Some(Ok(_) | Err(Errno::INTR | Errno::CHILD)) => Ok(()),
        Some(Err(error)) => Err(system_error(&error.into())),
    }
}
