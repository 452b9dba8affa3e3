//! Child processes: learning that a child has ended or stopped, while its status is left to `Process.wait`.

use magnus::Error;

pub use reactor_scheduler::system::child_process::pidfd;

use crate::ruby::{error::errno, platform::await_change, thread::blocking_call};

/// `Reactor::Internal.await_child(pid, flags)`: blocks the calling thread, without the GVL, until Process.wait(pid, flags)
/// would return. It does not reap the child, so the status is not lost if the thread is killed meanwhile.
///
/// Returns early if the thread is interrupted, and at once if there is no such child. The caller finds out which.
pub fn await_child(pid: i32, flags: i32) -> Result<(), Error> {
    let waited = blocking_call(|| await_change(pid, flags));
    waited
        .unwrap_or(Ok(()))
        .map_err(|error| errno(error.number(), None))
}
