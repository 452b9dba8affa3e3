//! The record of one fiber: its current wait, and what it is to raise.
//!
//! Each wait has a number; a [`Token`] combines slot and number. Anything carrying the token of a wait that has ended (late
//! readiness, an old timer, a stale wake-up) no longer matches and is dropped.
//!
//! A wait during which another one begins moves to the fiber's strand (`state/strand.rs`), which also holds timeouts.
//! `state/fiber/tests.rs` has one test per row.
//!
//! # A wait
//!
//! | state                    | what happens                       | state after              | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | running                  | a wait begins                      | parked                   | a new number; no longer queued; the spawner is forgotten |
//! | parked                   | woken under its number             | woken with the cause     | queued |
//! | parked                   | woken under an older number        | parked                   | - |
//! | woken by its own limit   | woken by an answer                 | woken with the answer    | - |
//! | running or woken otherwise | woken                            | unchanged                | - |
//! | woken, queued            | taken from the ready queue         | woken, may run           | - |
//! | woken, queued            | taken under an older number        | unchanged                | - |
//! | any                      | the wait ends                      | running, or the wait it covered | a new number; no longer queued; the permit and the wait's own exception are dropped, a pending kill or late raise stays |
//! | running, not queued      | queued without a wait              | running, queued          | under the current number |
//! | queued                   | queued again                       | unchanged                | - |
//!
//! # An interruption
//!
//! | state                    | what happens                       | state after              | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | parked for a send        | an exception is raised in it       | parked                   | - |
//! | parked otherwise         | an exception is raised in it       | woken (interrupted)      | the raise is pending |
//! | running or woken         | an exception is raised in it       | unchanged                | - |
//! | parked                   | cancelled                          | woken (interrupted)      | the exception or kill is pending |
//! | woken                    | cancelled                          | woken                    | the exception or kill is pending |
//! | running, queued          | cancelled                          | running, queued          | the exception or kill is pending |
//! | a kill or a late raise is pending | an exception is raised in it | as above              | both are pending, the exception comes first |
//! | late raises are pending  | cancelled                          | as above                 | only the exception or kill is pending |
//! | running, not queued      | killed                             | running                  | the caller must use `Fiber#kill`, which the hooks do not see |
//! | parked                   | a timeout expires                  | parked, queued           | raised when the fiber runs |
//! | woken (not interrupted)  | a timeout expires                  | unchanged                | raised in the next wait: an answer that came first beats it |
//! | woken (not interrupted)  | a timeout is to end its block      | unchanged                | raised when the fiber runs, unless an unblock woke it |
//! | running                  | a timeout expires                  | unchanged                | raised in the next wait |
//!
//! # When the fiber runs again
//!
//! | state                    | pending                            | the fiber                | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | in a close that cannot be ended | a raise, put back           | waits                    | stays pending until a later wait raises it |
//! | woken by an unblock      | anything                           | continues                | pending exceptions stay: it may have been handed a mutex, which it takes first |
//! | any other                | a raise or a kill                  | raises it                | no longer pending |
//! | woken before it expired  | an expired timeout                 | continues                | - |
//! | any other                | an expired timeout                 | raises it                | - |
//! | parked, timed out        | is left for later                  | continues (interrupted)  | - |
//! | woken                    | nothing                            | continues                | - |
//! | parked                   | nothing                            | waits                    | - |
//! | running                  | nothing                            | continues (interrupted)  | the VM transferred control back |
//!
//! # A permit
//!
//! | state                    | what happens                       | state after              | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | running                  | a permit is granted                | running                  | it is kept |
//! | parked or woken          | a permit is granted                | unchanged                | - |
//! | running, with a permit   | the permit is taken                | running                  | `block` returns without a wait |

use reactor::Token;

use crate::state::{
    object_ref::ObjectRef,
    strand::StrandEntry,
    wait::{FiberId, Pending, Purpose, Wait, WaitState, WakeCause},
};

pub use crate::state::wait::Slot;

mod strand;

#[derive(Debug)]
pub struct FiberRecord {
    /// While the fiber may be collected ([`FiberRecord::collectable`]), this address is only compared.
    pub(super) fiber: ObjectRef,
    /// The wait number at its creation.
    pub(super) born: u32,
    /// The innermost wait, or the running code.
    pub(super) wait: Wait,
    /// The last number assigned. Waits in the strand have earlier ones.
    pub(super) last_number: u32,
    /// The fiber that resumed this one, directly or through others. `None` for fibers that the scheduler created.
    pub(super) resumer: Option<FiberId>,
    /// In the ready queue, under the current wait number.
    pub(super) queued: bool,
    /// An expired timeout may be due in the innermost wait; [`FiberTable::due_timeout`] checks.
    ///
    /// [`FiberTable::due_timeout`]: crate::state::fiber_table::FiberTable::due_timeout
    pub(super) may_time_out: bool,
    /// A close kept waiting although an exception was due, perhaps that of a timeout whose block is still running.
    pub(super) may_have_late_timeout: bool,
    /// An `unblock` came before the fiber reached `block` or `kernel_sleep`.
    permit: bool,
    /// Created by `Fiber.schedule`.
    pub(super) is_scheduled: bool,
    /// The VM is killing it.
    pub(super) is_killed: bool,
    /// How often the scheduler has cancelled it.
    pub(super) cancelled: u8,
    /// The VM raised an exception in a fiber that runs for this one.
    pub is_kill_suspected: bool,
    /// Known to run trap handlers. A fiber created in a trap handler never does.
    pub runs_trap_handlers: bool,
    pub(super) active_hooks: u32,
    /// The fiber that called `Fiber.schedule`, until this one first parks: errors raised before that are raised there.
    pub(super) spawner: Option<Token>,
    /// State that few fibers have, boxed so that a record has 128 bytes and the table indexes it with a shift.
    rare: Option<Box<Rare>>,
}

