//! Waiting for a child process: keeping its status, and learning of its end where the system reports that without a
//! descriptor (Windows).

use magnus::{Error, Ruby};
use reactor::Ready;
use reactor_scheduler::{state::unpolled::WorkerWait, system::child_process::Exit};

use crate::{
    control::{hook_scope::HookScope, scheduler::Scheduler},
    ruby::receiver::Receiver,
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
    let scope = HookScope::enter(ruby, &this)?;
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

/// `begin_child(pid)`: from now on, a trap handler may reap this child, but its status is kept.
pub fn begin_child(Receiver(this): Receiver<Scheduler>, pid: i32) {
    this.children.begin(pid);
}

/// `end_child(pid)`: the kept status as a number; -1 if there is none; nil if another fiber has it.
pub fn end_child(Receiver(this): Receiver<Scheduler>, pid: i32) -> Option<i32> {
    this.children.end(pid).map(|status| status.unwrap_or(-1))
}

/// `forget_child(pid)`: a fiber has reaped this child, so it is not kept for others.
pub fn forget_child(Receiver(this): Receiver<Scheduler>, pid: i32) {
    this.children.forget(pid);
}
