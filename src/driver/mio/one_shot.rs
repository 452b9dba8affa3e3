//! Registrations with poll(2), which are armed for one event: mio disarms each direction that it has reported, and drops a
//! descriptor that hung up.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

use mio::{Registry, event::Source, unix::SourceFd};

use crate::{driver::Wake, interest::Interest, token::Token};

/// The registrations that have to be armed again before the next poll, which makes the driver level-triggered. It is empty
/// and unused with epoll and kqueue, which keep their registrations armed.
#[derive(Debug, Default)]
pub(super) struct Oneshots {
    armed: HashMap<Token, (RawFd, Interest)>,
    tokens: HashMap<RawFd, Token>,
    fired: Vec<Token>,
    wakes: Option<UnixStream>,
}

impl Oneshots {
    pub(super) fn note(&mut self, descriptor: RawFd, token: Token, interest: Interest) {
        self.remove(descriptor);
        self.armed.insert(token, (descriptor, interest));
        self.tokens.insert(descriptor, token);
    }

    pub(super) fn remove(&mut self, descriptor: RawFd) {
        if let Some(token) = self.tokens.remove(&descriptor) {
            self.armed.remove(&token);
        }
    }

    pub(super) fn fired(&mut self, token: Token) {
        self.fired.push(token);
    }

    /// A registration that has fired and was not removed.
    pub(super) fn next_fired(&mut self) -> Option<(RawFd, Token, Interest)> {
        while let Some(token) = self.fired.pop() {
            if let Some((descriptor, interest)) = self.armed.get(&token) {
                return Some((*descriptor, token, *interest));
            }
        }
        None
    }

    /// A waker of our own. mio's waker shares its eventfd with the calls that change registrations. Each of these calls
    /// resets it, so a wake could be lost.
    pub(super) fn open_waker(&mut self, registry: &Registry) -> io::Result<Arc<dyn Wake>> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        self.wakes = Some(ours);
        self.arm_waker(registry)?;
        Ok(Arc::new(Waker(theirs)))
    }

    /// Empties the waker and arms it again, after it has fired.
    pub(super) fn woken(&mut self, registry: &Registry) -> io::Result<()> {
        if let Some(mut stream) = self.wakes.as_ref() {
            while matches!(stream.read(&mut [0; 64]), Ok(64)) {}
        }
        self.arm_waker(registry)
    }

    fn arm_waker(&self, registry: &Registry) -> io::Result<()> {
        let Some(stream) = &self.wakes else {
            return Ok(());
        };
        let (number, read) = (mio::Token(Token::WAKE.into()), mio::Interest::READABLE);
        let descriptor = stream.as_raw_fd();
        let mut source = SourceFd(&descriptor);
        match source.reregister(registry, number, read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                source.register(registry, number, read)
            }
            result => result,
        }
    }
}

/// The end of the socket pair that other threads write to.
struct Waker(UnixStream);

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        match (&self.0).write(&[1]) {
            // The socket is full of earlier wakes.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result.map(drop),
        }
    }
}
