//! A readiness-event loop that caches what the kernel has reported.
//!
//! Most event loops register a descriptor with the kernel for each wait and deregister it afterwards. This one
//! registers a descriptor once, caches for each direction what the kernel last reported and what the caller's own
//! system calls have found since, and makes a system call only if the cache has no answer.
//!
//! The package is called `reactor-loop`; the crate in it, `reactor`.
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
//! // Each wait and each timer has a token, which its event carries.
//! let reader = Token::new(1, 0);
//! let wait = ours.wait(&mut reactor, Interest::READABLE, reader)?;
//! assert!(matches!(wait, Wait::Pending(_)), "a socket can be waited for");
//! let timer = reactor.timer(Deadline::after(Duration::from_secs(60)), Token::new(2, 0));
//!
//! theirs.write_all(b"hello")?;
//!
//! let mut events = Events::new();
//! while events.is_empty() {
//!     reactor.turn(&mut events, None)?;
//! }
//! // An event ends its wait or timer. What has had none can be cancelled.
//! assert_eq!(events[0].token, reader);
//! assert!(events[0].ready.contains(Ready::READABLE));
//! assert!(reactor.cancel(timer));
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
//! - [`Source`]: an owned or borrowed descriptor or socket, with its [`OwnerId`].
//! - [`Reactor`]: waits for sources, timers, notifications and the pool's jobs in one loop, on a [`Backend`].
//! - [`Sleep`]: the half of a turn that blocks.
//! - [`Handle`]: the part of a reactor for other threads.
//! - `pool`: threads for work that may block.
//!
//! # Rules for callers
//!
//! - **Try first.** Make the non-blocking system call, report its outcome ([`Source::attempt`],
//!   [`Reactor::attempted`]), and wait only if it would have blocked. Readiness may be spurious: the next call may
//!   still block.
//! - **End what you give up.** A wait ends with its event; one that is no longer needed, by [`Reactor::end`].
//! - **Deregister.** Call [`Source::detach`], or [`Reactor::deregister`], before closing a descriptor. Otherwise its
//!   waits are answered only when they are next re-armed, after 100 to 200 ms, and after up to 25.6 s if they have lasted
//!   longer, or when another owner waits for the same number. kqueue, IOCP and poll(2) may not tell that a number has
//!   another file: such waits may then be answered only when that file is ready.
//! - **One thread.** A [`Reactor`] may be used by only one thread at a time, in one process: it is `Send` and not `Sync`. Other
//!   threads may use a [`Handle`], a job of the pool and a [`Sleep`]. A child of fork(2) must not use its copies.
//! - **No panics.** Invalid descriptors, unknown tokens, waits that have ended, timers that have elapsed and infinite
//!   durations are accepted. Each method documents what happens then.
//!
//! # Descriptors
//!
//! [`Source`] holds any type that has a descriptor ([`AsDescriptor`]: `AsFd` on Unix, `AsSocket` on Windows), owned,
//! borrowed or shared. The reactor never closes a caller's descriptor. Language runtimes that keep raw descriptors call
//! [`Reactor::wait`] and related methods with the descriptor and an [`OwnerId`], by which the reactor notices that a
//! descriptor number was reused. These functions are safe: a wrong number causes an error or a spurious event, never
//! undefined behaviour.
//!
//! # Connecting without blocking
//!
//! Start to connect a non-blocking socket. If the call would block, wait for [`Interest::WRITABLE`], then ask the socket for its
//! error. The standard library cannot start a connect; this uses rustix.
//!
//! ```
//! # #[cfg(unix)] {
//! use std::net::{TcpListener, TcpStream};
//!
//! use reactor::{Events, Interest, Reactor, Source, Token};
//! use rustix::{io::Errno, net::{self, AddressFamily, SocketType}};
//!
//! # let listener = TcpListener::bind("127.0.0.1:0")?;
//! # let address = listener.local_addr()?;
//! let stream = TcpStream::from(net::socket(AddressFamily::INET, SocketType::STREAM, None)?);
//! stream.set_nonblocking(true)?;
//! let stream = Source::new(stream);
//! match net::connect(stream.get_ref(), &address) {
//!     Ok(()) => {} // over a UNIX socket, and sometimes within the machine
//!     Err(Errno::INPROGRESS) => {
//!         let mut reactor = Reactor::open(None)?;
//!         let mut events = Events::new();
//!         _ = stream.wait(&mut reactor, Interest::WRITABLE, Token::new(1, 0))?;
//!         while events.is_empty() {
//!             reactor.turn(&mut events, None)?; // or a timer's event: it takes too long
//!         }
//!         if let Some(error) = stream.get_ref().take_error()? {
//!             return Err(error);
//!         }
//!     }
//!     Err(error) => return Err(error.into()),
//! }
//! assert_eq!(stream.get_ref().peer_addr()?, address);
//! # }
//! # std::io::Result::Ok(())
//! ```
//!
//! # Inside another loop, and around one
//!
//! `Reactor::queue` (Unix) is a descriptor for another loop to poll. [`Reactor::sleep`] and [`Sleep::timeout`] say how
//! long that loop may sleep. Conversely, another loop's descriptor can be a [`Source`]. `examples/loops` shows both,
//! with tokio and with raw epoll; `examples/executor` is an async executor in some 200 lines.
//!
//! # Features
//!
//! | feature | by default | adds |
//! |---------|------------|------|
//! | `pool`  | yes        | the module `pool`: threads for work that may block. No dependency |
//! | `uring` | yes        | the io_uring driver, on Linux. Depends on the crate `io-uring`. Checks at run time whether the kernel allows it |
//! | `unstable` | no      | drivers of one's own, operations of the ring, cached readiness, counters, a frozen clock. It may change in any version |
//!
//! Without features, the crate depends on mio (the platforms' queues), slab and, on Unix, libc (ppoll, fstat, fcntl).
//!
//! # Platforms
//!
//! | platform | backend | notes |
//! |----------|---------|-------|
//! | Linux, Android | [`Backend::Epoll`] | sleeps with 1 ns resolution |
//! | Linux | [`Backend::Uring`] | on request, with the feature `uring`, where the kernel allows it |
//! | macOS, the BSDs | [`Backend::Kqueue`] | regular files are always ready; no [`Interest::PRIORITY`] |
//! | Windows 10 and newer | [`Backend::Iocp`] | sockets only, see below |
//! | every Unix | [`Backend::Poll`] | on request; without a descriptor ([`Sleep::block`] polls the sockets); a poll costs as much as there are registered descriptors |
//!
//! ## Windows
//!
//! mio polls sockets through the AFD driver and an I/O completion port, and owns the sockets it polls. The driver wraps
//! a caller's socket in one of mio's types and unwraps it before that type is dropped, so the socket is never closed
//! here. mio disarms a socket with each event, and the next poll or sleep re-arms it. The driver is therefore
//! level-triggered: a direction that stays ready while no wait asks for it is reported twice, and then its registration
//! ends.
//!
//! - Only sockets can be waited for. mio reads ahead from named pipes into its own buffers, so it would have to own the
//!   pipe's handle and make all reads. Use the `Pool` for pipes, files and consoles.
//! - The driver has no descriptor: [`Sleep::block`] polls the port, and the next [`Reactor::collect`] reports its
//!   events.
//! - Like thread sleeps, sleeps end on a tick of the system clock, 15.6 ms by default. Windows may end a wait up to one
//!   tick early ("Wait Functions and Time-out Intervals"); the driver then keeps waiting. Finer timers would need
//!   packets posted to the port by the undocumented `NtAssociateWaitCompletionPacket` (used by Go since 1.23), and mio
//!   owns the port.
//! - [`Interest::PRIORITY`] is unsupported.
//!
//! # Unsafe code
//!
//! Unsafe code is denied except for the system calls of the drivers, the pool and `descriptor`. `tests/unsafe_code.rs`
//! counts it per file and gives the reasons. Each use has a SAFETY comment.
//!
//! # Versions
//!
//! The minimum supported Rust version is 1.85. It is raised only in a new minor version.

