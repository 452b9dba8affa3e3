//! A scripted driver: it records calls and gives scripted answers, without a kernel.
#![allow(dead_code, reason = "no user needs all of it")]

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use reactor::{Descriptor, Driver, Event, Events, Interest, Ready, Registration, Token, Wake};

/// A call that the driver has received. Polls and sleeps are recorded in [`Script::timeouts`] instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Driver::register`] with this interest.
    Register(Descriptor, Interest),
    /// The same, of what is known to be registered.
    Reregister(Descriptor, Interest),
    /// [`Driver::deregister`].
    Deregister(Descriptor),
}

/// The driver. Without a script, every call succeeds and no events are reported.
#[derive(Debug)]
pub struct Mock {
    script: Script,
}

impl Mock {
    /// Creates a driver and its script.
    pub fn new() -> (Self, Script) {
        let script = Script::default();
        let driver = Self {
            script: script.clone(),
        };
        (driver, script)
    }
}

/// Sets the answers of a [`Mock`] and returns the calls it received.
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
    reregistrations: VecDeque<io::Result<Registration>>,
    wakes: usize,
}

impl Script {
    /// Sets the answer to the next registration without a scripted answer, instead of [`Registration::New`].
    pub fn on_register(&self, answer: io::Result<Registration>) {
        self.state().registrations.push_back(answer);
    }

    /// The same for what is known to be registered, instead of [`Registration::Kept`].
    pub fn on_reregister(&self, answer: io::Result<Registration>) {
        self.state().reregistrations.push_back(answer);
    }

    /// Makes the next poll report `ready` under the descriptor's newest token.
    pub fn report(&self, descriptor: Descriptor, ready: Ready) {
        let token = self.token(descriptor);
        self.report_token(token, ready);
    }

    /// Makes the next poll report `ready` under `token`.
    pub fn report_token(&self, token: Token, ready: Ready) {
        self.state().reports.push(Event { token, ready });
    }

    /// The descriptor's newest token, or a token that was never registered if the descriptor was not.
    pub fn token(&self, descriptor: Descriptor) -> Token {
        let token = self.state().tokens.get(&descriptor).copied();
        token.unwrap_or(Token::new(Token::MAX_INDEX, 0))
    }

    /// The calls since the last call of this method.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    /// The timeouts of the polls and sleeps since the last call of this method.
    pub fn timeouts(&self) -> Vec<Option<Duration>> {
        std::mem::take(&mut self.state().timeouts)
    }

    /// How many times the driver was woken.
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
        is_known: bool,
    ) -> io::Result<Registration> {
        let mut state = self.script.state();
        state.tokens.insert(descriptor, token);
        let (call, answer, usual) = match is_known {
            true => (
                Call::Reregister(descriptor, interest),
                state.reregistrations.pop_front(),
                Registration::Kept,
            ),
            false => (
                Call::Register(descriptor, interest),
                state.registrations.pop_front(),
                Registration::New,
            ),
        };
        state.calls.push(call);
        answer.unwrap_or(Ok(usual))
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

    /// None: the driver has no descriptor to sleep on.
    fn descriptor(&self) -> Option<Descriptor> {
        None
    }
}

impl Wake for Script {
    fn wake(&self) -> io::Result<()> {
        self.state().wakes += 1;
        Ok(())
    }

    /// Records the timeout, and does not block.
    fn block(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.state().timeouts.push(timeout);
        Ok(())
    }
}
