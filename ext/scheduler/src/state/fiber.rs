//! The record of one fiber: the wait that it is in, and what it has to raise.
//!
//! Every wait has a number. A [`Token`] is slot and number. What carries the token of a wait that is over (late readiness,
//! an old timer, a stale wake-up) no longer matches, and is dropped.
//!
//! A wait in the middle of which another one begins is in the fiber's strand (`state/strand.rs`), and so are timeouts.
//! `state/fiber/tests.rs` has one test for each row.
//!
//! # A wait
//!
//! | state                    | what happens                       | state after              | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | running                  | a wait begins                      | parked                   | a new number; no longer queued; the spawner is forgotten |
//! | parked                   | woken under its number             | woken with the cause     | queued |
//! | parked                   | woken under an older number        | parked                   | - |
//! | running or woken         | woken                              | unchanged                | - |
//! | woken, queued            | taken from the ready queue         | woken, may run           | - |
//! | woken, queued            | taken under an older number        | unchanged                | - |
//! | any                      | the wait ends                      | running, or the wait that it has covered | a new number; no longer queued; the permit and the exception meant for the wait are dropped, a pending kill or late raise stays |
//! | running, not queued      | queued without a wait              | running, queued          | under the current number |
//! | queued                   | queued once more                   | unchanged                | - |
//!
//! # An interruption
//!
//! | state                    | what happens                       | state after              | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | parked for readiness or work | an exception is raised in it   | woken (interrupted)      | the raise is pending |
//! | parked otherwise         | an exception is raised in it       | parked                   | - |
//! | running or woken         | an exception is raised in it       | unchanged                | - |
//! | parked                   | killed                             | woken (interrupted)      | the kill is pending |
//! | woken                    | killed                             | woken                    | the kill is pending |
//! | running, queued          | killed                             | running, queued          | the kill is pending |
//! | a kill or a late raise is pending | an exception is raised in it | as above              | both are pending, the exception first |
//! | late raises are pending  | killed                             | as above                 | only the kill is pending |
//! | running, not queued      | killed                             | running                  | the caller must use `Fiber#kill`; the hooks do not see that kill |
//! | parked                   | a timeout expires                  | parked, queued           | it is raised when the fiber has control |
//! | woken                    | a timeout expires                  | unchanged                | it is raised when the fiber has control, unless an unblock woke it |
//! | running                  | a timeout expires                  | unchanged                | it is raised in the next wait |
//!
//! # What the fiber does when it has control
//!
//! | state                    | pending                            | it                       | besides |
//! |--------------------------|------------------------------------|--------------------------|---------|
//! | in a close that cannot end | a raise, put back                | waits                    | it stands until a later wait raises it |
//! | woken by an unblock      | anything                           | goes on                  | what is pending stays: a mutex that was handed over is taken first |
//! | any other                | a raise or a kill                  | raises it                | no longer pending |
//! | any other                | an expired timeout                 | raises it                | - |
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

use reactor::Token;

use crate::state::{
    object_ref::ObjectRef,
    strand::{StrandEntry, Timeout},
    wait::{FiberId, Pending, Purpose, Wait, WaitState, WakeCause},
};

pub use crate::state::wait::Slot;

#[derive(Debug)]
pub struct FiberRecord {
    /// An address that is only compared while the fiber may be collected ([`FiberRecord::collectable`]).
    pub(super) fiber: ObjectRef,
    /// The wait number with which it began.
    pub(super) born: u32,
    /// The innermost wait, or the code that runs.
    pub(super) wait: Wait,
    /// The number that was given last. A wait in the strand has an earlier one.
    pub(super) last_number: u32,
    /// The fiber on whose behalf this one runs, because it resumed this one or one that did. `None` if the scheduler made it.
    pub(super) owner: Option<FiberId>,
    /// In the ready queue, under the current wait number.
    pub(super) queued: bool,
    /// A timeout may have expired that is to be raised in the innermost wait: [`FiberTable::due_timeout`] knows.
    ///
    /// [`FiberTable::due_timeout`]: crate::state::fiber_table::FiberTable::due_timeout
    pub(super) may_time_out: bool,
    /// It has waited on in a close though something was to be raised. When the block of a timeout ends, it is looked whether that was a
    /// timeout.
    pub(super) may_have_late_timeout: bool,
    /// An `unblock` came before the fiber reached `block` or `kernel_sleep`.
    permit: bool,
    /// Made by `Fiber.schedule`.
    pub(super) is_scheduled: bool,
    /// The VM kills it.
    pub(super) is_killed: bool,
    /// The scheduler has killed it.
    pub(super) is_cancelled: bool,
    /// The VM has raised in a fiber that runs on behalf of this one.
    pub is_kill_suspected: bool,
    /// It is known to run trap handlers. A fiber that is made in a trap handler never does.
    pub runs_trap_handlers: bool,
    pub(super) active_hooks: u32,
    /// The fiber that called `Fiber.schedule`, until this one first parks: an error so early is raised there.
    pub(super) spawner: Option<Token>,
    /// State that few fibers have. It is in a box, so that a record has 128 bytes and is found in the table by a shift.
    rare: Option<Box<Rare>>,
}

