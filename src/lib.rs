//! A readiness-event loop with a memory.
//!
//! Most event loops ask the kernel to watch a descriptor each time somebody waits for it, and to stop afterwards. This
//! one registers a descriptor once, remembers per direction what the kernel said last and what the caller's own system
//! calls have seen since, and asks again only where that memory is silent.
//!
//! # A turn
//!
//! ```
//! # #[cfg(unix)]
//! # fn main() -> std::io::Result<()> {
//! use std::{io::Write, os::fd::AsRawFd, os::unix::net::UnixStream, time::Duration};
//!
//! use reactor::{Deadline, Events, Identity, Interest, Reactor, Ready, Token, Wait};
//!
//! let mut reactor = Reactor::open(None)?;
//! let (ours, mut theirs) = UnixStream::pair()?;
//!
//! // Whoever waits gives a token. The identity says which object the descriptor belongs to.
//! let reader = Token::new(1, 0);
//! let wait = reactor.wait(ours.as_raw_fd(), Identity(1), Interest::READABLE, reader)?;
//! let Wait::Pending(wait) = wait else { unreachable!("a socket can be polled") };
//! let timer = reactor.timer(Deadline::after(Duration::from_secs(60)), Token::new(2, 0));
//!
//! theirs.write_all(b"hello")?;
//!
//! let mut events = Events::new();
//! reactor.turn(&mut events, None)?;
//! assert_eq!(events[0].token, reader);
//!
//! // The wait is ended once, whether it was answered or not, and tells the answer.
//! assert_eq!(reactor.end(wait), Ready::READABLE);
//! reactor.cancel(timer);
//! reactor.forget(ours.as_raw_fd());
//! # Ok(())
//! # }
//! # #[cfg(not(unix))]
//! # fn main() {}
//! ```
//!
//! # The parts
//!
//! - [`Interest`], [`Token`], [`Deadline`], [`Ready`], [`Event`], [`Events`]: the vocabulary.
//! - [`Driver`]: the port to a kernel interface, and the contract each one owes; [`Backend`] chooses one.
//! - [`Operation`]: what a driver may carry out by itself ([`Operations`]), many at a time with one system call.
//! - [`Selector`]: a driver and the memory.
//! - [`Timers`]: the deadline queue.
//! - [`Handle`]: what other threads hold.
//! - [`Pool`]: threads for work that may block.
//! - [`Reactor`]: all of it, turned together.
//!
//! # Rules for callers
//!
//! - **Try first.** Make the non-blocking system call, tell the selector what it saw ([`Reactor::attempted`]), and wait
//!   only when it would block. Readiness may be reported without reason; the system call decides.
//! - **End every wait.** [`Reactor::end`] is called once for each [`Wait::Pending`].
//! - **Say goodbye.** [`Reactor::forget`] before a descriptor is closed. Without it things heal, but only after 100 ms.
//! - **One thread.** Everything but [`Handle`], [`Job`] and [`Sleep`] belongs to one thread at a time, and to one process.
//!
//! # Platforms
//!
//! epoll(7) on Linux and Android, kqueue(2) on macOS and the BSDs, IOCP on Windows (sockets only), all through mio; and
//! io_uring(7) on Linux, with the feature `uring`, where the kernel allows it.

#![deny(unsafe_code, missing_docs)]

mod backend;
mod deadline;
mod driver;
mod event;
mod handle;
mod interest;
mod operation;
#[cfg(feature = "pool")]
mod pool;
mod reactor;
mod registry;
mod selector;
mod source;
mod timers;
mod token;

pub use crate::{
    backend::{Backend, UnknownBackend},
    deadline::{Deadline, InvalidSeconds, seconds, to_seconds},
    driver::{
        Descriptor, Driver, Operations, Registration, Renewal, Unavailable, Wake, poll::poll_now,
    },
    event::{Event, Events, Ready},
    handle::Handle,
    interest::Interest,
    operation::{Operation, OperationId},
    reactor::{Reactor, Sleep},
    registry::{Attempt, Identity, Knowledge, Known, Statistics, Wait, WaitId},
    selector::Selector,
    source::{AsDescriptor, Source},
    timers::{TimerId, Timers},
    token::Token,
};

#[cfg(feature = "pool")]
pub use crate::pool::{Job, Limits, Outcome, Pace, Pool, PoolStatistics, Refused};

#[cfg(any(test, feature = "mock"))]
pub use crate::driver::mock;
