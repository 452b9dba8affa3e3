//! Waiting for a child process to end where the system reports that without a descriptor (Windows).

use magnus::{Error, Ruby};
use reactor::Ready;
use reactor_scheduler::{state::unpolled::WorkerWait, system::child_process::Exit};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::method::Receiver,
};

#[derive(Debug)]
struct Waiting(#[allow(dead_code)] Exit); // dropped together with this

impl WorkerWait for Waiting {
    fn ready(&mut self) -> Ready {
        Ready::EMPTY // never used
    }
}

/// `await_exit(pid)`: parks until the child has ended, without reaping it. If the system does not report the end of a
/// child this way, or there is no such child, returns false and does nothing.
pub fn await_exit(
    ruby: &Ruby,
    Receiver(this): Receiver<Scheduler>,
    pid: i32,
) -> Result<bool, Error> {
    let Some(scope) = HookScope::enter(ruby, &this)? else {
        return Ok(false);
    };
    let begun = this.state_mut().begin_outside(scope.slot, |handle, token| {
        let exit = Exit::then(pid, move || _ = handle.notify(token))?;
        Some(Box::new(Waiting(exit)))
    });
    let Some(token) = begun else {
        return Ok(false);
    };
    let parked = this.park(scope.slot);
    this.state_mut().end_outside(token);
    parked.map(|_| true)
}
