//! The remote: how other threads reach a reactor.

use std::{
    fmt, io, mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    driver::Wake,
    event::{Event, Events, Ready},
    token::Token,
};

/// Reaches a reactor from any thread. Cheap to clone; outlives the reactor harmlessly.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

struct Shared {
    inbox: Mutex<Vec<Token>>,
    /// Whether the reactor's thread sleeps or is about to: only then must the kernel be told.
    sleeping: AtomicBool,
    waker: Arc<dyn Wake>,
}

impl Handle {
    pub(crate) fn new(waker: Arc<dyn Wake>) -> Self {
        Self(Arc::new(Shared {
            inbox: Mutex::default(),
            sleeping: AtomicBool::new(false),
            waker,
        }))
    }

    /// Has the reactor report an event with this token and [`Ready::NOTIFIED`]. One system call if it sleeps and has
    /// not been woken yet; none otherwise.
    ///
    /// # Errors
    ///
    /// Of [`wake`](Handle::wake). The token is delivered all the same, at the next turn.
    pub fn notify(&self, token: Token) -> io::Result<()> {
        self.inbox().push(token);
        // The sleeper sets the flag before it looks into the inbox; we look at the flag after filling it. In the one
        // order of all four there is that both miss each other.
        if self.0.sleeping.swap(false, Ordering::SeqCst) {
            self.wake()?;
        }
        Ok(())
    }

    /// Ends the sleep that goes on, or the next one. One system call, no lock, no allocation: may be called in a signal
    /// handler.
    ///
    /// # Errors
    ///
    /// What the kernel says.
    pub fn wake(&self) -> io::Result<()> {
        self.0.waker.wake()
    }

    /// Whether the reactor's thread sleeps (and nobody has woken it).
    pub fn is_sleeping(&self) -> bool {
        self.0.sleeping.load(Ordering::SeqCst)
    }

    /// Goes to sleep; false if something has come that forbids it.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.0.sleeping.store(true, Ordering::SeqCst);
        let awake = !self.inbox().is_empty();
        if awake {
            self.awaken();
        }
        !awake
    }

    pub(crate) fn awaken(&self) {
        self.0.sleeping.store(false, Ordering::SeqCst);
    }

    /// Moves what was notified into `events`.
    pub(crate) fn collect(&self, events: &mut Events) {
        let mut inbox = self.inbox();
        if inbox.is_empty() {
            return;
        }
        let tokens = mem::take(&mut *inbox);
        drop(inbox);
        for token in &tokens {
            events.push(Event {
                token: *token,
                ready: Ready::NOTIFIED,
            });
        }
        // The memory goes back, unless somebody was quicker.
        let mut tokens = tokens;
        tokens.clear();
        let mut inbox = self.inbox();
        if inbox.capacity() == 0 {
            *inbox = tokens;
        }
    }

    /// A thread that panicked while pushing has left the list whole.
    fn inbox(&self) -> std::sync::MutexGuard<'_, Vec<Token>> {
        self.0.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("sleeping", &self.is_sleeping())
            .finish_non_exhaustive()
    }
}
