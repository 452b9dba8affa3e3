//! The strand of a fiber: what is around its innermost wait, the innermost last. `fiber_table/strands.rs` moves the entries.
//!
//! A trap handler, or a finalizer that the VM runs by itself, may run in the middle of a fiber's wait, and wait itself. Then the wait
//! around it is *covered*: it moves into the strand, and what comes for it (readiness, its time, an `unblock`, an exception) is noted
//! there. It is the innermost wait again when the handler's own has ended. Blocks of timeouts are in the strand as well, so that it
//! tells which of them are around which wait; and so are the fibers that run on behalf of this one.
//!
//! | what happens                          | strand                                  | innermost wait                  | besides |
//! |---------------------------------------|-----------------------------------------|---------------------------------|---------|
//! | a wait begins in the middle of another | the other is the last entry            | the one that begins             | the fiber is not queued |
//! | the block of a timeout begins there   | the wait, then the timeout              | none: code runs                 | - |
//! | a hook is found to be a handler's, and to be in the middle of no wait | the last entry is *code* | unchanged | found because the VM lets a handler lock no mutex |
//! | the innermost wait or timeout ends, and the last entry that is no fiber is a wait | without it   | that one                        | not queued; with what was noted |
//! | the same, and the last entry is code  | without it                              | none: the code goes on          | - |
//! | the fiber resumes another one, in which a hook begins | that fiber is the last entry | unchanged                  | - |
//!
//! | what happens                          | state of the entry                      | besides |
//! |---------------------------------------|-----------------------------------------|---------|
//! | a covered wait is woken by its token  | over, with the cause                    | the fiber is not queued |
//! | an `unblock` with its blocker         | over                                    | - |
//! | an `unblock` whose blocker is no wait's | over                                  | the innermost wait as well |
//! | an `unblock` that names the thread    | over, unless it is a sleep with a limit | the innermost wait as well |
//! | an exception is raised in one for readiness or work | over                      | it is raised when the wait goes on, before a late one |
//! | the time of a timeout is up           | expired                                 | the fiber is queued, unless a wait or code stands after the timeout; its wait goes on until the fiber raises it |
//! | an expired timeout is raised          | raised                                  | it does not expire again |
//! | a timeout of a suspended Enumerator expires | expired                           | it counts as one of the fiber that has resumed it, at its place there |
//! | the block of a timeout ends           | -                                       | nothing is raised after it |
//!
//! A handler in the middle of this fiber's wait may resume another fiber, which parks. Until that fiber returns, this one gets no
//! control, even if its wait is over. It polls its wait when the handler has ended.

use reactor::TimerId;

use crate::state::{
    object_ref::ObjectRef,
    wait::{Slot, Wait},
};

#[derive(Debug)]
pub enum StrandEntry {
    /// A wait in the middle of which something has begun.
    Wait(Box<Wait>),
    /// Code that a trap handler or a finalizer has interrupted. It goes on when the entry above it, or the innermost wait, has ended.
    Code,
    Timeout(Timeout),
    /// A fiber that runs on behalf of this one, and the number that this one's wait, or code, had when it resumed that fiber.
    Resumed {
        fiber: Slot,
        during: u32,
    },
}

impl StrandEntry {
    /// Whether timeouts before it in the strand are not raised after it.
    pub fn shields(&self) -> bool {
        matches!(self, Self::Wait(_) | Self::Code)
    }
}

/// The exception (an object or a class) and the message that an expired timeout raises.
pub type TimeoutError = (ObjectRef, ObjectRef);

/// The block of a timeout.
#[derive(Debug)]
pub struct Timeout {
    /// From the same counter as the numbers of the fiber's waits.
    pub number: u32,
    pub raise: TimeoutError,
    pub timer: Option<TimerId>,
    pub progress: TimeoutProgress,
    /// It ends when the garbage collector takes the fiber.
    pub is_collectable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutProgress {
    Running,
    Expired,
    Raised,
}
