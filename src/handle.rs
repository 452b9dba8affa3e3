//! The handle through which other threads reach a reactor.

use std::{
    fmt, io,
    sync::{Arc, PoisonError, atomic::Ordering},
    task::Waker,
    time::Duration,
};

use crate::{
    driver::Wake,
    event::{Event, Events, Ready},
    sync::{AtomicBool, Mutex, MutexGuard},
    token::Token,
};

/// Notifies or wakes a reactor. This is the only part of a reactor that other threads and signal handlers may use.
///
/// Cloning it increments a reference count. It may outlive the reactor; notifications are then dropped.
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
    /// Whether the inbox may hold a token that the reactor has not collected. Set while the lock is held, so that the
    /// reactor takes the lock only in turns that have something to collect.
    filled: AtomicBool,
    /// The reactor is asleep, or between [`Handle::prepare_sleep`] and its sleep.
    sleeping: AtomicBool,
    /// [`Handle::wake`] was called, and the reactor has not slept since.
    woken: AtomicBool,
    /// Another thread ended the reactor's last sleep.
    has_ended_sleep: AtomicBool,
    /// The reactor was dropped, so nobody empties the inbox.
    closed: AtomicBool,
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
                closed: AtomicBool::new(false),
                wake,
            }),
        }
    }

    /// Makes the reactor's next turn report `token` with [`Ready::NOTIFIED`], and wakes the reactor if it is asleep.
    ///
    /// Each call is reported once, in call order. Only the first call during a sleep makes a system call. Takes a lock,
    /// so it must not be called from a signal handler.
    ///
    /// # Errors
    ///
    /// Those of write(2) or kevent(2); none are known to occur before the reactor is dropped. Even then the token is in the inbox.
    pub fn notify(&self, token: Token) -> io::Result<()> {
        if !self.shared.closed.load(Ordering::SeqCst) {
            let mut inbox = self.inbox();
            inbox.push(token);
            self.shared.filled.store(true, Ordering::SeqCst);
        }
        // The reactor sets the flag and then reads the inbox; this thread writes the inbox and then reads the flag.
        // However the four steps interleave, the reactor sees the token or this thread sees the flag.
        if self.shared.sleeping.swap(false, Ordering::SeqCst) {
            return self.wake_driver().inspect_err(|_| {
                self.shared.sleeping.store(true, Ordering::SeqCst);
            });
        }
        Ok(())
    }

    /// A waker that [notifies](Handle::notify) `token`, for the futures that a caller polls. An error of the system call is
    /// dropped: the token is reported by the next turn.
    ///
    /// ```
    /// use reactor::{Events, Reactor, Token};
    ///
    /// let mut reactor = Reactor::open(None)?;
    /// let waker = reactor.handle().waker(Token::new(3, 0));
    /// waker.wake_by_ref();
    /// let mut events = Events::new();
    /// reactor.turn(&mut events, None)?;
    /// assert_eq!(events[0].token, Token::new(3, 0));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn waker(&self, token: Token) -> Waker {
        let handle = self.clone();
        Waker::from(Arc::new(Notification { handle, token }))
    }

    /// Ends the reactor's current sleep, or its next one, without an event.
    ///
    /// On Unix this is async-signal-safe (signal-safety(7)): no locks, no allocation.
    ///
    /// # Errors
    ///
    /// Those of write(2) or kevent(2); none are known to occur before the reactor is dropped.
    pub fn wake(&self) -> io::Result<()> {
        self.shared.woken.store(true, Ordering::SeqCst);
        self.wake_driver()
    }

    /// Wakes the driver. Retries once on failure, because workers and signal handlers cannot report the error, and a
    /// lost wake-up is not repeated.
    fn wake_driver(&self) -> io::Result<()> {
        let wake = &self.shared.wake;
        wake.wake().or_else(|_| wake.wake())
    }

    /// Sleeps in a driver without a descriptor; see [`Wake::block`].
    pub(crate) fn block(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.wake.block(timeout)
    }

    /// Whether the reactor is asleep or about to sleep, and no notification has woken it. The answer may be outdated by
    /// the time it is returned: use it for statistics and tests.
    pub fn is_sleeping(&self) -> bool {
        self.shared.sleeping.load(Ordering::SeqCst)
    }

    /// Called when the reactor is dropped. Takes no lock: in a child of fork(2), a thread of the parent may hold it.
    pub(crate) fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
    }

    /// Called before the reactor sleeps. False if the reactor must not sleep, because the inbox is not empty or the
    /// reactor was woken.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.shared.sleeping.store(true, Ordering::SeqCst);
        !self.shared.woken.load(Ordering::SeqCst) && !self.has_notifications()
    }

    /// Called after the reactor's sleep. From now on, notifications make no system calls.
    pub(crate) fn finish_sleep(&self) {
        let is_notified = !self.shared.sleeping.swap(false, Ordering::SeqCst);
        let is_woken = self.shared.woken.swap(false, Ordering::SeqCst);
        let has_ended = &self.shared.has_ended_sleep;
        has_ended.store(is_notified || is_woken, Ordering::SeqCst);
    }

    /// Whether [`Handle::notify`] or [`Handle::wake`] ended the reactor's last sleep.
    pub(crate) fn has_ended_sleep(&self) -> bool {
        self.shared.has_ended_sleep.load(Ordering::SeqCst)
    }

    /// Whether the inbox is non-empty.
    pub(crate) fn has_notifications(&self) -> bool {
        !self.inbox().is_empty()
    }

    /// Moves the contents of the inbox to `events`.
    #[inline]
    pub(crate) fn collect(&self, events: &mut Events) {
        // A token added at this very moment is collected next turn; the reactor does not sleep before that.
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
        // A poisoned lock is harmless: pushing to the list cannot be interrupted halfway.
        let inbox = self.shared.inbox.lock();
        inbox.unwrap_or_else(PoisonError::into_inner)
    }
}

/// What [`Handle::waker`] makes a waker of.
struct Notification {
    handle: Handle,
    token: Token,
}

impl std::task::Wake for Notification {
    fn wake(self: Arc<Self>) {
        _ = self.handle.notify(self.token);
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
    fn a_notification_does_not_wake_a_reactor_that_is_awake() {
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
