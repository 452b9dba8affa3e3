//! The vocabulary of a wait: what for, in which hook, what ended it, and what is raised at its end.

use crate::state::object_ref::ObjectRef;

/// The io number of a wait for several IO objects.
pub const SEVERAL: u64 = u64::MAX;

/// The kind of a wait. It decides which calls may end the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// Readiness of descriptors, or work on one. `fiber_interrupt` ends it, `unblock` does not.
    Io,
    /// `block` and `kernel_sleep`. `unblock` ends it.
    Block,
    /// A send that the driver carries out by the end of this turn. Neither `unblock` nor `fiber_interrupt` ends it.
    Send,
}

/// The hook a fiber is parked in, for observers. No decision of the scheduler depends on it but that of virtual time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitHook {
    #[default]
    Other,
    /// `io_wait`, `io_read`, `io_write`, `io_select`.
    Io,
    /// `kernel_sleep`.
    Sleep,
    /// `block`.
    Block,
}

impl WaitHook {
    pub const ALL: [Self; 4] = [Self::Io, Self::Sleep, Self::Block, Self::Other];

    pub fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Sleep => "sleep",
            Self::Block => "block",
            Self::Other => "other",
        }
    }

    /// The statistic that counts the fibers parked in it.
    pub fn waiting_name(self) -> &'static str {
        match self {
            Self::Io => "waiting_io",
            Self::Sleep => "waiting_sleep",
            Self::Block => "waiting_block",
            Self::Other => "waiting_other",
        }
    }
}

/// The cause of a wait's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeCause {
    /// A descriptor is ready. The reactor tells for which direction.
    Ready,
    /// The wait's own time is up.
    Elapsed,
    /// `unblock`.
    Unblocked,
    /// Something to raise is pending.
    Interrupted,
}

/// What a fiber raises or runs when it gets control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    Raise(ObjectRef),
    /// A raise that no wait drops: it was meant for one that nothing but its own end may end.
    Late(ObjectRef),
    Kill,
    /// What is pending for the thread: see [`State::leave_interrupts_to_root`](crate::state::State::leave_interrupts_to_root).
    Interrupts,
}

/// The next step of a fiber that has control and looks at its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStatus {
    /// The wait goes on.
    Waiting,
    Over(WakeCause),
    Raise(Pending),
    /// A timeout has fired, and is raised.
    TimedOut,
}

impl WaitStatus {
    /// The fiber has no record, so it has nothing to wait for.
    pub const UNKNOWN: Self = Self::Over(WakeCause::Unblocked);
}

/// A fiber that may have ended since: the next one in its slot has another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    pub slot: u32,
    pub number: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FiberState {
    /// In user code, or suspended by a transfer that the scheduler did not make.
    Running,
    Parked(WaitKind),
    /// Its wait is over and it is in the ready queue.
    Woken(WakeCause),
}

/// How a kill reaches a fiber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillStep {
    /// It unwinds when it next gets control. The wait with this number ends for it, if there is one.
    Pending(Option<u32>),
    /// It is not parked: `Fiber#kill` has to find the way.
    ThroughVm,
}