#![deny(unsafe_code, missing_docs)]
// Nothing else calls operations and counters.
#![cfg_attr(not(feature = "unstable"), allow(dead_code, unused_imports))]

mod backend;
mod deadline;
mod descriptor;
mod driver;
mod event;
mod handle;
mod histogram;
mod interest;
mod operation;
#[cfg(feature = "pool")]
pub mod pool;
mod reactor;
mod registry;
mod source;
mod timers;
mod token;

// tests/model compiles the crate with loom's locks and threads under these names.
#[cfg_attr(reactor_model, path = "../tests/model/sync.rs")]
mod sync;

pub use crate::{
    backend::Backend,
    deadline::Deadline,
    descriptor::{Descriptor, poll_now},
    driver::Unavailable,
    event::{Event, Events, Ready},
    handle::Handle,
    interest::Interest,
    reactor::{Reactor, Sleep},
    registry::{Attempt, OwnerId, Wait, WaitId},
    source::{AsDescriptor, Source},
    timers::TimerId,
    token::Token,
};

#[cfg(feature = "unstable")]
pub use crate::{
    driver::{Driver, Operations, Registration, Wake},
    histogram::Histogram,
    operation::{Operation, OperationId},
    reactor::TurnTimes,
    registry::{CachedReadiness, DescriptorReadiness, Statistics},
    timers::Timers,
};

#[cfg(reactor_model)]
pub use crate::sync::control;

#[cfg(doctest)]
#[doc = include_str!("../docs/crate.md")]
struct Readme;
