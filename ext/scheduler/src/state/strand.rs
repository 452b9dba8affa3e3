//! A fiber's strand: what surrounds its innermost wait, innermost last. `fiber_table/strands.rs` moves the entries.
//!
//! A trap handler, or a finalizer run by the VM, may run during a fiber's wait and itself wait. The wait around it is
//! then *covered*: it moves to the strand, and whatever arrives for it (readiness, a timer, an `unblock`, an exception)
//! is recorded there. It becomes the innermost wait again when the handler's own has ended. Timeout blocks are in the
//! strand too, and their position shows which waits they surround. The fibers that run for this one are in it as well.
//!
//! | what happens                          | strand                                  | innermost wait                  | besides |
//! |---------------------------------------|-----------------------------------------|---------------------------------|---------|
//! | a wait begins during another          | the other is the last entry             | the new one                     | the fiber is not queued |
//! | a timeout block begins during a wait  | the wait, then the timeout              | none: code runs                 | - |
//! | a hook turns out to be in a handler that runs during no wait | the last entry is *code* | unchanged             | recognised because the VM lets a handler lock no mutex |
//! | the innermost wait or timeout ends, and the last entry that is not a fiber is a wait | without it | that wait         | not queued; with whatever was recorded |
//! | the same, and the last entry is code  | without it                              | none: the code continues        | - |
//! | the fiber resumes another one, in which a hook begins | that fiber is the last entry | unchanged                  | - |
//!
//! | what happens                          | state of the entry                      | besides |
//! |---------------------------------------|-----------------------------------------|---------|
//! | a covered wait is woken by its token  | woken, with the cause                   | the fiber is not queued |
//! | an `unblock` with its blocker         | woken                                   | - |
//! | an `unblock` whose blocker matches no wait | woken                              | the innermost wait as well |
//! | an `unblock` that names the thread    | woken, unless it is a sleep with a limit | the innermost wait as well |
//! | an exception is raised in a wait for readiness or work | woken                  | raised when the wait is uncovered, before a late one |
//! | the time of a timeout elapses         | expired                                 | the fiber is queued, unless a wait or code follows the timeout; its wait stays parked until the fiber raises it |
//! | an expired timeout is raised          | raised                                  | it does not expire again |
//! | a timeout of a suspended Enumerator expires | expired                           | it counts as one of the fiber that resumed it, at that position |
//! | the block of a timeout ends           | -                                       | nothing is raised after it |
//!
//! A handler that runs during this fiber's wait may resume another fiber, which then parks. Until the resumed fiber
//! returns, this fiber does not run, even if its wait has ended. This fiber polls its wait once the handler has ended.

use reactor::TimerId;

use crate::state::{
    object_ref::ObjectRef,
    wait::{Slot, Wait},
};

#[derive(Debug)]
pub enum StrandEntry {
    /// A wait during which something has begun.
    Wait(Box<Wait>),
    /// Code that a trap handler or finalizer has interrupted. It continues when the entry above it, or the innermost wait,
    /// has ended.
    Code,
    Timeout(Timeout),
    /// A fiber that runs for this one, and the number of the wait, or code, of this fiber when it resumed that one.
    Resumed {
        fiber: Slot,
        during: u32,
    },
}

impl StrandEntry {
    /// Whether this entry keeps timeouts that precede it in the strand from being raised in waits that follow it.
    pub fn shields(&self) -> bool {
        matches!(self, Self::Wait(_) | Self::Code)
    }
}

/// What an expired timeout raises: an exception (object or class) and a message.
pub type TimeoutError = (ObjectRef, ObjectRef);

/// The block of a timeout.
#[derive(Debug)]
pub struct Timeout {
    /// Taken from the same counter as the fiber's wait numbers.
    pub number: u32,
    pub raise: TimeoutError,
    pub timer: Option<TimerId>,
    pub progress: TimeoutProgress,
    /// The wait that it does not end: it had been answered when it expired, or is in a clause of another ending.
    pub spares: Option<u32>,
    /// It ends when the garbage collector frees the fiber.
    pub is_collectable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutProgress {
    Running,
    Expired,
    Raised,
}
