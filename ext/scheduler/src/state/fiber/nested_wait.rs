//! Waits in the middle of which a hook begins: a trap handler or a finalizer runs in the fiber that polls, and waits itself.
//!
//! The fiber's wait is set aside until that hook ends. What comes for it meanwhile (readiness, its time, an `unblock`, an
//! exception) is noted, and the fiber goes on with it then.
//!
//! | state                    | what happens                       | state after              | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | parked or woken          | a hook begins                      | running                  | the wait is set aside with the exception meant for it; a pending kill or late raise stays; a new number |
//! | any                      | that hook ends                     | as when it was set aside | its own number; no longer queued; a pending kill or late raise stays |
//! | set aside, parked        | woken under its number             | set aside, woken         | not queued |
//! | set aside, parked        | an `unblock` with its blocker      | set aside, woken         | - |
//! | set aside, parked        | an `unblock` whose blocker is no wait's | set aside, woken        | the innermost wait as well |
//! | set aside, parked        | an `unblock` that names the thread | set aside, woken         | the innermost wait as well; not a sleep with a limit |
//! | set aside for readiness  | an exception is raised in it       | set aside, woken         | it is raised when the wait goes on, before a late one |
//! | set aside, parked        | a timeout around it fires          | set aside, woken         | one more has fired, for this wait |
//!
//! If the handler resumes another fiber, for example an Enumerator's, and that one waits, no hook has begun in this fiber. Its wait
//! is not set aside. If it is over meanwhile, the fiber gets no control from the ready queue, because it waits for the other one. It
//! looks at its wait when the handler has ended. A kill goes through the VM, which raises it in the other fiber.
//!
//! # The fiber's own code
//!
//! A handler may also run where the fiber does not wait, but runs Ruby code. Then that code is set aside like a wait, for each hook
//! in the handler that waits or begins a timeout. So the timeouts around the code are not raised in the handler.
//!
//! | state                    | what happens                       | state after              | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | any                      | its hook is found to be a handler's | unchanged               | the code is set aside, with the timeouts that have fired around it |
//! | any                      | a timeout around the code fires    | unchanged                | one more has fired, for the code |
//! | any                      | the hook ends                      | running                  | the fired timeouts are raised with the next wait |

use std::time::Instant;

use super::{FiberRecord, FiberState};
use crate::state::{
    object_ref::ObjectRef,
    wait::{Life, SEVERAL, WaitHook, WaitKind, WakeCause},
};

/// A wait that was set aside.
#[derive(Debug)]
pub struct OuterWait {
    state: FiberState,
    /// The one that is meant for this wait.
    exception: Option<ObjectRef>,
    /// Timeouts around the wait that have fired. The hook that has interrupted it does not raise them.
    fired_timeouts: u32,
    io_number: u64,
    waits_for_unblock_only: bool,
    parked_at: Option<Instant>,
    hook: WaitHook,
    events: u8,
    blocker: usize,
    wait_number: u32,
    /// The number of active hooks when the wait was set aside.
    depth: u32,
}

impl OuterWait {
    fn wake(&mut self, cause: WakeCause) -> bool {
        let goes_on = matches!(self.state, FiberState::Parked(_));
        if goes_on {
            self.state = FiberState::Woken(cause);
        }
        goes_on
    }

    /// Whether it is one in `block` for this object, if it is one for an `unblock`.
    pub(in crate::state) fn is_for(&self, blocker: usize) -> bool {
        self.blocker == blocker
    }

    /// Whether it is a sleep that ends by itself.
    pub(in crate::state) fn sleeps_with_limit(&self) -> bool {
        self.hook == WaitHook::Sleep && !self.waits_for_unblock_only
    }

    fn waits_for_one_of(&self, io_numbers: &[u64]) -> bool {
        self.state == FiberState::Parked(WaitKind::Io) && io_numbers.contains(&self.io_number)
    }
}

impl FiberRecord {
    /// The innermost last.
    fn outer_waits(&self) -> &[OuterWait] {
        self.rare.as_ref().map_or(&[], |rare| &rare.outer_waits)
    }

