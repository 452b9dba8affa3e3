//! The poll(2) driver: for Unix systems whose own queue is missing or refused.
//!
//! It is level-triggered: a direction that stays ready while no wait asks for it is reported twice, and then its
//! registration ends. poll(2) takes all registered descriptors with each call, so a poll costs as much as there are.
//! The set of descriptors is this driver's own, and keyed by their numbers: a closed one leaves with the next poll, and
//! a number that was closed and opened again stays registered, for its new file.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    mem,
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    descriptor::{asked_of_poll, bad_descriptor, is_file, poll_all, poll_entry, ready_of_poll},
    driver::{BATCH, Driver, Registration, Wake},
    event::{Event, Events},
    interest::Interest,
    token::Token,
};

/// The place of the wake-up socket in a [`Set`].
const WAKE: usize = 0;

/// A driver over poll(2).
pub(crate) struct PollDriver {
    shared: Arc<Shared>,
    /// Where the search for events begins: behind the last one of a full batch, so that none starves.
    start: usize,
}

/// What a sleeping thread needs.
///
/// tests/model does not cover this: all shared state is under one lock, and a sleep may end spuriously.
struct Shared {
    set: Mutex<Set>,
    /// Readable after a wake.
    woken: UnixStream,
    wake: UnixStream,
}

/// The registered descriptors and their tokens, behind [`Shared::woken`]: see [`WAKE`].
struct Set {
    entries: Vec<libc::pollfd>,
    tokens: Vec<Token>,
    places: HashMap<RawFd, usize>,
    /// The threads in [`Wake::block`].
    sleepers: usize,
    /// The memory of the last sleep.
    spare: Vec<libc::pollfd>,
}

