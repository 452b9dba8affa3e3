//! A readiness-event loop that remembers.
//!
//! A [`Selector`] registers a descriptor once, remembers what the kernel said about it, and deregisters lazily: a wait
//! costs a system call only when that memory is silent. A [`Reactor`] adds timers and a [`Handle`] for other threads.
//! The kernel's part is a [`Driver`]: epoll, kqueue or IOCP through mio.
//!
//! ```
//! use std::{io::Write, os::{fd::AsRawFd, unix::net::UnixStream}};
//! use reactor::{Events, Identity, Interest, Reactor, Ready, Token, Wait};
//!
//! let (left, mut right) = UnixStream::pair()?;
//! left.set_nonblocking(true)?;
//!
//! let mut reactor = Reactor::open(None)?;
//! let (descriptor, mine) = (left.as_raw_fd(), Identity(1));
//! let token = Token::new(7, 0);
//! let Wait::Pending(wait) = reactor.wait(descriptor, mine, Interest::READABLE, token)? else {
//!     unreachable!("a socket is not always ready");
//! };
//!
//! right.write_all(b"hello")?;
//! let mut events = Events::default();
//! reactor.turn(&mut events, None)?;
//! assert_eq!(events[0].token, token);
//! assert_eq!(reactor.end(wait).answers(Interest::READABLE), Some(Interest::READABLE));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # How to wait
//!
//! Try first: make the non-blocking system call, and wait only when it says "would block". Tell the selector what the
//! call saw ([`Reactor::attempted`]); then the wait that follows costs no system call at all. After the wait, end it
//! ([`Reactor::end`]), whatever came of it. Say [`Reactor::forget`] before closing a descriptor.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod backend;
mod deadline;
pub mod driver;
mod event;
mod handle;
mod identity;
mod interest;
mod reactor;
pub mod registry;
mod selector;
mod table;
mod timers;
mod token;
mod waiters;

pub use crate::{
    backend::{Backend, Unavailable, UnknownBackend},
    deadline::{Deadline, InvalidSeconds, seconds, to_seconds},
    driver::{Descriptor, Driver, Wake, poll::poll_now},
    event::{Event, Events, Ready},
    handle::Handle,
    identity::Identity,
    interest::Interest,
    reactor::{Reactor, Sleep},
    registry::{Attempt, Knowledge, Known, Statistics, Wait},
    selector::Selector,
    timers::{TimerId, Timers},
    token::Token,
    waiters::WaitId,
};