    fn outer_waits_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut OuterWait> {
        let rare = self.rare.iter_mut();
        rare.flat_map(|rare| rare.outer_waits.iter_mut())
    }

    /// Whether a hook that begins now is in the middle of a wait.
    pub(in crate::state) fn is_in_wait(&self) -> bool {
        self.state != FiberState::Running
    }

    /// A trap handler has resumed another fiber in the middle of the wait.
    pub(in crate::state) fn set_resumed_in_wait(&mut self, fiber: Life) {
        self.rare.get_or_insert_default().resumed_in_wait = Some(fiber);
    }

    /// The fiber that a trap handler has resumed in the middle of a wait, last.
    pub(in crate::state) fn resumed_in_wait(&self) -> Option<Life> {
        self.rare.as_ref()?.resumed_in_wait
    }

    pub(in crate::state) fn has_outer_wait(&self) -> bool {
        !self.outer_waits().is_empty()
    }

    /// How many waits are set aside: more than there were when a timeout began, if it is around one of them.
    pub(in crate::state) fn depth(&self) -> u32 {
        self.outer_waits().len() as u32
    }

    fn outer_wait_at(&mut self, depth: u32) -> Option<&mut OuterWait> {
        self.rare.as_mut()?.outer_waits.get_mut(depth as usize)
    }

    /// A timeout that began at this depth has fired.
    pub(in crate::state) fn count_fired_timeout(&mut self, depth: u32) {
        match self.outer_wait_at(depth) {
            Some(wait) => {
                wait.fired_timeouts += 1;
                wait.wake(WakeCause::Interrupted);
            }
            None => self.fired_timeouts += 1,
        }
    }

    /// It has ended, or is raised.
    pub(in crate::state) fn discount_fired_timeout(&mut self, depth: u32) {
        match self.outer_wait_at(depth) {
            Some(wait) => wait.fired_timeouts = wait.fired_timeouts.saturating_sub(1),
            None => self.fired_timeouts = self.fired_timeouts.saturating_sub(1),
        }
        if self.fired_timeouts == 0 {
            self.outlasted_by_close = None;
        }
    }

    /// Whether a timeout has fired that is to be raised in the fiber's wait or in its next one.
    pub(in crate::state) fn has_fired_timeouts(&self) -> bool {
        self.fired_timeouts > 0
    }

    /// Sets the wait aside for the hook that has just begun. Returns whether it is a wait for an `unblock` only.
    pub(in crate::state) fn set_wait_aside(&mut self) -> bool {
        let waits_for_unblock_only = std::mem::take(&mut self.waits_for_unblock_only);
        let wait = OuterWait {
            state: self.state,
            exception: self.take_exception(),
            fired_timeouts: std::mem::take(&mut self.fired_timeouts),
            io_number: std::mem::take(&mut self.io_number),
            waits_for_unblock_only,
            parked_at: self.parked_at,
            hook: std::mem::take(&mut self.hook),
            events: std::mem::take(&mut self.events),
            blocker: std::mem::take(&mut self.blocker),
            wait_number: self.wait_number,
            depth: self.active_hooks,
        };
        self.rare.get_or_insert_default().outer_waits.push(wait);
        self.renumber();
        self.state = FiberState::Running;
        self.queued = false;
        waits_for_unblock_only
    }

    /// The hook that has begun last was called by a trap handler or a finalizer, which has interrupted the fiber's own code.
    pub(in crate::state) fn set_code_aside(&mut self) {
        let code = OuterWait {
            state: FiberState::Running,
            exception: None,
            fired_timeouts: std::mem::take(&mut self.fired_timeouts),
            io_number: 0,
            waits_for_unblock_only: false,
            parked_at: None,
            hook: WaitHook::Other,
            events: 0,
            blocker: 0,
            wait_number: self.wait_number,
            depth: self.active_hooks,
        };
        self.rare.get_or_insert_default().outer_waits.push(code);
    }

