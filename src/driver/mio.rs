//! The mio driver: epoll(7), kqueue(2) or AFD over IOCP, whichever the platform has.
//!
//! Only this file and those in driver/mio/ name the crate mio.

#![allow(unsafe_code)]

#[cfg_attr(unix, path = "mio/queue_unix.rs")]
#[cfg_attr(windows, path = "mio/queue_windows.rs")]
mod queue;
#[cfg_attr(unix, path = "mio/sources_unix.rs")]
#[cfg_attr(windows, path = "mio/sources_windows.rs")]
mod sources;

use std::{io, sync::Arc, time::Duration};

use crate::{
    descriptor::Descriptor,
    driver::{Driver, Registration, Wake},
    event::{Event, Events, Ready},
    interest::Interest,
    token::Token,
};

use queue::Queue;
use sources::Sources;

/// A driver over mio's `Poll`.
pub(crate) struct MioDriver {
    queue: Queue,
    sources: Sources,
    waker: Arc<dyn Wake>,
}

impl MioDriver {
    /// Opens the platform's queue and its waker, with capacity for this many events per poll.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`; see epoll_create1(2), eventfd(2), kqueue(2).
    pub(crate) fn open(capacity: usize) -> io::Result<Self> {
        let queue = Queue::open(capacity)?;
        let waker = queue.waker(mio::Token(Token::WAKE.into()))?;
        Ok(Self {
            queue,
            sources: Sources::default(),
            waker: Arc::new(waker),
        })
    }

    /// Like [`Driver::poll`], but first passes each event that reports nothing except readability and writability to
    /// `take`. Events that `take` accepts, by returning true, are not in `events`.
    #[inline(always)] // runs every turn
    pub(crate) fn poll_and(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
        mut take: impl FnMut(Event) -> bool,
    ) -> io::Result<()> {
        events.clear();
        if let Err(error) = self.queue.poll(&mut self.sources, timeout) {
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            };
        }
        for event in self.queue.events() {
            let (token, ready) = (Token::from(event.token().0), ready_of(event));
            if token == Token::WAKE || ready.is_plain() && take(Event { token, ready }) {
                continue;
            }
            push_rare(&self.sources, Event { token, ready }, events);
        }
        Ok(())
    }
}

#[cold] // most events are taken
fn push_rare(sources: &Sources, event: Event, events: &mut Events) {
    let Event { token, ready } = event;
    let ready = sources.refine(token, ready);
    if !ready.is_empty() {
        events.push(Event { token, ready });
    }
}

impl Driver for MioDriver {
    fn register(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
        is_known: bool,
    ) -> io::Result<Registration> {
        let registry = self.queue.registry();
        self.sources
            .register(registry, descriptor, token, interest, is_known)
    }

    fn deregister(&mut self, descriptor: Descriptor) -> io::Result<()> {
        self.sources.deregister(self.queue.registry(), descriptor)
    }

    fn note_close(&mut self, descriptor: Descriptor) {
        self.sources.note_close(descriptor);
    }

    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        self.poll_and(events, timeout, |_| false)
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.waker)
    }

    fn descriptor(&self) -> Option<Descriptor> {
        self.queue.descriptor()
    }

    fn prepare_sleep(&mut self) -> Option<Descriptor> {
        self.queue.prepare_sleep(&mut self.sources)
    }
}

/// The readiness that mio reports.
///
/// With epoll, a hang-up (`EPOLLHUP`) means that both halves are closed. With kqueue, each event is for one filter:
/// `EV_EOF` from the write filter means that a write will fail; `WRITABLE` covers that.
#[inline(always)] // runs for every event
fn ready_of(event: &mio::event::Event) -> Ready {
    let mut ready = Ready::EMPTY;
    if event.is_readable() {
        ready |= Ready::READABLE;
    }
    if event.is_priority() {
        ready |= Ready::PRIORITY;
    }
    if event.is_writable() {
        ready |= Ready::WRITABLE;
    }
    if event.is_error() {
        ready |= Ready::ERROR;
    }
    if event.is_read_closed() {
        ready |= Ready::READ_CLOSED;
        if event.is_write_closed() {
            ready |= Ready::HANGUP;
        }
    }
    ready
}