/// State that few fibers have.
#[derive(Debug, Default)]
struct Rare {
    strand: Vec<StrandEntry>,
    /// What belongs to the fiber and not to its wait, the next one last.
    pending: Vec<Pending>,
    /// The fiber's own number, which no later fiber at its address has.
    fiber_number: u64,
}

impl FiberRecord {
    pub(super) fn new(fiber: ObjectRef, is_scheduled: bool, number: u32) -> Self {
        Self {
            fiber,
            born: number,
            wait: Wait::running(number),
            last_number: number,
            owner: None,
            queued: false,
            may_time_out: false,
            may_have_late_timeout: false,
            permit: false,
            is_scheduled,
            is_killed: false,
            is_cancelled: false,
            is_kill_suspected: false,
            runs_trap_handlers: false,
            active_hooks: 0,
            spawner: None,
            rare: None,
        }
    }

    /// The record of a slot without a fiber. No wait of a later fiber there has this number or an earlier one.
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

    /// In user code, and not in the ready queue: unless it has control, the VM suspends it in a way the scheduler does not see.
    pub fn is_suspended(&self) -> bool {
        !self.is_in_wait() && !self.queued
    }

    /// A number that no wait and no timeout of the slot has had.
    pub(super) fn next_number(&mut self) -> u32 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }

    /// A wait begins that goes on, or is over already and queued.
    pub(super) fn begin_wait(&mut self, purpose: Purpose, state: WaitState) {
        self.wait.number = self.next_number();
        self.wait.purpose = purpose;
        self.wait.state = state;
        self.spawner = None;
        self.queued = state != WaitState::Parked;
    }

    /// Whether the wait with this number went on until now: then it is over, and queued.
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

    /// The number under which it enters the ready queue without having parked; `None` if it is there.
    pub(super) fn queue(&mut self) -> Option<u32> {
        let was_queued = std::mem::replace(&mut self.queued, true);
        (!was_queued).then_some(self.wait.number)
    }

    /// Whether the entry of the ready queue with this number still stands.
    pub(super) fn is_queued_as(&self, number: u32) -> bool {
        self.queued && self.wait.number == number
    }

    /// It leaves the ready queue; false if the entry no longer stands.
    pub(super) fn dequeue(&mut self, number: u32) -> bool {
        let stands = self.is_queued_as(number);
        self.queued &= !stands;
        stands
    }

    /// The `block` or `kernel_sleep` that the fiber is about to begin is over already.
    pub fn grant_permit(&mut self) {
        self.permit |= !self.is_in_wait();
    }

    pub(super) fn take_permit(&mut self) -> bool {
        std::mem::take(&mut self.permit)
    }

    // --- what it raises ------------------------------------------------------------------------------------------

    /// What is to be raised, or how its wait has ended. Timeouts are [`FiberTable::take_status`]'s.
    ///
    /// [`FiberTable::take_status`]: crate::state::fiber_table::FiberTable::take_status
    pub(super) fn take_pending(&mut self) -> Option<Pending> {
        let exception = self.wait.exception.take().map(Pending::Raise);
        exception.or_else(|| self.rare.as_mut()?.pending.pop())
    }

    /// Keeps what was pending until the fiber has control in a wait that may end by it.
    pub fn put_back(&mut self, pending: Pending) {
        self.rare
            .get_or_insert_default()
            .pending
            .push(match pending {
                Pending::Raise(exception) => Pending::Late(exception),
                late => late,
            });
    }

    /// What is pending, the next one first.
    pub(super) fn all_pending(&self) -> impl Iterator<Item = Pending> + '_ {
        let exception = self.wait.exception.map(Pending::Raise);
        let own = self.rare.iter().flat_map(|rare| rare.pending.iter().rev());
        exception.into_iter().chain(own.copied())
    }

    /// It unwinds when it next gets control. Nothing else that is pending is raised then.
    pub(super) fn kill(&mut self) {
        self.wait.exception = None;
        self.rare.get_or_insert_default().pending = vec![Pending::Kill];
    }

    /// Whether it is one of the scheduler's, and no kill has reached it.
    pub fn may_be_killed(&self) -> bool {
        self.is_scheduled && !self.is_killed
    }

    /// The VM kills the fiber. Whether that was known before.
    pub fn mark_killed(&mut self) -> bool {
        std::mem::replace(&mut self.is_killed, true)
    }

    /// No timeout ends the wait of the fiber, which closes an IO.
    pub fn ignore_timeouts(&mut self) {
        self.wait.ignores_timeouts = true;
        self.may_have_late_timeout = true;
    }

    /// Whether it waits for an `unblock`, and for nothing else.
    pub fn waits_for_unblock_only(&self) -> bool {
        self.wait.is_unblock_only()
    }

    /// Whether the block of a timeout that is about to begin may be in a handler that is not known yet: not in the middle of a wait.
    pub fn may_begin_in_handler(&self) -> bool {
        !self.is_in_wait() && !self.is_in_handler()
    }

    /// How its wait has ended; `None` if it goes on.
    pub fn wake_cause(&self) -> Option<WakeCause> {
        match self.wait.state {
            WaitState::Woken(cause) => Some(cause),
            WaitState::Parked => None,
            WaitState::Running => Some(WakeCause::Interrupted),
        }
    }

    /// Whether a timeout that has expired may end its wait.
    pub(super) fn ends_by_timeout(&self) -> bool {
        self.may_time_out && !self.wait.ignores_timeouts
    }

    // --- its strand ----------------------------------------------------------------------------------------------

    /// The innermost last.
    pub(super) fn strand(&self) -> &[StrandEntry] {
        self.rare.as_ref().map_or(&[], |rare| &rare.strand)
    }

    pub(super) fn entries_mut(&mut self) -> &mut [StrandEntry] {
        self.rare.as_mut().map_or(&mut [], |rare| &mut rare.strand)
    }

    pub(super) fn push_entry(&mut self, entry: StrandEntry) {
        self.rare.get_or_insert_default().strand.push(entry);
    }

    pub(super) fn remove_entry(&mut self, place: usize) -> Option<StrandEntry> {
        let strand = &mut self.rare.as_mut()?.strand;
        match place + 1 == strand.len() {
            true => strand.pop(),
            false => Some(strand.remove(place)),
        }
    }

    /// Whether another fiber runs on behalf of this one.
    pub(super) fn has_resumed(&self) -> bool {
        let mut strand = self.strand().iter();
        strand.any(|entry| matches!(entry, StrandEntry::Resumed { .. }))
    }

    /// Whether the end of the innermost wait, or of a timeout, may end what covers another one.
    pub(super) fn may_uncover(&self) -> bool {
        let last = self.strand().last();
        last.is_some_and(|entry| !matches!(entry, StrandEntry::Timeout(_)))
    }

    /// Whether a trap handler or a finalizer is known to have interrupted a wait of the fiber, or its code.
    pub fn is_in_handler(&self) -> bool {
        self.strand().iter().any(StrandEntry::shields)
    }

    // --- its hooks -----------------------------------------------------------------------------------------------

    /// Whether it was the last hook of a fiber that the scheduler did not make. Then the record goes.
    pub(super) fn leave_hook(&mut self) -> bool {
        self.active_hooks = self.active_hooks.saturating_sub(1);
        self.active_hooks == 0 && !self.is_scheduled
    }

    /// A timeout of the fiber ends when the fiber is collected.
    pub(super) fn set_collectable(&mut self, number: u32, fiber_number: u64) {
        self.rare.get_or_insert_default().fiber_number = fiber_number;
        if let Some(timeout) = self.timeout_mut(number) {
            timeout.is_collectable = true;
        }
    }

    pub(super) fn timeout_mut(&mut self, number: u32) -> Option<&mut Timeout> {
        self.entries_mut().iter_mut().find_map(|entry| match entry {
            StrandEntry::Timeout(timeout) if timeout.number == number => Some(timeout),
            _ => None,
        })
    }

    /// Whether the fiber may be collected unless it has control. Its number, if so.
    ///
    /// It is one that the scheduler did not make, in which the blocks of timeouts run and no other hook: an Enumerator's that is
    /// suspended between two values, for example, which the program may drop. Once it has been collected, another fiber may get its
    /// address: its number tells them apart.
    ///
    /// | state                                     | what happens                        | the fiber is     | besides |
    /// |-------------------------------------------|-------------------------------------|------------------|---------|
    /// | running, in timeouts only, not queued     | another fiber has control           | not kept         | the record, its timeouts and its owner stay |
    /// | running, in timeouts only, not queued     | it has control                      | kept             | - |
    /// | not kept                                  | a hook begins in a fiber with its number | kept        | - |
    /// | not kept                                  | a hook begins in a fiber without it | not kept         | that fiber gets a record of its own |
    /// | not kept                                  | it is collected                     | -                | its timeouts end, and the record goes with the last one |
    ///
    /// A fiber without an owner raises its timeouts itself, so it is kept.
    pub(super) fn collectable(&self) -> Option<u64> {
        self.collectable_with(self.active_hooks)
    }

    /// Whether this was so before the hook that has just begun.
    pub(super) fn was_collectable(&self) -> bool {
        self.collectable_with(self.active_hooks - 1).is_some()
    }

    /// The fiber's number, if all of this many hooks are timeouts that can be collected.
    fn collectable_with(&self, hooks: u32) -> Option<u64> {
        let rare = self.rare.as_ref()?;
        let strand = rare.strand.iter();
        let timeouts = strand.filter(
            |entry| matches!(entry, StrandEntry::Timeout(timeout) if timeout.is_collectable),
        );
        let has_only_these = hooks > 0 && timeouts.count() == hooks as usize;
        (has_only_these && self.is_suspended() && self.owner.is_some()).then_some(rare.fiber_number)
    }
}

#[cfg(test)]
mod tests;
