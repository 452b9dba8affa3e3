//! The part of a reactor that other threads hold.

use std::{
    fmt, io,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use crate::{
    driver::Wake,
    event::{Event, Events, Ready},
    sync::{AtomicBool, Mutex, MutexGuard},
    token::Token,
};

/// Notifies or wakes one reactor. Other threads and signal handlers may use only this part of it.
///
/// Cloning it increments a reference count. It may outlive the reactor; its notifications are then never reported.
///
/// ```
/// use reactor::{Events, Reactor, Ready, Token};
///
/// let mut reactor = Reactor::open(None)?;
/// let handle = reactor.handle();
/// let thread = std::thread::spawn(move || handle.notify(Token::new(5, 0)));
/// let mut events = Events::new();
/// while events.is_empty() {
///     reactor.turn(&mut events, None)?;
/// }
/// assert_eq!((events[0].token, events[0].ready), (Token::new(5, 0), Ready::NOTIFIED));
/// thread.join().expect("no panic")?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

struct Shared {
    inbox: Mutex<Vec<Token>>,
    /// The inbox may hold a token that the owner has not collected. Set with the lock held, so that the owner takes the lock in
    /// the turns that have something to collect only.
    filled: AtomicBool,
    /// The owner sleeps, or is between [`Handle::prepare_sleep`] and its sleep.
    sleeping: AtomicBool,
    /// [`Handle::wake`] was called, and the owner has not slept since.
    woken: AtomicBool,
    /// Another thread has ended the owner's last sleep.
    has_ended_sleep: AtomicBool,
    wake: Arc<dyn Wake>,
}

impl Handle {
    pub(crate) fn new(wake: Arc<dyn Wake>) -> Self {
        Self {
            shared: Arc::new(Shared {
                inbox: Mutex::new(Vec::new()),
                filled: AtomicBool::new(false),
                sleeping: AtomicBool::new(false),
                woken: AtomicBool::new(false),
                has_ended_sleep: AtomicBool::new(false),
                wake,
            }),
        }
    }

    /// Has the owner's next turn report `token` with [`Ready::NOTIFIED`], and wakes the owner if it sleeps.
    ///
    /// Each call is reported once, in the order of the calls. Only the first call during a sleep makes a system call. It takes
    /// a lock, so it must not be called from a signal handler.
    ///
    /// # Errors
    ///
    /// Those of [`Wake::wake`]. The token is in the inbox also then.
    pub fn notify(&self, token: Token) -> io::Result<()> {
        {
            let mut inbox = self.inbox();
            inbox.push(token);
            self.shared.filled.store(true, Ordering::SeqCst);
        }
        // The owner sets the flag and then reads the inbox; this thread writes the inbox and then reads the flag. In each
        // order of these four steps the owner sees the token or this thread sees the flag.
        if self.shared.sleeping.swap(false, Ordering::SeqCst) {
            return self.wake_driver().inspect_err(|_| {
                self.shared.sleeping.store(true, Ordering::SeqCst);
            });
        }
        Ok(())
    }

    /// Ends the owner's current sleep, or its next one, without an event.
    ///
    /// On Unix this is async-signal-safe (signal-safety(7)): it takes no lock and allocates nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Wake::wake`].
    pub fn wake(&self) -> io::Result<()> {
        self.shared.woken.store(true, Ordering::SeqCst);
        self.wake_driver()
    }

    /// Wakes the driver. If that fails, it tries a second time, because a worker and a signal handler cannot report the error, and a
    /// lost wake-up is not repeated.
    fn wake_driver(&self) -> io::Result<()> {
        let wake = &self.shared.wake;
        wake.wake().or_else(|_| wake.wake())
    }

    /// Sleeps in a driver without a descriptor; see [`Wake::block`].
    pub(crate) fn block(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.wake.block(timeout)
    }

    /// Does the owner sleep, or is it about to, and has no notification woken it? The answer may be outdated when it
    /// returns: use it for statistics and tests.
    pub fn is_sleeping(&self) -> bool {
        self.shared.sleeping.load(Ordering::SeqCst)
    }

    /// The owner is about to sleep. False if it must not, because the inbox is not empty or because it was woken before.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.shared.sleeping.store(true, Ordering::SeqCst);
        !self.shared.woken.load(Ordering::SeqCst) && !self.has_notifications()
    }

    /// The owner no longer sleeps. Notifications make no system call from now on.
    pub(crate) fn finish_sleep(&self) {
        let is_notified = !self.shared.sleeping.swap(false, Ordering::SeqCst);
        let is_woken = self.shared.woken.swap(false, Ordering::SeqCst);
        let has_ended = &self.shared.has_ended_sleep;
        has_ended.store(is_notified || is_woken, Ordering::SeqCst);
    }

    /// Has [`Handle::notify`] or [`Handle::wake`] ended the owner's last sleep?
    pub(crate) fn has_ended_sleep(&self) -> bool {
        self.shared.has_ended_sleep.load(Ordering::SeqCst)
    }

    /// Is the inbox not empty?
    pub(crate) fn has_notifications(&self) -> bool {
        !self.inbox().is_empty()
    }

    /// Moves the inbox into `events`.
    #[inline]
    pub(crate) fn collect(&self, events: &mut Events) {
        // A token that is added right now is collected by the next turn, before which the owner does not sleep.
        if self.shared.filled.load(Ordering::SeqCst) {
            self.empty_inbox(events);
        }
    }

    #[inline(never)]
    fn empty_inbox(&self, events: &mut Events) {
        let mut inbox = self.inbox();
        self.shared.filled.store(false, Ordering::SeqCst);
        for token in inbox.drain(..) {
            events.push(Event {
                token,
                ready: Ready::NOTIFIED,
            });
        }
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<Token>> {
        // A poisoned lock is harmless: a push to the list is never half done.
        let inbox = self.shared.inbox.lock();
        inbox.unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Handle")
            .field("sleeping", &self.is_sleeping())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use super::Handle;
    use crate::{
        driver::Wake,
        event::{Events, Ready},
        token::Token,
    };

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(&self) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    fn handle() -> (Handle, Arc<Wakes>) {
        let wakes = Arc::new(Wakes::default());
        (Handle::new(Arc::clone(&wakes) as Arc<dyn Wake>), wakes)
    }

    #[test]
    fn a_notification_does_not_wake_an_owner_that_is_awake() {
        let (handle, wakes) = handle();
        handle.notify(Token::new(1, 0)).unwrap();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
        assert!(!handle.prepare_sleep(), "the inbox is not empty");
    }

    #[test]
    fn a_batch_costs_one_wake() {
        let (handle, wakes) = handle();
        assert!(handle.prepare_sleep());
        assert!(handle.is_sleeping());
        for index in 0..100 {
            handle.notify(Token::new(index, 0)).unwrap();
        }
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
        handle.finish_sleep();

        let mut events = Events::new();
        handle.collect(&mut events);
        assert!(events.iter().map(|event| event.token.index()).eq(0..100));
        assert!(events.iter().all(|event| event.ready == Ready::NOTIFIED));
        assert!(handle.prepare_sleep());
    }

    /// Fails the first time.
    #[derive(Default)]
    struct Reluctant(AtomicUsize);

    impl Wake for Reluctant {
        fn wake(&self) -> io::Result<()> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Err(io::ErrorKind::OutOfMemory.into()),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn a_wake_that_fails_once_is_not_lost() {
        let wakes = Arc::new(Reluctant::default());
        let handle = Handle::new(Arc::clone(&wakes) as Arc<dyn Wake>);
        assert!(handle.prepare_sleep());
        handle.notify(Token::new(1, 0)).unwrap();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 2);
        assert!(!handle.is_sleeping(), "it is woken");
    }

    #[test]
    fn a_wake_before_the_sleep_ends_it() {
        let (handle, _) = handle();
        handle.wake().unwrap();
        assert!(!handle.prepare_sleep());
        handle.finish_sleep();
        assert!(handle.prepare_sleep(), "one wake ends one sleep");
    }
}
