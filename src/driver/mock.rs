//! A scripted driver: it records what it is asked, answers what it was told to, and knows no kernel.
//!
//! For testing whatever stands on a [`Driver`] without descriptors. Available with the feature `mock`.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use reactor::{Events, OwnerId, Interest, Ready, Selector, Token, mock::{Call, Mock}};
//!
//! let (driver, script) = Mock::new();
//! let mut selector = Selector::with_driver(Box::new(driver));
//! let token = Token::new(0, 7);
//! let wait = selector.wait(5, OwnerId(1), Interest::READABLE, token, Instant::now())?;
//! assert_eq!(script.calls(), [Call::Register(5, Interest::READABLE)]);
//!
//! script.report(5, Ready::READABLE);
//! let mut events = Events::new();
//! selector.poll(&mut events, Some(Duration::ZERO), Instant::now())?;
//! assert_eq!(events[0].token, token);
//! # std::io::Result::Ok(())
//! ```

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    descriptor::Descriptor,
    driver::{Driver, Registration, Reregistration, Wake},
    event::{Event, Events, Ready},
    interest::Interest,
    token::Token,
};

/// A call the driver has received. Polls are counted apart: [`Script::timeouts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Driver::register`] with this interest.
    Register(Descriptor, Interest),
    /// [`Driver::reregister`] with this interest.
    Reregister(Descriptor, Interest),
    /// [`Driver::deregister`].
    Deregister(Descriptor),
}

/// The driver. Without a script every call succeeds and nothing ever happens.
#[derive(Debug)]
pub struct Mock {
    script: Script,
}

impl Mock {
    /// A driver and what steers it.
    pub fn new() -> (Self, Script) {
        let script = Script::default();
        let driver = Self {
            script: script.clone(),
        };
        (driver, script)
    }
}

/// What steers a [`Mock`] and tells what it was asked.
#[derive(Clone, Debug, Default)]
pub struct Script {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    timeouts: Vec<Option<Duration>>,
    tokens: HashMap<Descriptor, Token>,
    reports: Events,
    registrations: VecDeque<io::Result<Registration>>,
    reregistrations: VecDeque<io::Result<Reregistration>>,
    wakes: usize,
}

impl Script {
    /// Answers the next `register` that has no answer yet with this instead of [`Registration::Armed`].
    pub fn on_register(&self, answer: io::Result<Registration>) {
        self.state().registrations.push_back(answer);
    }

    /// Answers the next `reregister` that has no answer yet with this instead of [`Reregistration::Kept`].
    pub fn on_reregister(&self, answer: io::Result<Reregistration>) {
        self.state().reregistrations.push_back(answer);
    }

    /// Reports this with the next poll, under the newest token of the descriptor.
    pub fn report(&self, descriptor: Descriptor, ready: Ready) {
        let token = self.token(descriptor);
        self.report_token(token, ready);
    }

    /// Reports this with the next poll, under any token.
    pub fn report_token(&self, token: Token, ready: Ready) {
        self.state().reports.push(Event { token, ready });
    }

    /// The newest token of the descriptor; one that nobody ever had if it was never registered.
    pub fn token(&self, descriptor: Descriptor) -> Token {
        let token = self.state().tokens.get(&descriptor).copied();
        token.unwrap_or(Token::new(Token::MAX_INDEX, 0))
    }

    /// The calls since they were last asked for.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    /// The timeouts of the polls since they were last asked for.
    pub fn timeouts(&self) -> Vec<Option<Duration>> {
        std::mem::take(&mut self.state().timeouts)
    }

    /// How often the driver was woken.
    pub fn wakes(&self) -> usize {
        self.state().wakes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Mock {
    fn register(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registration> {
        let mut state = self.script.state();
        state.calls.push(Call::Register(descriptor, interest));
        state.tokens.insert(descriptor, token);
        let answer = state.registrations.pop_front();
        answer.unwrap_or(Ok(Registration::Armed))
    }

    fn reregister(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Reregistration> {
        let mut state = self.script.state();
        state.calls.push(Call::Reregister(descriptor, interest));
        state.tokens.insert(descriptor, token);
        state
            .reregistrations
            .pop_front()
            .unwrap_or(Ok(Reregistration::Kept))
    }

    fn deregister(&mut self, descriptor: Descriptor) -> io::Result<()> {
        self.script.state().calls.push(Call::Deregister(descriptor));
        Ok(())
    }

    fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let mut state = self.script.state();
        state.timeouts.push(timeout);
        events.clear();
        std::mem::swap(events, &mut state.reports);
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(self.script.clone())
    }

    /// None: there is nothing to sleep on.
    fn descriptor(&self) -> Option<Descriptor> {
        None
    }
}

impl Wake for Script {
    fn wake(&self) -> io::Result<()> {
        self.state().wakes += 1;
        Ok(())
    }
}
