//! `timeout_after`: exceptions that are raised in a fiber unless its block is done first.
//!
//! A timeout that fires is only noted; the fiber raises it itself, from its own stack, when it next gets control, and a
//! block that ends before that has won: nothing is ever raised after it.

use magnus::{Error, Value, gc::Marker, value::ReprValue};
use reactor::Token;

use crate::{
    fibers::{Cause, Fibers, Slot, State},
    raw::{self, Pinned},
    selector::Selector,
};

/// Tokens of timeouts have this bit of the index set; tokens of waits do not.
const MARK: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct Timeout {
    fiber: Slot,
    exception: Pinned,
    message: Pinned,
    fired: bool,
}

#[derive(Debug, Default)]
pub struct Timeouts {
    entries: Vec<Option<Timeout>>,
    generations: Vec<u32>,
    free: Vec<u32>,
    /// Fired while the fiber was not parked itself.
    indirect: Vec<Token>,
}

impl Timeouts {
    pub fn owns(token: Token) -> bool {
        token.index() & MARK != 0
    }

    pub fn insert(&mut self, fiber: Slot, exception: Value, message: Value) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.generations.push(0);
            (self.entries.len() - 1) as u32
        });
        self.entries[index as usize] = Some(Timeout {
            fiber,
            exception: Pinned::new(exception),
            message: Pinned::new(message),
            fired: false,
        });
        Token::new(index | MARK, self.generations[index as usize])
    }

    /// The block is done: the timeout is off, even if it has fired and was not raised yet.
    pub fn remove(&mut self, token: Token, fibers: &mut Fibers) {
        let index = token.index() & !MARK;
        if let Some(timeout) = self.entries.get_mut(index as usize).and_then(Option::take) {
            if timeout.fired {
                if let Some(record) = fibers.get_mut(timeout.fiber) {
                    record.fired = record.fired.saturating_sub(1);
                }
            }
            self.generations[index as usize] = self.generations[index as usize].wrapping_add(1);
            self.free.push(index);
        }
    }

    fn current(&mut self, token: Token) -> Option<&mut Timeout> {
        let index = (token.index() & !MARK) as usize;
        if *self.generations.get(index)? != token.generation() {
            return None;
        }
        self.entries.get_mut(index)?.as_mut()
    }

    /// Its time has come. The token of the wait that ends by it, if the fiber is parked.
    pub fn fire(&mut self, token: Token, fibers: &mut Fibers) -> Option<Token> {
        let timeout = self.current(token)?;
        timeout.fired = true;
        let slot = timeout.fiber;
        let record = fibers.get_mut(slot)?;
        record.fired += 1;
        self.indirect.push(token);
        let (wait, _) = fibers.parked(slot)?;
        fibers.wake(wait, Cause::Disturbed).then_some(wait)
    }

    /// The next fiber that must be raised in although it is not parked: it is resuming another, which is.
    pub fn next_indirect(&mut self, fibers: &mut Fibers) -> Option<(Slot, Pinned)> {
        let mut place = 0;
        while let Some(token) = self.indirect.get(place).copied() {
            let Some(slot) = self.current(token).filter(|t| t.fired).map(|t| t.fiber) else {
                self.indirect.swap_remove(place); // over, or raised
                continue;
            };
            // One that is parked or queued raises it by itself when it gets control; if it does not (a lock was handed
            // to it first) and goes on into an Enumerator, its turn comes at a later look.
            match fibers.get(slot) {
                Some(record) if record.state == State::Running && !record.queued => {
                    self.indirect.swap_remove(place);
                    return Some((slot, record.fiber));
                }
                _ => place += 1,
            }
        }
        None
    }

    /// Takes the first fired timeout of a fiber (the outermost, if several have) and makes what it raises.
    #[cold]
    #[inline(never)]
    pub fn raise(selector: &Selector, slot: Slot) -> Error {
        let (exception, message) = {
            let mut inner = selector.inner.borrow_mut();
            if let Some(record) = inner.fibers.get_mut(slot) {
                record.fired = record.fired.saturating_sub(1);
            }
            let mut fired = inner.timeouts.entries.iter_mut().flatten();
            let Some(timeout) = fired.find(|t| t.fired && t.fiber == slot) else {
                return Error::new(
                    crate::selector::ruby().exception_fatal(),
                    "a timeout was lost",
                );
            };
            timeout.fired = false;
            (timeout.exception.value(), timeout.message.value())
        };
        let made = if message.is_nil() {
            raw::make_exception(&[exception])
        } else {
            raw::make_exception(&[exception, message])
        };
        made.unwrap_or_else(|error| error)
    }

    pub fn mark(&self, marker: &Marker) {
        for timeout in self.entries.iter().flatten() {
            timeout.exception.mark(marker);
            timeout.message.mark(marker);
        }
    }
}
