//! The record of one fiber: whether it waits, what ended its wait, and what it has to raise.
//!
//! Every wait has a number. A [`Token`] is slot and number. What carries the token of a wait that is over (late readiness,
//! an old timer, a stale wake-up) no longer matches, and is dropped.
//!
//! This is the whole machine, but for waits that a trap handler interrupts (`state/fiber/nested_wait.rs`), and for fibers
//! that the garbage collector may take (`state/fiber/collectable.rs`);
//! `state/fiber/tests.rs` has one test for each row.
//!
//! # A wait
//!
//! | state                    | what happens                       | state after              | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | any                      | a wait begins                      | parked                   | a new number; no longer queued; the spawner is forgotten |
//! | parked                   | woken under its number             | woken with the cause     | queued |
//! | parked                   | woken under an older number        | parked                   | - |
//! | running or woken         | woken                              | unchanged                | - |
//! | woken, queued            | taken from the ready queue         | woken, may run           | - |
//! | woken, queued            | taken under an older number        | unchanged                | - |
//! | any                      | the wait ends                      | running                  | a new number; no longer queued; the permit and the raise meant for the wait are dropped, a pending kill or late raise stays |
//! | running, not queued      | queued without a wait              | running, queued          | under the current number |
//! | queued                   | queued once more                   | unchanged                | - |
//!
//! # An interruption
//!
//! | state                    | what happens                       | state after              | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | parked for readiness     | an exception is raised in it       | woken (interrupted)      | the raise is pending |
//! | parked otherwise         | an exception is raised in it       | parked                   | - |
//! | running or woken         | an exception is raised in it       | unchanged                | - |
//! | parked                   | killed                             | woken (interrupted)      | the kill is pending |
//! | woken                    | killed                             | woken                    | the kill is pending |
//! | running, queued          | killed                             | running, queued          | the kill is pending |
//! | a kill or a late raise is pending | an exception is raised in it | as above              | both are pending, the exception first |
//! | late raises are pending  | killed                             | as below                 | only the kill is pending |
//! | running, not queued      | killed                             | running                  | the caller has to kill it through the VM, whose kill the hooks do not see |
//! | parked                   | a timeout fires                    | parked, queued           | one more has fired |
//! | running or woken         | a timeout fires                    | unchanged                | one more has fired |
//!
//! # What the fiber does when it has control
//!
//! | state                    | pending                            | it                       | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | in a close that cannot end | a raise, put back                | waits                    | it stands until a later wait raises it |
//! | woken by an unblock      | anything                           | goes on                  | what is pending stays: a mutex that was handed over is taken first |
//! | any other                | a raise or a kill                  | raises it                | no longer pending |
//! | any other                | a fired timeout                    | raises it                | - |
//! | parked, timed out        | is left for later                  | goes on (interrupted)    | - |
//! | woken                    | nothing                            | goes on                  | - |
//! | parked                   | nothing                            | waits                    | - |
//! | running                  | nothing                            | goes on (interrupted)    | the VM transferred control back |
//!
//! # A permit
//!
//! | state                    | what happens                       | state after              | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | running                  | a permit is granted                | running                  | it is kept |
//! | parked or woken          | a permit is granted                | unchanged                | - |
//! | running, with a permit   | the permit is taken                | running                  | `block` is over without a wait |
//!
//! # A forked child
//!
//! | state                    | what happens                       | state after              | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | running                  | a `block` begins in the child      | parked                   | no driver turns: the child looks at the record now and then |
//! | parked                   | unblocked by a thread of the child | woken (unblocked)        | queued, but no code takes it: the wait ends |

use std::time::Instant;

use reactor::Token;

use crate::state::{
    fiber::nested_wait::OuterWait,
    object_ref::ObjectRef,
    wait::{Life, Pending, WaitHook, WaitKind, WakeCause},
};

/// Index of a fiber's record.
pub type Slot = u32;

pub use crate::state::wait::{FiberState, KillStep};