/// State that few fibers have.
#[derive(Debug, Default)]
struct Rare {
    strand: Vec<StrandEntry>,
    /// The exceptions and kills pending for the fiber rather than for its wait, the next one last.
    pending: Vec<Pending>,
    /// The fiber's unique number, which a later fiber at the same address does not have.
    fiber_number: u64,
}

impl FiberRecord {
    pub(super) fn new(fiber: ObjectRef, is_scheduled: bool, number: u32) -> Self {
        Self {
            fiber,
            born: number,
            wait: Wait::running(number),
            last_number: number,
            resumer: None,
            queued: false,
            may_time_out: false,
            may_have_late_timeout: false,
            permit: false,
            is_scheduled,
            is_killed: false,
            cancelled: 0,
            is_kill_suspected: false,
            runs_trap_handlers: false,
            active_hooks: 0,
            spawner: None,
            rare: None,
        }
    }

    /// The record of a slot without a fiber. Waits of later fibers in the slot have higher numbers.
    pub(super) fn vacant(number: u32) -> Self {
        Self::new(ObjectRef::NONE, false, number)
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.fiber == ObjectRef::NONE
    }

    // --- a wait --------------------------------------------------------------------------------------------------

    pub fn is_in_wait(&self) -> bool {
        self.wait.state != WaitState::Running
    }

    /// In user code and not in the ready queue. Unless it is running, the VM suspended it without the scheduler noticing.
    pub fn is_suspended(&self) -> bool {
        !self.is_in_wait() && !self.queued
    }

    /// A number that no wait or timeout of the slot has had.
    pub(super) fn next_number(&mut self) -> u32 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    /// Begins a wait that is parked, or has already ended and is queued.
    pub(super) fn begin_wait(&mut self, purpose: Purpose, state: WaitState) {
        self.wait.number = self.next_number();
        self.wait.purpose = purpose;
        self.wait.state = state;
        self.spawner = None;
        self.queued = state != WaitState::Parked;
    }

    /// Ends the wait with this number and queues the fiber. False if the wait had already ended.
    pub(super) fn wake(&mut self, number: u32, cause: WakeCause) -> bool {
        let is_woken = self.wait.number == number && self.wait.wake(cause);
        self.queued |= is_woken;
        is_woken
    }

    pub(super) fn end_wait(&mut self) {
        self.wait = Wait::running(self.next_number());
        self.queued = false;
        self.permit = false;
    }

    /// Queues the fiber without parking it. Returns its number in the ready queue; `None` if it is already queued.
    pub(super) fn queue(&mut self) -> Option<u32> {
        let was_queued = std::mem::replace(&mut self.queued, true);
        (!was_queued).then_some(self.wait.number)
    }

    /// Whether the ready queue's entry with this number is valid.
    pub(super) fn is_queued_as(&self, number: u32) -> bool {
        self.queued && self.wait.number == number
    }

    /// Removes the fiber from the ready queue; false if the entry is stale.
    pub(super) fn dequeue(&mut self, number: u32) -> bool {
        let is_valid = self.is_queued_as(number);
        self.queued &= !is_valid;
        is_valid
    }

    /// Ends the `block` or `kernel_sleep` that the fiber is about to begin, in advance.
    pub fn grant_permit(&mut self) {
        self.permit |= !self.is_in_wait();
    }

    pub(super) fn take_permit(&mut self) -> bool {
        std::mem::take(&mut self.permit)
    }

    // --- what it raises ------------------------------------------------------------------------------------------

    /// The exception or kill to raise, or how the wait ended. [`FiberTable::take_status`] handles timeouts.
    ///
    /// [`FiberTable::take_status`]: crate::state::fiber_table::FiberTable::take_status
    pub(super) fn take_pending(&mut self) -> Option<Pending> {
        let exception = self.wait.exception();
        self.wait.exception = ObjectRef::NONE;
        exception.map(Pending::Raise).or_else(|| self.take_late())
    }

    pub fn is_cancelled(&self) -> bool {
        self.cancelled > 0
    }

    /// The scheduler cancels it once more.
    pub fn count_cancel(&mut self) {
        self.cancelled = self.cancelled.saturating_add(1);
    }

    /// Keeps the pending exception or kill until the fiber is in a wait that it may end.
    pub fn put_back(&mut self, pending: Pending) {
        self.rare
            .get_or_insert_default()
            .pending
            .push(match pending {
                Pending::Raise(exception) => Pending::Late(exception),
                late => late,
            });
    }

