//! A wait: its purpose, its state, and what is raised when it ends.
//!
//! | wait         | what happens                         | wait after          |
//! |--------------|--------------------------------------|---------------------|
//! | parked       | woken: readiness, time, work, `unblock`, an exception, a kill | woken with the cause |
//! | woken by its limit | readiness, work                | woken with that cause |
//! | woken otherwise | woken                             | unchanged           |
//! | any          | it ends                              | running, with a new number |

use std::time::Instant;

use reactor::{Ready, Token};

use crate::state::object_ref::ObjectRef;

/// The index of a fiber's record.
pub type Slot = u32;

/// The io number of a wait on several IO objects.
pub const SEVERAL: u64 = u64::MAX;

/// What a wait is for. The methods of [`Wait`] say which calls may end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Readiness of an IO object with Ruby's event mask, or of [`SEVERAL`]. The close of the IO ends it.
    Readiness { io_number: u64, events: u8 },
    /// Work in this process, on the descriptor of an IO object or none (0). The close of the IO ends it.
    Work { io_number: u64 },
    /// A send that the driver completes by the end of this turn. Only its completion or a cancellation ends it.
    Send,
    /// `block` and `kernel_sleep`. `unblock` ends it.
    Block {
        /// The address of the object that `block` waits for; 0 for none. Only compared.
        blocker: usize,
        sleeps: bool,
        has_limit: bool,
    },
}

impl Purpose {
    /// A wait that was not begun by a hook, and that an `unblock` ends.
    pub const ANY_UNBLOCK: Self = Self::Block {
        blocker: 0,
        sleeps: false,
        has_limit: true,
    };

    /// Whether only an `unblock`, a kill or a surrounding timeout ends it: not an event, and not a limit of its own.
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

/// The hook in which a fiber is parked: for observers, virtual time (`event_loop.rs`) and the deadlock check (in Ruby).
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

    /// The name of the statistic that counts fibers parked in this hook.
    pub fn waiting_name(self) -> &'static str {
        match self {
            Self::Io => "waiting_io",
            Self::Sleep => "waiting_sleep",
            Self::Block => "waiting_block",
            Self::Other => "waiting_other",
        }
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeCause {
    /// A descriptor is ready for this, or work is done.
    Ready(Ready),
    /// The wait's own limit elapsed.
    Elapsed,
    /// `unblock`.
    Unblocked,
    /// Something to raise is pending.
    Interrupted,
}

impl WakeCause {
    #[cfg(test)]
    pub const READABLE: Self = Self::Ready(Ready::READABLE);

    /// The readiness that ended the wait; `None` if something else did.
    pub fn answer(self) -> Option<Ready> {
        match self {
            Self::Ready(ready) => Some(ready),
            _ => None,
        }
    }
}

/// The state of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// Not waiting: the fiber is in user code, or suspended by a transfer that the scheduler did not make.
    Running,
    Parked,
    /// It has ended.
    Woken(WakeCause),
}

/// What a fiber raises or runs when it gets control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// Meant for the current wait, and dropped with it.
    Raise(ObjectRef),
    /// Meant for the fiber: a cancellation, or an exception that came in a wait that only its own completion may end.
    Late(ObjectRef),
    Kill,
    /// The thread's pending interrupts: see
    /// [`State::leave_interrupts_to_root`](crate::state::State::leave_interrupts_to_root).
    Interrupts,
}

/// The next step of a running fiber that polls its wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStatus {
    /// The wait continues.
    Waiting,
    Ended(WakeCause),
    Raise(Pending),
    /// A timeout has expired and is raised.
    TimedOut,
}

/// Identifies a fiber by its slot and by its wait number at creation. Later fibers in the slot have other numbers.
pub type FiberId = Token;

/// A wait of a fiber, or the code it runs between two waits.
#[derive(Debug)]
pub struct Wait {
    /// Unique per wait. Anything carrying an older number (late readiness, a stale wake-up) is dropped.
    pub number: u32,
    pub state: WaitState,
    /// Meaningless while the fiber runs.
    pub(super) purpose: Purpose,
    /// The exception meant for this wait, or `NONE`: an `Option` would make a fiber's record larger than 128 bytes.
    pub(super) exception: ObjectRef,
    /// The time of the poll before it parked.
    pub parked_at: Option<Instant>,
    /// Timeouts do not end it, because it closes an IO.
    pub ignores_timeouts: bool,
}

impl Wait {
    /// The state of a fiber that runs code.
    pub fn running(number: u32) -> Self {
        Self {
            number,
            state: WaitState::Running,
            purpose: Purpose::Send,
            exception: ObjectRef::NONE,
            parked_at: None,
            ignores_timeouts: false,
        }
    }

    /// Marks the wait as ended. Returns whether it was parked until now. An answer beats a limit that elapsed before the
    /// fiber ran.
    pub fn wake(&mut self, cause: WakeCause) -> bool {
        let is_parked = self.is_parked();
        let is_late =
            self.state == WaitState::Woken(WakeCause::Elapsed) && cause.answer().is_some();
        if is_parked || is_late {
            self.state = WaitState::Woken(cause);
        }
        is_parked
    }

    /// The exception meant for this wait.
    pub fn exception(&self) -> Option<ObjectRef> {
        (self.exception != ObjectRef::NONE).then_some(self.exception)
    }

    /// Whether what it waited for has come.
    pub fn is_answered(&self) -> bool {
        matches!(self.state, WaitState::Woken(cause) if cause != WakeCause::Interrupted)
    }

    pub fn is_parked(&self) -> bool {
        self.state == WaitState::Parked
    }

    /// Its purpose; `None` if the fiber runs.
    pub fn purpose(&self) -> Option<Purpose> {
        (self.state != WaitState::Running).then_some(self.purpose)
    }

    pub fn hook(&self) -> WaitHook {
        self.purpose().map_or(WaitHook::Other, Purpose::hook)
    }

    /// The number of the IO object it waits for; [`SEVERAL`], or 0 for none.
    pub fn io_number(&self) -> u64 {
        match self.purpose() {
            Some(Purpose::Readiness { io_number, .. } | Purpose::Work { io_number }) => io_number,
            Some(Purpose::Send | Purpose::Block { .. }) | None => 0,
        }
    }

    /// Ruby's mask of the events it waits for; 0 if none, or if it waits for several objects.
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

    /// Whether an exception for this IO object ends it.
    pub fn ends_by_exception_for(&self, io_number: u64) -> bool {
        self.is_parked() && self.is_for_io() && [io_number, SEVERAL].contains(&self.io_number())
    }

    /// Whether an exception for the fiber ends it.
    pub fn ends_by_exception(&self) -> bool {
        self.is_parked() && self.purpose != Purpose::Send
    }

    /// Whether it is for readiness of an IO object or work.
    pub fn is_for_io(&self) -> bool {
        matches!(
            self.purpose(),
            Some(Purpose::Readiness { .. } | Purpose::Work { .. })
        )
    }

    /// Whether an `unblock` may end it.
    pub fn is_block(&self) -> bool {
        self.is_parked() && matches!(self.purpose, Purpose::Block { .. })
    }

    /// Whether it waits for an `unblock` with this object as the blocker.
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
