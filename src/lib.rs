//! A readiness-event loop with a memory.
//!
//! Most event loops ask the kernel to watch a descriptor each time somebody waits for it, and to stop afterwards. This
//! one registers a descriptor once, remembers per direction what the kernel said last and what the caller's own system
//! calls have seen since, and asks again only where that memory is silent.
//!
//! The crate is published as `reactor-loop` and used as `reactor`.
//!
//! # A turn
//!
//! ```
//! use std::{io::{Read, Write}, net::{TcpListener, TcpStream}, time::Duration};
//!
//! use reactor::{Deadline, Events, Interest, Reactor, Ready, Source, Token, Wait};
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let mut theirs = TcpStream::connect(listener.local_addr()?)?;
//! let (ours, _) = listener.accept()?;
//! ours.set_nonblocking(true)?;
//!
//! let mut reactor = Reactor::open(None)?;
//! let mut ours = Source::new(ours);
//!
//! // Whoever waits gives a token. Timers have tokens as well.
//! let reader = Token::new(1, 0);
//! let wait = ours.wait(&mut reactor, Interest::READABLE, reader)?;
//! let Wait::Pending(wait) = wait else { unreachable!("a socket can be waited for") };
//! let timer = reactor.timer(Deadline::after(Duration::from_secs(60)), Token::new(2, 0));
//!
//! theirs.write_all(b"hello")?;
//!
//! let mut events = Events::new();
//! while events.is_empty() {
//!     reactor.turn(&mut events, None)?;
//! }
//! assert_eq!(events[0].token, reader);
//!
//! // The wait is ended once, whether it was answered or not, and tells the answer.
//! assert!(reactor.end(wait).contains(Ready::READABLE));
//! reactor.cancel(timer);
//!
//! let mut buffer = [0; 64];
//! let count = ours.attempt(&mut reactor, Interest::READABLE, |stream| stream.read(&mut buffer))?;
//! assert_eq!(&buffer[..count], b"hello");
//! drop(ours.detach(&mut reactor));
//! # std::io::Result::Ok(())
//! ```
//!
//! # The parts
//!
//! - [`Interest`], [`Token`], [`Deadline`], [`Ready`], [`Event`], [`Events`]: the vocabulary.
//! - [`Driver`]: the port to a kernel interface, and the contract each one owes; [`Backend`] chooses one.
//! - [`Operation`]: what a driver may carry out by itself ([`Operations`]), many at a time with one system call.
//! - [`Source`]: a descriptor or socket, owned or borrowed, and who it is to the reactor.
//! - [`Selector`]: a driver and the memory.
//! - [`Timers`]: the deadline queue.
//! - [`Handle`]: what other threads hold.
//! - `Pool`: threads for work that may block.
//! - [`Reactor`]: all of it, turned together.
//!
//! # Rules for callers
//!
//! - **Try first.** Make the non-blocking system call, tell the selector what it saw ([`Source::attempt`],
//!   [`Reactor::attempted`]), and wait only when it would block. Readiness may be reported without reason; the system call
//!   decides.
//! - **End every wait.** [`Reactor::end`] is called once for each [`Wait::Pending`].
//! - **Say goodbye.** [`Source::detach`], or [`Reactor::deregister`] before a descriptor is closed. Without it things heal, but
//!   whoever waits for the descriptor hears of it only after 100 ms.
//! - **One thread.** Everything but [`Handle`], `Job` and [`Sleep`] belongs to one thread at a time, and to one process: it
//!   is `Send` and not `Sync`. What fork(2) copies must not be used by the child.
//! - **No panic.** A number that is no descriptor, a token of one's own choice, a wait that has ended, a timer that has
//!   elapsed, a duration without end: all of them have an answer, in the documentation of whatever takes them.
//!
//! # Descriptors
//!
//! [`Source`] holds whatever has a descriptor ([`AsDescriptor`]: `AsFd` on Unix, `AsSocket` on Windows): owned, borrowed or
//! shared, as its type says. The reactor itself never closes a descriptor of the caller's. Those who keep raw descriptors,
//! as the runtime of another language does, call [`Reactor::wait`] and its neighbours with the number and an [`OwnerId`]:
//! the number of the object that owns the descriptor, by which reuse of the descriptor's number is noticed. Both are safe
//! functions: a wrong number costs an error or an event too many, never memory.
//!
//! # Within other loops, and around them
//!
//! `Reactor::queue` (Unix) is a descriptor for another loop to poll; [`Reactor::sleep`] and [`Sleep::timeout`] tell it how
//! long to sleep. Another loop's descriptor is a [`Source`] like any other. `examples/loops` shows both, with tokio and with
//! epoll by hand; `examples/executor` is an async executor in less than 200 lines.
//!
//! # Features
//!
//! | feature | by default | what it adds |
//! |---------|------------|--------------|
//! | `pool`  | yes        | `Pool`: threads for work that may block. No dependency |
//! | `uring` | yes        | the io_uring driver, on Linux. Needs the crate `io-uring`; whether the kernel allows it is asked at run time |
//! | `mock`  | no         | `mock`: a scripted driver, for testing what stands on the reactor. No dependency |
//!
//! Without features the crate depends on mio (the platforms' queues) and, on Unix, on libc (ppoll, fstat, fcntl).
//!
//! # Platforms
//!
//! | platform | backend | notes |
//! |----------|---------|-------|
//! | Linux, Android | [`Backend::Epoll`] | sleeps to the nanosecond |
//! | Linux | [`Backend::Uring`] | on request, with the feature `uring`, where the kernel allows it |
//! | macOS, the BSDs | [`Backend::Kqueue`] | regular files count as always ready; no [`Interest::PRIORITY`] |
//! | Windows 10 and newer | [`Backend::Iocp`] | sockets only, see below |
//! | other Unix | [`Backend::Poll`] | poll(2) by mio: a system call looks at every descriptor, no queue to sleep on |
//!
//! `--cfg mio_unsupported_force_poll_poll` makes mio, and so the driver, use poll(2) wherever it is built: for tests.
//!
//! ## Windows
//!
//! mio polls sockets through the AFD driver and an I/O completion port. It wants to own what it polls: a socket of the
//! caller's is lent to it as one of its own types and taken back before that type is dropped, so it is never closed here.
//! After each event the socket is armed again by the next poll, which makes the port level-triggered: what nobody drains is
//! reported once more, and then let go.
//!
//! - Only sockets can be waited for. A named pipe cannot: mio reads it ahead into buffers of its own, so it has to own the
//!   handle and make the reads, which a borrowed number does not allow. Pipes, files and consoles are work for the `Pool`.
//! - The driver has no descriptor: [`Sleep::block`] is unsupported, [`Reactor::turn`] sleeps in the poll, to the millisecond.
//! - [`Interest::PRIORITY`] is unsupported.
//!
//! # Unsafe code
//!
//! Denied but for the system calls of the drivers and of the pool. `tests/unsafe_code.rs` counts it, file by file, and says
//! what for; each item has a SAFETY comment.
//!
//! # Versions
//!
//! Rust 1.85 is the oldest that compiles it; a newer one is required only with a new minor version.

#![deny(unsafe_code, missing_docs)]

mod backend;
mod deadline;
mod descriptor;
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
    descriptor::{Descriptor, poll_now},
    driver::{Driver, Operations, Registration, Reregistration, Unavailable, Wake},
    event::{Event, Events, Ready},
    handle::Handle,
    interest::Interest,
    operation::{Operation, OperationId},
    reactor::{Reactor, Sleep},
    registry::{Attempt, CachedReadiness, DescriptorReadiness, OwnerId, Statistics, Wait, WaitId},
    selector::Selector,
    source::{AsDescriptor, Source},
    timers::{TimerId, Timers},
    token::Token,
};

#[cfg(feature = "pool")]
pub use crate::pool::{
    Job, Limits, Outcome, Pool, PoolStatistics, Refused, WorkClass, lengthen_time_slice,
};

#[cfg(any(test, feature = "mock"))]
pub use crate::driver::mock;
