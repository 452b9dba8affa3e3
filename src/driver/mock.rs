//! A scripted kernel: proves what the registry asks for, without one.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    driver::{Descriptor, Driver, Registration, Renewal, Wake},
    event::{Event, Events},
    interest::Interest,
    token::Token,
};

/// A system call the driver was asked to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `register`.
    Add(Descriptor, Interest),
    /// `reregister`.
    Modify(Descriptor, Interest),
    /// `deregister`.
    Delete(Descriptor),
}

/// What the kernel will answer about one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// As a file that cannot be polled.
    Unpollable,
    /// As if it had forgotten the descriptor: the next `reregister` renews it.
    Forgotten,
    /// As if it knew the descriptor: `register` replaces what is registered.
    Known,
    /// With this errno.
    Failing(i32),
}

/// The driver; clones share one script.
#[derive(Clone, Debug, Default)]
pub struct Mock(Arc<Mutex<Script>>);

#[derive(Debug, Default)]
struct Script {
    calls: Vec<Call>,
    natures: HashMap<Descriptor, Nature>,
    tokens: HashMap<Descriptor, Token>,
    coming: VecDeque<Event>,
    woken: usize,
}

impl Mock {
    /// The calls since the last question.
    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.script().calls)
    }

    /// Has the kernel treat a descriptor so from now on; `None`: as any other.
    pub fn make(&self, descriptor: Descriptor, nature: Option<Nature>) {
        let mut script = self.script();
        match nature {
            Some(nature) => script.natures.insert(descriptor, nature),
            None => script.natures.remove(&descriptor),
        };
    }

    /// The token the descriptor was last registered with.
    pub fn token(&self, descriptor: Descriptor) -> Option<Token> {
        self.script().tokens.get(&descriptor).copied()
    }

    /// Has the next poll report this.
    pub fn send(&self, event: Event) {
        self.script().coming.push_back(event);
    }

    /// How often it was woken.
    pub fn wakes(&self) -> usize {
        self.script().woken
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Mock {
    fn register(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Registration> {
        let mut script = self.script();
        script.calls.push(Call::Add(descriptor, interest));
        match script.natures.get(&descriptor) {
            Some(Nature::Unpollable) => return Ok(Registration::Unpollable),
            Some(Nature::Failing(errno)) => return Err(io::Error::from_raw_os_error(*errno)),
            Some(Nature::Known) => {
                script.tokens.insert(descriptor, token);
                return Ok(Registration::Kept);
            }
            Some(Nature::Forgotten) | None => {}
        }
        script.tokens.insert(descriptor, token);
        Ok(Registration::Armed)
    }

    fn reregister(
        &mut self,
        descriptor: Descriptor,
        token: Token,
        interest: Interest,
    ) -> io::Result<Renewal> {
        let mut script = self.script();
        script.calls.push(Call::Modify(descriptor, interest));
        let renewal = match script.natures.get(&descriptor) {
            Some(Nature::Unpollable) => return Ok(Renewal::Unpollable),
            Some(Nature::Failing(errno)) => return Err(io::Error::from_raw_os_error(*errno)),
            Some(Nature::Forgotten) => Renewal::Renewed,
            Some(Nature::Known) | None => Renewal::Kept,
        };
        if renewal == Renewal::Renewed {
            script.natures.remove(&descriptor);
            script.calls.push(Call::Add(descriptor, interest));
        }
        script.tokens.insert(descriptor, token);
        Ok(renewal)
    }

    fn deregister(&mut self, descriptor: Descriptor) -> io::Result<()> {
        let mut script = self.script();
        script.calls.push(Call::Delete(descriptor));
        script.tokens.remove(&descriptor);
        Ok(())
    }

    fn poll(&mut self, events: &mut Events, _: Option<Duration>) -> io::Result<()> {
        let coming = std::mem::take(&mut self.script().coming);
        coming.into_iter().for_each(|event| events.push(event));
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(self.clone())
    }

    fn descriptor(&self) -> Option<Descriptor> {
        None
    }
}

impl Wake for Mock {
    fn wake(&self) -> io::Result<()> {
        self.script().woken += 1;
        Ok(())
    }
}
