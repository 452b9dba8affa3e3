//! A wait for the end of a child process, where the system tells it without a descriptor (Windows).

use magnus::{Error, Ruby};
use reactor::Ready;
use reactor_scheduler::{state::unpolled::WorkerWait, system::child_process::Exit};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::method::Receiver,
};

#[derive(Debug)]
struct Waiting(#[allow(dead_code)] Exit); // dropped with this

impl WorkerWait for Waiting {
    fn ready(&mut self) -> Ready {
        Ready::EMPTY // nobody asks
    }
}

/// `await_exit(pid)`: parks until the child has ended, and takes nothing. False, and nothing done, if the system does not tell it, or
/// if there is no such child.
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