impl PollDriver {
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`, `ENOMEM`; see socketpair(2).
    pub(crate) fn open() -> io::Result<Self> {
        let (woken, wake) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let set = Set {
            entries: vec![poll_entry(woken.as_raw_fd(), libc::POLLIN)],
            tokens: vec![Token::WAKE],
            places: HashMap::new(),
            sleepers: 0,
            spare: Vec::new(),
        };
        Ok(Self {
            shared: Arc::new(Shared {
                set: Mutex::new(set),
                woken,
                wake,
            }),
            start: 0,
        })
    }
}

impl Driver for PollDriver {
    fn register(
        &mut self,
        descriptor: RawFd,
        token: Token,
        interest: Interest,
        _is_known: bool,
    ) -> io::Result<Registration> {
        let mut set = self.shared.set();
        if self.shared.owns(descriptor) {
            set.entries[WAKE].fd = RawFd::MAX; // is never open, so that each poll fails
            return Err(bad_descriptor());
        }
        let is_file = self
            .shared
            .end_sleep(&set)
            .and_then(|()| is_file(descriptor));
        if !matches!(is_file, Ok(false)) {
            set.remove(descriptor);
            return is_file.map(|_| Registration::Unpollable);
        }
        Ok(match set.put(descriptor, token, asked_of_poll(interest)) {
            true => Registration::Kept,
            false => Registration::New,
        })
    }

    fn deregister(&mut self, descriptor: RawFd) -> io::Result<()> {
        let mut set = self.shared.set();
        set.remove(descriptor);
        self.shared.end_sleep(&set)
    }

    fn note_close(&mut self, descriptor: RawFd) {
        _ = self.deregister(descriptor); // a wake fails only if the program has closed its socket: the next poll says so
    }

    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.clear();
        if timeout != Some(Duration::ZERO) {
            self.shared.block(timeout)?;
        }
        let set = &mut *self.shared.set();
        let ready = poll_all(&mut set.entries, Some(Duration::ZERO))?;
        self.shared
            .end_wake(set.entries[WAKE].revents, set.sleepers)?;
        let (count, mut closed) = (set.entries.len(), Vec::new());
        let start = mem::take(&mut self.start).min(count);
        let places = (start..count).chain(0..start);
        for place in places
            .filter(|place| *place != WAKE && set.entries[*place].revents != 0)
            .take(ready)
        {
            let (entry, token) = (set.entries[place], set.tokens[place]);
            if entry.revents & libc::POLLNVAL != 0 {
                closed.push(entry.fd);
            } else if events.len() < BATCH {
                events.push(Event {
                    token,
                    ready: ready_of_poll(entry.revents),
                });
            } else {
                self.start = place;
                break;
            }
        }
        closed
            .into_iter()
            .for_each(|descriptor| set.remove(descriptor));
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.shared) as Arc<dyn Wake>
    }

    /// None: a thread sleeps in the waker.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

impl Wake for Shared {
    fn wake(&self) -> io::Result<()> {
        loop {
            match (&self.wake).write(&[0]) {
                // Full: earlier wakes have not been collected.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    _ = (&self.woken).read(&mut [0; 64]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(drop),
            }
        }
    }

    fn block(&self, timeout: Option<Duration>) -> io::Result<()> {
        let mut set = self.set();
        let mut entries = mem::take(&mut set.spare);
        entries.clone_from(&set.entries);
        set.sleepers += 1;
        drop(set);
        let polled = poll_all(&mut entries, timeout);
        let mut set = self.set();
        set.sleepers -= 1;
        set.spare = entries;
        polled.map(drop)
    }
}

impl Shared {
    fn set(&self) -> MutexGuard<'_, Set> {
        // A poisoned lock is harmless: nothing in the set's changes panics.
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a sleeper return: it polls a copy of the set, and the kernel keeps open every file of that copy.
    fn end_sleep(&self, set: &Set) -> io::Result<()> {
        match set.sleepers {
            0 => Ok(()),
            _ => self.wake(),
        }
    }

    /// Whether the program can have this number only because it has closed one of the sockets.
    fn owns(&self, descriptor: RawFd) -> bool {
        [&self.woken, &self.wake]
            .map(AsRawFd::as_raw_fd)
            .contains(&descriptor)
    }

    /// Ends a wake, if there was one, unless it has still to end the sleep of another thread.
    fn end_wake(&self, answer: libc::c_short, sleepers: usize) -> io::Result<()> {
        if answer & (libc::POLLNVAL | libc::POLLHUP) != 0 {
            return Err(bad_descriptor()); // the program has closed one of the sockets
        }
        while answer != 0 && sleepers == 0 && matches!((&self.woken).read(&mut [0; 64]), Ok(64)) {}
        Ok(())
    }
}

impl Set {
    /// Whether the descriptor was registered before.
    fn put(&mut self, descriptor: RawFd, token: Token, events: libc::c_short) -> bool {
        let entry = poll_entry(descriptor, events);
        if let Some(place) = self.places.get(&descriptor) {
            (self.entries[*place], self.tokens[*place]) = (entry, token);
            return true;
        }
        self.places.insert(descriptor, self.entries.len());
        self.entries.push(entry);
        self.tokens.push(token);
        false
    }

    fn remove(&mut self, descriptor: RawFd) {
        let Some(place) = self.places.remove(&descriptor) else {
            return;
        };
        self.entries.swap_remove(place);
        self.tokens.swap_remove(place);
        if let Some(moved) = self.entries.get(place) {
            self.places.insert(moved.fd, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        net::Shutdown,
        os::{fd::AsRawFd, unix::net::UnixStream},
        thread,
        time::Duration,
    };

    use super::PollDriver;
    use crate::{Driver, Events, Interest, Token};

    const NOW: Option<Duration> = Some(Duration::ZERO);

    fn with_a_socket(interest: Interest) -> (PollDriver, UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut driver = PollDriver::open().unwrap();
        let armed = driver.register(ours.as_raw_fd(), Token::new(1, 1), interest, false);
        armed.unwrap();
        (driver, ours, theirs)
    }

    #[test]
    fn a_sleep_keeps_no_deregistered_socket_open() {
        let (mut driver, ours, mut theirs) = with_a_socket(Interest::READABLE);
        let waker = driver.waker();
        let sleeper = thread::spawn(move || waker.block(None));
        while driver.shared.set().sleepers == 0 {
            thread::yield_now();
        }
        driver.deregister(ours.as_raw_fd()).unwrap();
        drop(ours);
        let limit = Some(Duration::from_secs(20));
        theirs.set_read_timeout(limit).unwrap();
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0);
        sleeper.join().unwrap().unwrap();
    }

    #[test]
    fn a_number_of_the_driver_itself_is_refused_and_ends_its_polls() {
        for own in [0, 1] {
            let (mut driver, _ours, _theirs) = with_a_socket(Interest::WRITABLE);
            let own = [&driver.shared.woken, &driver.shared.wake][own].as_raw_fd();
            driver.note_close(own);
            let answer = driver.register(own, Token::new(2, 1), Interest::READABLE, false);
            assert_eq!(answer.unwrap_err().raw_os_error(), Some(libc::EBADF));
            let polled = driver.poll(&mut Events::new(), NOW);
            assert_eq!(polled.unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }

    #[test]
    fn a_poll_that_fails_has_no_events() {
        let (mut driver, ..) = with_a_socket(Interest::WRITABLE);
        let mut events = Events::new();
        driver.start = 1; // the search comes to the wake-up socket last
        driver.shared.wake.shutdown(Shutdown::Both).unwrap();
        assert!(driver.poll(&mut events, NOW).is_err());
        assert_eq!(events.len(), 0);
    }
}