    /// A hook is about to be left: if a wait was set aside when it began, that one goes on. Whether it is one for an
    /// `unblock` only; `None` if there is none.
    pub(in crate::state) fn resume_wait(&mut self) -> Option<bool> {
        let depth = self.active_hooks;
        let waits = &mut self.rare.as_mut()?.outer_waits;
        if waits.last()?.depth != depth {
            return None;
        }
        let wait = waits.pop()?;
        self.fired_timeouts += wait.fired_timeouts;
        if wait.state == FiberState::Running {
            return Some(false); // the fiber's own code
        }
        self.state = wait.state;
        if let Some(exception) = wait.exception {
            self.raise_later(exception);
        }
        self.io_number = wait.io_number;
        self.waits_for_unblock_only = wait.waits_for_unblock_only;
        self.parked_at = wait.parked_at;
        self.hook = wait.hook;
        self.events = wait.events;
        self.blocker = wait.blocker;
        self.wait_number = wait.wait_number;
        self.queued = false;
        Some(wait.waits_for_unblock_only)
    }

    /// Notes what has ended a wait that was set aside. Whether there is one with this number that went on.
    #[cold]
    pub(in crate::state) fn wake_outer(&mut self, wait_number: u32, cause: WakeCause) -> bool {
        let mut waits = self.outer_waits_mut();
        let wait = waits.find(|wait| wait.wait_number == wait_number);
        wait.is_some_and(|wait| wait.wake(cause))
    }

    /// Whether the innermost wait is one in `block` for this object.
    pub(in crate::state) fn is_blocked_by(&self, blocker: usize) -> bool {
        self.state == FiberState::Parked(WaitKind::Block) && self.blocker == blocker
    }

    /// Whether the innermost wait is a sleep that ends by itself.
    pub(in crate::state) fn sleeps_with_limit(&self) -> bool {
        self.hook == WaitHook::Sleep && self.is_parked() && !self.waits_for_unblock_only
    }

    /// Ends the waits that were set aside and that an `unblock` ends, those of them that are meant. Whether there is one.
    pub(in crate::state) fn unblock_outer(
        &mut self,
        is_meant: impl Fn(&OuterWait) -> bool,
    ) -> bool {
        let waits = self.outer_waits_mut();
        waits
            .filter(|wait| wait.state == FiberState::Parked(WaitKind::Block) && is_meant(wait))
            .fold(false, |_, wait| wait.wake(WakeCause::Unblocked))
    }

    /// Whether it waits for this IO object (0: for any), in the wait that goes on.
    pub(in crate::state) fn waits_for_io(&self, io_number: u64) -> bool {
        io_number == 0 || [io_number, SEVERAL].contains(&self.io_number)
    }

    /// Whether it waits for one of these IO objects, in a wait that was set aside.
    pub(in crate::state) fn has_outer_wait_for(&self, io_numbers: &[u64]) -> bool {
        let mut waits = self.outer_waits().iter();
        waits.any(|wait| wait.waits_for_one_of(io_numbers))
    }

    /// Raises in the innermost wait for this IO object (0: for any) that was set aside. Whether there is one.
    pub(in crate::state) fn raise_in_outer(
        &mut self,
        io_number: u64,
        exception: ObjectRef,
    ) -> bool {
        let mut waits = self.outer_waits_mut().rev();
        let wait = waits.find(|wait| match io_number {
            0 => wait.state == FiberState::Parked(WaitKind::Io),
            number => wait.waits_for_one_of(&[number, SEVERAL]),
        });
        wait.is_some_and(|wait| {
            wait.exception = Some(exception);
            wait.wake(WakeCause::Interrupted)
        })
    }

    /// The exceptions that are meant for waits that were set aside.
    pub(in crate::state) fn outer_exceptions(&self) -> impl Iterator<Item = ObjectRef> + '_ {
        let waits = self.outer_waits().iter();
        waits.filter_map(|wait| wait.exception)
    }
}
