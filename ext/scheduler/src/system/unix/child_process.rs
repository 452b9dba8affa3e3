//! Child processes: learning that a child has ended or stopped, while its status is left to `Process.wait`.

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::system::errno::Errno;

/// The bits of Process.wait's flags; see wait(2).
const UNTRACED: i32 = libc::WUNTRACED;
const CONTINUED: i32 = libc::WCONTINUED;

/// A descriptor that becomes readable when the child ends (pidfd_open(2)); `None` if there is no such process, or the
/// kernel does not support it.
#[cfg(target_os = "linux")]
pub fn pidfd(pid: i32) -> Option<i32> {
    use rustix::process::{PidfdFlags, pidfd_open};
    use std::os::fd::IntoRawFd;

    let descriptor = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    Some(descriptor.into_raw_fd())
}

/// `None`: only Linux has them.
#[cfg(not(target_os = "linux"))]
pub fn pidfd(_: i32) -> Option<i32> {
    None
}

/// Blocks until Process.wait(pid, flags) would return, without reaping (waitid(2) with WNOWAIT). Returns early after a
/// signal, and at once if there is no such child.
pub fn await_change(pid: i32, flags: i32) -> Result<(), Errno> {
    let mut options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    options.set(WaitIdOptions::STOPPED, flags & UNTRACED != 0);
    options.set(WaitIdOptions::CONTINUED, flags & CONTINUED != 0);
    let which = match pid {
        -1 => WaitId::All,
        _ if pid <= 0 => WaitId::Pgid(Pid::from_raw(pid.wrapping_neg())),
        _ => Pid::from_raw(pid).map_or(WaitId::All, WaitId::Pid),
    };
    match waitid(which, options) {
        Ok(_) | Err(rustix::io::Errno::INTR | rustix::io::Errno::CHILD) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// How a child has ended, as Process::Status#to_i tells it, without reaping it. `None` if it has not, or there is no such
/// child.
pub fn status(pid: i32) -> Option<i32> {
    const DUMPED: i32 = 0x80;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(Pid::from_raw(pid)?), options).ok()??;
    let signal = || status.terminating_signal();
    let dumped = if status.dumped() { DUMPED } else { 0 };
    let code = status.exit_status().map(|code| (code & 0xff) << 8);
    code.or_else(|| signal().map(|signal| signal | dumped))
}

/// A callback for when a child ends. Dropping it cancels the callback.
#[derive(Debug)]
pub struct Exit(std::convert::Infallible);

impl Exit {
    /// `None`: not available here; see [`pidfd`] and [`await_change`].
    pub fn then(_pid: i32, _ended: impl Fn() + Send + Sync + 'static) -> Option<Self> {
        None
    }
}