    /// Takes what was kept by [`FiberRecord::put_back`] last.
    pub(super) fn take_late(&mut self) -> Option<Pending> {
        self.rare.as_mut()?.pending.pop()
    }

    /// The pending exceptions and kills, next one first.
    pub(super) fn all_pending(&self) -> impl Iterator<Item = Pending> + '_ {
        let exception = self.wait.exception().map(Pending::Raise);
        let own = self.rare.iter().flat_map(|rare| rare.pending.iter().rev());
        exception.into_iter().chain(own.copied())
    }

    /// The fiber raises this, or unwinds, the next time it runs. Other pending exceptions are dropped.
    pub(super) fn cancel(&mut self, pending: Pending) {
        self.wait.exception = ObjectRef::NONE;
        self.rare.get_or_insert_default().pending = vec![pending];
    }

    /// The fiber. It may have been collected if it is [collectable](FiberRecord::collectable).
    pub fn fiber(&self) -> ObjectRef {
        self.fiber
    }

    /// Whether the scheduler created it and no kill has reached it.
    pub fn may_be_killed(&self) -> bool {
        self.is_scheduled && !self.is_killed
    }

    /// Records that the VM kills the fiber. Returns whether that was already known.
    pub fn mark_killed(&mut self) -> bool {
        std::mem::replace(&mut self.is_killed, true)
    }

    /// Timeouts do not end the current wait, because the fiber is closing an IO.
    pub fn ignore_timeouts(&mut self) {
        self.wait.ignores_timeouts = true;
        self.may_have_late_timeout = true;
    }

    /// Whether only an `unblock` can end its wait.
    pub fn waits_for_unblock_only(&self) -> bool {
        self.wait.is_unblock_only()
    }

    /// Whether a timeout block about to begin may be in a handler that is not recognised yet: it runs during no wait.
    pub fn may_begin_in_handler(&self) -> bool {
        !self.is_in_wait() && !self.is_in_handler()
    }

    /// How its wait ended; `None` if it has not.
    pub fn wake_cause(&self) -> Option<WakeCause> {
        match self.wait.state {
            WaitState::Woken(cause) => Some(cause),
            WaitState::Parked => None,
            WaitState::Running => Some(WakeCause::Interrupted),
        }
    }

    /// Whether an expired timeout may end its wait.
    pub(super) fn ends_by_timeout(&self) -> bool {
        self.may_time_out && !self.wait.ignores_timeouts
    }

    // --- its hooks -----------------------------------------------------------------------------------------------

    /// Ends a hook. True if the caller must remove the record: the last hook of a fiber the scheduler did not create.
    pub(super) fn leave_hook(&mut self) -> bool {
        self.active_hooks = self.active_hooks.saturating_sub(1);
        self.active_hooks == 0 && !self.is_scheduled
    }

    /// Makes the timeout end when the fiber is collected.
    pub(super) fn set_collectable(&mut self, number: u32, fiber_number: u64) {
        self.rare.get_or_insert_default().fiber_number = fiber_number;
        if let Some(timeout) = self.timeout_mut(number) {
            timeout.is_collectable = true;
        }
    }

    /// The fiber's number if it may be collected while it is not running; `None` if it may not.
    ///
    /// This concerns fibers that the scheduler did not create and whose only active hooks are timeouts: for example the
    /// fiber of an Enumerator that is suspended between two values, and that the program may drop. After collection
    /// another fiber may get the same address; the number tells them apart.
    ///
    /// | state                                     | what happens                        | the fiber is     | besides |
    /// |-------------------------------------------|-------------------------------------|------------------|---------|
    /// | running, in timeouts only, not queued     | another fiber runs                  | not kept         | the record, its timeouts and its resumer stay |
    /// | running, in timeouts only, not queued     | it runs                             | kept             | - |
    /// | not kept                                  | a hook begins in a fiber with its number | kept        | - |
    /// | not kept                                  | a hook begins in a fiber with another number | not kept | that fiber gets its own record |
    /// | not kept                                  | it is collected                     | -                | its timeouts end, and the record is removed with the last one |
    ///
    /// A fiber that runs for no other fiber raises its timeouts itself, so it is kept.
    pub(super) fn collectable(&self) -> Option<u64> {
        self.collectable_with(self.active_hooks)
    }

    /// Whether it was collectable before the hook that has just begun.
    pub(super) fn was_collectable(&self) -> bool {
        self.collectable_with(self.active_hooks - 1).is_some()
    }

    /// The fiber's number, if exactly `hooks` of its timeouts are collectable.
    fn collectable_with(&self, hooks: u32) -> Option<u64> {
        let rare = self.rare.as_ref()?;
        let strand = rare.strand.iter();
        let timeouts = strand.filter(
            |entry| matches!(entry, StrandEntry::Timeout(timeout) if timeout.is_collectable),
        );
        let has_only_these = hooks > 0 && timeouts.count() == hooks as usize;
        (has_only_these && self.is_suspended() && self.resumer.is_some())
            .then_some(rare.fiber_number)
    }
}

#[cfg(test)]
mod tests;
