//! Child processes: how to learn that one has ended or stopped, and leave its status to `Process.wait`.

use magnus::Error;

pub use reactor_scheduler::system::child_process::pidfd;

use crate::ruby::{error::errno, platform::await_change, thread::blocking_call};

/// `Reactor::Internal.await_child(pid, flags)`: stops the calling thread, without the GVL, until Process.wait(pid, flags) would have
/// an answer. It takes nothing, so the status is not lost when the thread is killed meanwhile.
///
/// Returns early if the thread is interrupted; also at once when there is no child with this number, which the caller finds out.
pub fn await_child(pid: i32, flags: i32) -> Result<(), Error> {
    let waited = blocking_call(|| await_change(pid, flags));
    waited
        .unwrap_or(Ok(()))
        .map_err(|error| errno(error.number(), None))
}
