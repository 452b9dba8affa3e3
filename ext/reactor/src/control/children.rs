//! Children that fibers wait for one by one, and how they have ended.
//!
//! A trap handler that reaps every child (`Process.wait(-1, Process::WNOHANG)`, the usual one for SIGCHLD) runs in the fiber
//! that polls, before the fiber that waits for the child. In plain Ruby the child goes to the thread that is blocked in
//! waitpid(2). So their ends are looked up before trap handlers run, without reaping: if the child is then gone, its fiber has
//! the status nevertheless.

use std::cell::RefCell;

use reactor_scheduler::system::child_process;

/// The children: number, and status once the child has ended.
#[derive(Debug, Default)]
pub struct Children(RefCell<Vec<(i32, Option<i32>)>>);

impl Children {
    pub fn begin(&self, pid: i32) {
        let status = child_process::status(pid); // a handler may be about to run already
        self.0.borrow_mut().push((pid, status));
    }

    /// `None` if it has been forgotten.
    pub fn end(&self, pid: i32) -> Option<Option<i32>> {
        let mut children = self.0.borrow_mut();
        let place = children.iter().position(|&(child, _)| child == pid)?;
        Some(children.swap_remove(place).1)
    }

    pub fn forget(&self, pid: i32) {
        self.0.borrow_mut().retain(|&(child, _)| child != pid);
    }

    /// A system call for each child that has not ended.
    pub fn look_up(&self) {
        for (pid, status) in self.0.borrow_mut().iter_mut() {
            *status = status.or_else(|| child_process::status(*pid));
        }
    }
}