#[derive(Debug)]
pub struct FiberRecord {
    fiber: ObjectRef,
    /// The fiber on whose behalf this one runs, because it resumed this one or one that did. `None` if the scheduler made it.
    owner: Option<Life>,
    state: FiberState,
    /// What is raised next. A [`Pending::Raise`] belongs to the wait, everything else to the fiber.
    pending: Option<Pending>,
    /// Timeouts that have fired and wait until the fiber gets control.
    fired_timeouts: u32,
    /// The number of the last wait that the fired timeouts have not ended, because it closes an IO.
    outlasted_by_close: Option<u32>,
    /// The IO object it waits for; [`SEVERAL`], or 0 for none.
    io_number: u64,
    /// An `unblock` came before the fiber reached `block` or `kernel_sleep`.
    permit: bool,
    scheduled: bool,
    killed: bool,
    /// The scheduler has killed it.
    cancelled: bool,
    /// The VM has raised in a fiber that runs on behalf of this one.
    kill_suspected: bool,
    /// In the ready queue, under the current wait number.
    queued: bool,
    waits_for_unblock_only: bool,
    /// It is known to run trap handlers. A fiber that is made in a trap handler never does.
    runs_trap_handlers: bool,
    /// The fiber that called `Fiber.schedule`, until this one first parks.
    spawner: Option<Token>,
    parked_at: Option<Instant>,
    hook: WaitHook,
    events: u8,
    /// The address of what a `block` waits for; 0 for none. It is only compared.
    blocker: usize,
    wait_number: u32,
    /// The number that was given last. A wait that was set aside has an earlier one.
    last_number: u32,
    active_hooks: u32,
    /// State that few fibers have. It is in a box, so that a record has 128 bytes and is found in the table by a shift.
    rare: Option<Box<Rare>>,
}

/// State that few fibers have.
#[derive(Debug, Default)]
struct Rare {
    /// The waits in the middle of which hooks have begun, the innermost last.
    outer_waits: Vec<OuterWait>,
    /// How many of the active hooks are timeouts whose blocks can be collected.
    collectable_timeouts: u32,
    /// The fiber that a trap handler has resumed in the middle of this one's wait, last.
    resumed_in_wait: Option<Life>,
    /// The fiber's own number, which no later fiber at its address has.
    fiber_number: u64,
    /// What is raised after `pending`, the next one last.
    pending_later: Vec<Pending>,
}

impl FiberRecord {
    pub(super) fn new(fiber: ObjectRef, scheduled: bool, wait_number: u32) -> Self {
        Self {
            fiber,
            owner: None,
            state: FiberState::Running,
            pending: None,
            fired_timeouts: 0,
            outlasted_by_close: None,
            io_number: 0,
            permit: false,
            scheduled,
            killed: false,
            cancelled: false,
            kill_suspected: false,
            queued: false,
            waits_for_unblock_only: false,
            runs_trap_handlers: false,
            spawner: None,
            parked_at: None,
            hook: WaitHook::Other,
            events: 0,
            blocker: 0,
            wait_number,
            last_number: wait_number,
            active_hooks: 0,
            rare: None,
        }
    }

    // --- what it is ----------------------------------------------------------------------------------------------

    /// An address that is only compared while the fiber may be collected (`state/fiber/collectable.rs`).
    pub fn fiber(&self) -> ObjectRef {
        self.fiber
    }

    pub(super) fn owner(&self) -> Option<Life> {
        self.owner
    }

    pub(super) fn set_owner(&mut self, owner: Life) {
        self.owner = Some(owner);
    }

    pub fn state(&self) -> FiberState {
        self.state
    }

    pub fn pending(&self) -> Option<Pending> {
        self.pending
    }

    /// Made by `Fiber.schedule`.
    pub fn is_scheduled(&self) -> bool {
        self.scheduled
    }

    pub fn is_queued(&self) -> bool {
        self.queued
    }

    pub fn is_parked(&self) -> bool {
        matches!(self.state, FiberState::Parked(_))
    }

    /// In user code, and not in the ready queue.
    pub fn is_suspended_elsewhere(&self) -> bool {
        self.state == FiberState::Running && !self.queued
    }

    /// Whether it waits for an `unblock` and nothing else.
    pub fn waits_for_unblock_only(&self) -> bool {
        self.waits_for_unblock_only
    }

    pub(super) fn runs_trap_handlers(&self) -> bool {
        self.runs_trap_handlers
    }

    pub(super) fn set_runs_trap_handlers(&mut self) {
        self.runs_trap_handlers = true;
    }

    /// Parked in no hook that observers know: for work in this process that ends by itself.
    pub fn waits_for_work(&self) -> bool {
        self.hook == WaitHook::Other && self.is_parked()
    }

    pub fn hook(&self) -> WaitHook {
        self.hook
    }

    pub fn io_number(&self) -> u64 {
        self.io_number
    }

    /// Ruby's mask of the events it waits for; 0 if it waits for none, or for several objects.
    pub fn events(&self) -> u8 {
        // The events of an earlier wait are not cleared, because each wait would pay for that.
        if self.hook == WaitHook::Io {
            self.events
        } else {
            0
        }
    }

