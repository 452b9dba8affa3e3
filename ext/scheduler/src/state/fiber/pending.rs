//! What is pending for a fiber (an exception, a kill, a fired timeout), and the status of its wait.

use super::{FiberRecord, FiberState, KillStep};
use crate::state::{
    object_ref::ObjectRef,
    wait::{Pending, WaitStatus, WakeCause},
};

impl FiberRecord {
    /// Has an exception raised when the fiber next gets control: in the wait that goes on, if there is one.
    pub(in crate::state) fn raise_later(&mut self, exception: ObjectRef) {
        self.raise_first(Pending::Raise(exception));
    }

    /// Keeps what was pending until the fiber has control in a wait that may end by it.
    pub(in crate::state) fn put_back(&mut self, pending: Pending) {
        self.raise_first(match pending {
            Pending::Raise(exception) => Pending::Late(exception),
            late => late,
        });
    }

    /// What belongs to the fiber and was pending is raised after this.
    fn raise_first(&mut self, pending: Pending) {
        match self.pending.replace(pending) {
            None | Some(Pending::Raise(_)) => {}
            Some(own) => self.rare.get_or_insert_default().pending_later.push(own),
        }
    }

    /// What is pending, the next one first.
    pub(in crate::state) fn all_pending(&self) -> impl Iterator<Item = Pending> + '_ {
        let later = self.rare.iter().flat_map(|rare| rare.pending_later.iter());
        self.pending.into_iter().chain(later.rev().copied())
    }

    pub(in crate::state) fn take_pending(&mut self) -> Option<Pending> {
        let pending = self.pending?;
        self.pending = self.rare.as_mut().and_then(|rare| rare.pending_later.pop());
        Some(pending)
    }

    /// Takes the exception that is meant for the wait which goes on. A kill and a late raise are the fiber's, and stay.
    pub(in crate::state) fn take_exception(&mut self) -> Option<ObjectRef> {
        let Some(Pending::Raise(exception)) = self.pending else {
            return None;
        };
        self.take_pending();
        Some(exception)
    }

    pub(in crate::state) fn kill(&mut self) -> KillStep {
        let wait_number = match self.state {
            FiberState::Parked(_) => Some(self.wait_number),
            FiberState::Woken(_) => None,
            FiberState::Running if self.queued => None,
            FiberState::Running => {
                self.killed = true;
                return KillStep::ThroughVm;
            }
        };
        self.pending = Some(Pending::Kill);
        if let Some(rare) = &mut self.rare {
            rare.pending_later.clear();
        }
        KillStep::Pending(wait_number)
    }

    /// Records that the scheduler kills the fiber. Returns whether that was recorded before.
    pub(in crate::state) fn mark_cancelled(&mut self) -> bool {
        std::mem::replace(&mut self.cancelled, true)
    }

    pub(in crate::state) fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// Records that the VM kills the fiber. Returns whether that was recorded before.
    pub(in crate::state) fn mark_killed(&mut self) -> bool {
        std::mem::replace(&mut self.killed, true)
    }

    pub(in crate::state) fn is_killed(&self) -> bool {
        self.killed
    }

    pub(in crate::state) fn is_kill_suspected(&self) -> bool {
        self.kill_suspected
    }

    pub(in crate::state) fn set_kill_suspected(&mut self, is_suspected: bool) {
        self.kill_suspected = is_suspected;
    }

    pub(in crate::state) fn poll_wait(&mut self) -> WaitStatus {
        let state = self.state;
        // A mutex that was handed over is taken before anything is raised: no other fiber would be told of it.
        if state == FiberState::Woken(WakeCause::Unblocked) {
            return WaitStatus::Over(WakeCause::Unblocked);
        }
        if let Some(pending) = self.take_pending() {
            return WaitStatus::Raise(pending);
        }
        if self.fired_timeouts > 0 && !self.outlasts_timeouts() {
            return WaitStatus::TimedOut;
        }
        self.poll_wake()
    }

    /// Whether it is parked, and a timeout that has fired ends the wait.
    pub fn has_timed_out(&self) -> bool {
        self.is_parked() && self.fired_timeouts > 0 && !self.outlasts_timeouts()
    }

    /// No timeout ends this wait, which closes an IO.
    pub(in crate::state) fn outlast_timeouts(&mut self) {
        self.outlasted_by_close = Some(self.wait_number);
    }

    fn outlasts_timeouts(&self) -> bool {
        self.outlasted_by_close == Some(self.wait_number)
    }

    /// Whether a timeout has fired during a close, and waits to be raised.
    pub(in crate::state) fn has_outlasted_timeouts(&self) -> bool {
        self.outlasted_by_close.is_some() && self.fired_timeouts > 0
    }

    /// As [`FiberRecord::poll_wait`], but what is pending is left for later. A timeout does not end the wait.
    pub(in crate::state) fn poll_wake(&self) -> WaitStatus {
        match self.state {
            FiberState::Woken(cause) => WaitStatus::Over(cause),
            FiberState::Parked(_) => WaitStatus::Waiting,
            FiberState::Running => WaitStatus::Over(WakeCause::Interrupted),
        }
    }
}
