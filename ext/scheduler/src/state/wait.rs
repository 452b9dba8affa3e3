//! A wait: what it is for, how far it is, and what is raised at its end.
//!
//! | wait         | what happens                         | wait after          |
//! |--------------|--------------------------------------|---------------------|
//! | parked       | woken: readiness, time, work, `unblock`, an exception, a kill | woken with the cause |
//! | woken        | woken                                | unchanged           |
//! | any          | it ends                              | running, with a new number |

use std::time::Instant;

use reactor::Token;

use crate::state::object_ref::ObjectRef;

/// Index of a fiber's record.
pub type Slot = u32;

/// The io number of a wait for several IO objects.
pub const SEVERAL: u64 = u64::MAX;

/// What a wait is for. The methods of [`Wait`] say which calls may end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Readiness of an IO object, with Ruby's mask of events, or of [`SEVERAL`]. `fiber_interrupt` ends it.
    Readiness { io_number: u64, events: u8 },
    /// Work in this process, on the descriptor of an IO object or on none (0). `fiber_interrupt` ends it.
    Work { io_number: u64 },
    /// A send that the driver carries out by the end of this turn. Only its own end or a kill ends it.
    Send,
    /// `block` and `kernel_sleep`. `unblock` ends it.
    Block {
        /// The address of what `block` waits for; 0 for none. It is only compared.
        blocker: usize,
        sleeps: bool,
        has_limit: bool,
    },
}

impl Purpose {
    /// A wait that no hook begins, and that an `unblock` ends.
    pub const ANY_UNBLOCK: Self = Self::Block {
        blocker: 0,
        sleeps: false,
        has_limit: true,
    };

    /// Whether neither an event nor a time of its own ends it: only an `unblock`, a kill or a timeout around it.
    pub fn is_unblock_only(self) -> bool {
        match self {
            Self::Block { has_limit, .. } => !has_limit,
            _ => false,
        }
    }

    fn hook(self) -> WaitHook {
        match self {
            Self::Readiness { .. } => WaitHook::Io,
            Self::Work { .. } | Self::Send => WaitHook::Other,
            Self::Block { sleeps: true, .. } => WaitHook::Sleep,
            Self::Block { sleeps: false, .. } => WaitHook::Block,
        }
    }
}

/// The hook a fiber is parked in, for observers, for virtual time (`event_loop.rs`) and for the search for deadlocks (in Ruby).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitHook {
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
        self.waiting_name().trim_start_matches("waiting_")
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
    /// A descriptor is ready (the reactor tells for which direction), or work is done.
    Ready,
    /// The wait's own time is up.
    Elapsed,
    /// `unblock`.
    Unblocked,
    /// Something to raise is pending.
    Interrupted,
}

/// How far a wait is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// There is none: the fiber is in user code, or suspended by a transfer that the scheduler did not make.
    Running,
    Parked,
    /// It is over.
    Woken(WakeCause),
}

/// What a fiber raises or runs when it gets control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// Meant for the wait that goes on, and dropped with it.
    Raise(ObjectRef),
    /// Meant for a wait that only its own end may end, and kept for a later one.
    Late(ObjectRef),
    Kill,
    /// What is pending for the thread: see [`State::leave_interrupts_to_root`](crate::state::State::leave_interrupts_to_root).
    Interrupts,
}

/// The next step of a fiber that has control and polls its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStatus {
    /// The wait goes on.
    Waiting,
    Over(WakeCause),
    Raise(Pending),
    /// A timeout has expired, and is raised.
    TimedOut,
}

/// A fiber, by its slot and the wait number with which it began. A later fiber in the slot has another one.
pub type FiberId = Token;

/// A wait of a fiber, or the fiber's code that runs between two waits.
#[derive(Debug)]
pub struct Wait {
    /// Every wait has one. What carries an older one (late readiness, a stale wake-up) is dropped.
    pub number: u32,
    pub state: WaitState,
    /// Of no meaning while the fiber runs.
    pub(super) purpose: Purpose,
    /// The one that is meant for this wait.
    pub exception: Option<ObjectRef>,
    /// The poll before it parked.
    pub parked_at: Option<Instant>,
    /// No timeout ends it, because it closes an IO.
    pub ignores_timeouts: bool,
}

impl Wait {
    /// The code of a fiber that runs.
    pub fn running(number: u32) -> Self {
        Self {
            number,
            state: WaitState::Running,
            purpose: Purpose::Send,
            exception: None,
            parked_at: None,
            ignores_timeouts: false,
        }
    }

    /// Marks it as over. Returns true if it went on until now.
    pub fn wake(&mut self, cause: WakeCause) -> bool {
        let goes_on = self.goes_on();
        if goes_on {
            self.state = WaitState::Woken(cause);
        }
        goes_on
    }

    pub fn goes_on(&self) -> bool {
        self.state == WaitState::Parked
    }

    /// What it is for; `None` if the fiber runs.
    pub fn purpose(&self) -> Option<Purpose> {
        (self.state != WaitState::Running).then_some(self.purpose)
    }

    pub fn hook(&self) -> WaitHook {
        self.purpose().map_or(WaitHook::Other, Purpose::hook)
    }

    /// The IO object it waits for; [`SEVERAL`], or 0 for none.
    pub fn io_number(&self) -> u64 {
        match self.purpose() {
            Some(Purpose::Readiness { io_number, .. } | Purpose::Work { io_number }) => io_number,
            Some(Purpose::Send | Purpose::Block { .. }) | None => 0,
        }
    }

    /// Ruby's mask of the events it waits for; 0 if it waits for none, or for several objects.
    pub fn events(&self) -> u8 {
        match self.purpose() {
            Some(Purpose::Readiness { events, .. }) => events,
            _ => 0,
        }
    }

    /// See [`Purpose::is_unblock_only`].
    pub fn is_unblock_only(&self) -> bool {
        self.purpose().is_some_and(Purpose::is_unblock_only)
    }

    /// Whether an exception for this IO object (0: for any) ends it.
    pub fn ends_by_exception_for(&self, io_number: u64) -> bool {
        let number = match self.purpose {
            Purpose::Readiness { io_number, .. } | Purpose::Work { io_number } => io_number,
            Purpose::Send | Purpose::Block { .. } => return false,
        };
        self.goes_on() && (io_number == 0 || [io_number, SEVERAL].contains(&number))
    }

    /// Whether an `unblock` may end it.
    pub fn is_block(&self) -> bool {
        self.goes_on() && matches!(self.purpose, Purpose::Block { .. })
    }

    /// Whether it is one for this object, if it is one for an `unblock`.
    pub fn is_blocked_by(&self, object: usize) -> bool {
        matches!(self.purpose, Purpose::Block { blocker, .. } if blocker == object)
    }

    /// Whether it is a sleep that ends by itself.
    pub fn sleeps_with_limit(&self) -> bool {
        let sleep = |purpose| {
            matches!(
                purpose,
                Purpose::Block {
                    sleeps: true,
                    has_limit: true,
                    ..
                }
            )
        };
        self.purpose().is_some_and(sleep)
    }
}