    /// The poll before it parked.
    pub fn parked_at(&self) -> Option<Instant> {
        self.parked_at
    }

    /// The fiber that called `Fiber.schedule`, until this one first parks: an error so early is raised there.
    pub fn spawner(&self) -> Option<Token> {
        self.spawner
    }

    pub(super) fn wait_number(&self) -> u32 {
        self.wait_number
    }

    /// The number of the fiber's latest wait.
    pub(super) fn last_number(&self) -> u32 {
        self.last_number
    }

    fn renumber(&mut self) {
        self.last_number = self.last_number.wrapping_add(1);
        self.wait_number = self.last_number;
    }

    /// Whether its wait is over, or a timeout ends it, and it has left the ready queue.
    pub fn may_run(&self) -> bool {
        !self.queued && (matches!(self.state, FiberState::Woken(_)) || self.has_timed_out())
    }

    // --- a wait --------------------------------------------------------------------------------------------------

    /// Whether the wait before it, which has not been ended, was one for an `unblock` only.
    pub(super) fn begin_wait(&mut self, kind: WaitKind) -> bool {
        self.renumber();
        self.state = FiberState::Parked(kind);
        self.spawner = None;
        self.queued = false;
        std::mem::take(&mut self.waits_for_unblock_only)
    }

    /// The wait that has just begun is one for the readiness of an IO object with a mask of events, or of several.
    pub(super) fn wait_for_readiness(&mut self, io_number: u64, events: u8) {
        self.io_number = io_number;
        self.hook = WaitHook::Io;
        self.events = events;
    }

    /// The wait that has just begun is one for work on the descriptor of an IO object, or on none (0).
    pub(super) fn wait_for_work(&mut self, io_number: u64) {
        self.io_number = io_number;
    }

    /// The wait that has just begun is one for an `unblock`, with a time limit or without.
    pub(super) fn wait_for_unblock(&mut self, hook: WaitHook, is_unlimited: bool, blocker: usize) {
        self.hook = hook;
        self.waits_for_unblock_only = is_unlimited;
        self.blocker = blocker;
    }

    pub(super) fn set_parked_at(&mut self, clock: Option<Instant>) {
        self.parked_at = clock;
    }

    /// Whether the wait with this number goes on and has ended now.
    pub(super) fn wake(&mut self, wait_number: u32, cause: WakeCause) -> bool {
        let goes_on = self.wait_number == wait_number && self.is_parked();
        if goes_on {
            self.state = FiberState::Woken(cause);
            self.queued = true;
        }
        goes_on
    }

    /// Whether the wait was one for an `unblock` only.
    pub(super) fn end_wait(&mut self) -> bool {
        self.renumber();
        self.state = FiberState::Running;
        self.queued = false;
        self.io_number = 0;
        self.permit = false;
        self.hook = WaitHook::Other;
        self.take_exception();
        std::mem::take(&mut self.waits_for_unblock_only)
    }

    /// The number under which it enters the ready queue without having parked; `None` if it is there.
    pub(super) fn queue(&mut self) -> Option<u32> {
        if self.queued {
            return None;
        }
        self.queued = true;
        Some(self.wait_number)
    }

    /// Whether the entry of the ready queue with this number still stands.
    pub(super) fn is_queued_as(&self, wait_number: u32) -> bool {
        self.queued && self.wait_number == wait_number
    }

    /// It leaves the ready queue; false if the entry no longer stands.
    pub(super) fn dequeue(&mut self, wait_number: u32) -> bool {
        let stands = self.is_queued_as(wait_number);
        if stands {
            self.queued = false;
        }
        stands
    }

    // --- permits, spawners, hooks --------------------------------------------------------------------------------

    pub(super) fn grant_permit(&mut self) {
        if self.state == FiberState::Running {
            self.permit = true;
        }
    }

    pub(super) fn take_permit(&mut self) -> bool {
        std::mem::take(&mut self.permit)
    }

    pub(super) fn set_spawner(&mut self, spawner: Option<Token>) {
        self.spawner = spawner;
    }

    pub(super) fn enter_hook(&mut self) {
        self.active_hooks += 1;
    }

    pub(super) fn is_in_hook(&self) -> bool {
        self.active_hooks > 0
    }

    /// Whether it was the last hook of a fiber that the scheduler did not make. Then the record goes.
    pub(super) fn leave_hook(&mut self) -> bool {
        self.active_hooks = self.active_hooks.saturating_sub(1);
        self.active_hooks == 0 && !self.scheduled
    }
}

mod collectable;
mod nested_wait;
mod pending;

#[cfg(test)]
mod tests;
