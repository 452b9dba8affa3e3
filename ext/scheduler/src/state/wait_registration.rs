//! Waits for descriptors, for time, and for an `unblock`; and the timeouts around them.

use std::time::Duration;

use reactor::{
    Attempt, Deadline, DescriptorReadiness, Interest, OwnerId, Ready, TimerId, Token, Wait, WaitId,
};

use crate::state::{
    State,
    fiber::{FiberRecord, FiberState, Slot},
    object_ref::ObjectRef,
    timeout_after::Raise,
    unpolled_waits::UnpolledWaits,
    wait::{SEVERAL, WaitHook, WaitKind, WakeCause},
};

/// A descriptor, and the number of the IO object that has it.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    pub descriptor: i32,
    pub owner_id: OwnerId,
    pub interest: Interest,
}

/// Where a wait for readiness is registered.
#[derive(Clone, Copy, Debug)]
pub enum ReadinessWait {
    Polled(WaitId),
    /// The kernel does not poll the file, and has no event for it.
    Unpolled(Token),
}

/// The registrations of one wait, to be undone when it is over.
pub type Registered = (ReadinessWait, Option<TimerId>);

/// The registrations of a wait for several things.
#[derive(Debug)]
pub struct RegisteredAny {
    token: Token,
    waits: Vec<WaitId>,
    timer: Option<TimerId>,
}

/// The outcome of beginning a wait for several things.
#[derive(Debug)]
pub enum BegunAny {
    Parked,
    /// One of them is always ready.
    Ready,
    Failed(std::io::Error),
}

impl State {
    // --- descriptors ---------------------------------------------------------------------------------------------

    /// Begins a wait for readiness. `None` if the kernel does not poll the descriptor, which is then always ready, but not for
    /// urgent data.
    ///
    /// # Errors
    ///
    /// As [`Reactor::wait`].
    pub fn begin_readiness(
        &mut self,
        slot: Slot,
        watch: Watch,
        deadline: Option<Deadline>,
    ) -> std::io::Result<Option<Registered>> {
        let (io_number, events) = (watch.owner_id.0, watch.interest.bits());
        let token = self.fibers.begin_readiness(slot, io_number, events);
        let Some(reactor) = self.event_loop.reactor.as_mut() else {
            return Ok(None);
        };
        match reactor.wait(watch.descriptor, watch.owner_id, watch.interest, token) {
            Ok(Wait::Pending(wait)) => {
                let timer = self.event_loop.timer(deadline, token);
                Ok(Some((ReadinessWait::Polled(wait), timer)))
            }
            Ok(Wait::Ready(interest)) if UnpolledWaits::is_endless(interest) => {
                self.unpolled.insert(watch.descriptor, token);
                let timer = self.event_loop.timer(deadline, token);
                Ok(Some((ReadinessWait::Unpolled(token), timer)))
            }
            Ok(Wait::Ready(_)) => {
                self.fibers.end_wait(slot);
                Ok(None)
            }
            Err(error) => {
                self.fibers.end_wait(slot);
                Err(error)
            }
        }
    }

    /// Undoes the registrations of a wait: what the descriptor was ready for.
    pub fn end_readiness(&mut self, (wait, timer): Registered) -> Ready {
        self.event_loop.cancel_timer(timer);
        let reactor = self.event_loop.reactor.as_mut();
        match wait {
            ReadinessWait::Polled(wait) => {
                reactor.map_or(Ready::EMPTY, |reactor| reactor.end(wait))
            }
            ReadinessWait::Unpolled(token) => {
                self.unpolled.remove(token);
                Ready::EMPTY
            }
        }
    }

    /// Begins one wait for several descriptors. `on_token` gets its token, under which work reports its end;
    /// `has_work` tells whether there is any.
    pub fn begin_any(
        &mut self,
        slot: Slot,
        watches: impl ExactSizeIterator<Item = Watch>,
        timeout: Option<Duration>,
        has_work: bool,
        on_token: impl FnOnce(Token),
    ) -> (RegisteredAny, BegunAny) {
        let token = match has_work {
            false => self.fibers.begin_readiness(slot, SEVERAL, 0),
            true => self.fibers.begin_work(slot, SEVERAL),
        };
        let mut waits = Vec::with_capacity(watches.len());
        let mut begun = BegunAny::Parked;
        if let Some(reactor) = self.event_loop.reactor.as_mut() {
            for watch in watches {
                match reactor.wait(watch.descriptor, watch.owner_id, watch.interest, token) {
                    Ok(Wait::Pending(wait)) => {
                        waits.push(wait);
                        continue;
                    }
                    Ok(Wait::Ready(interest)) if UnpolledWaits::is_endless(interest) => {
                        self.unpolled.insert(watch.descriptor, token);
                        continue;
                    }
                    Ok(Wait::Ready(_)) => begun = BegunAny::Ready,
                    Err(error) => begun = BegunAny::Failed(error),
                }
                break;
            }
        }
        on_token(token);
        let deadline = self.event_loop.deadline(timeout);
        let timer = self.event_loop.timer(deadline, token);
        let registered = RegisteredAny {
            token,
            waits,
            timer,
        };
        (registered, begun)
    }

    pub fn end_any(&mut self, slot: Slot, registered: RegisteredAny) {
        self.fibers.end_wait(slot);
        self.unpolled.remove(registered.token);
        self.event_loop.cancel_timer(registered.timer);
        if let Some(reactor) = self.event_loop.reactor.as_mut() {
            for wait in registered.waits {
                reactor.end(wait);
            }
        }
    }

    /// The tokens of all waits for the descriptor that have no answer.
    pub(super) fn waiters(&self, descriptor: i32) -> Vec<Token> {
        let reactor = self.event_loop.reactor.as_ref();
        let mut tokens = reactor.map_or_else(Vec::new, |reactor| reactor.waiters(descriptor));
        tokens.extend(self.unpolled.tokens(descriptor));
        tokens
    }

    /// The reactor's record of the descriptor; `None` once closed.
    pub fn cached_readiness(
        &self,
        descriptor: i32,
        owner_id: OwnerId,
    ) -> Option<DescriptorReadiness> {
        let reactor = self.event_loop.reactor.as_ref()?;
        Some(reactor.cached_readiness(descriptor, owner_id))
    }

    /// Tells the reactor what a system call has seen.
    pub fn record_attempt(&mut self, watch: Watch, attempt: Attempt) {
        if let Some(reactor) = self.event_loop.reactor.as_mut() {
            reactor.attempted(watch.descriptor, watch.owner_id, watch.interest, attempt);
        }
    }

    // --- time ----------------------------------------------------------------------------------------------------

    /// Begins a wait for an `unblock`, with a time limit or without. `None` if an `unblock` has come already.
    pub fn begin_block(
        &mut self,
        slot: Slot,
        hook: WaitHook,
        limit: Option<Duration>,
        blocker: Option<ObjectRef>,
    ) -> Option<Option<TimerId>> {
        let blocker = blocker.map_or(0, ObjectRef::address);
        let token = self
            .fibers
            .begin_block(slot, hook, limit.is_none(), blocker)?;
        let deadline = self.event_loop.deadline(limit);
        Some(self.event_loop.timer(deadline, token))
    }

    /// Ends the wait of [`State::begin_block`] without a park. Whether an `unblock` has ended it before.
    pub fn end_block(&mut self, slot: Slot) -> bool {
        let state = self.fibers.get(slot).map(FiberRecord::state);
        self.fibers.end_wait(slot);
        state == Some(FiberState::Woken(WakeCause::Unblocked))
    }

    /// Begins a `block` in a forked child, where no driver turns: the caller looks whether it is over.
    pub fn begin_block_in_forked_child(&mut self, slot: Slot) -> Token {
        self.fibers.begin_wait(slot, WaitKind::Block)
    }

    /// Whether the wait with this token goes on.
    pub fn is_blocked(&self, token: Token) -> bool {
        self.fibers.parked(token.index()) == Some((token, WaitKind::Block))
    }

    /// Begins a timeout around a block of Ruby code. Without a limit, it fires by [`State::fire_timeout`] only.
    pub fn begin_timeout(
        &mut self,
        slot: Slot,
        raise: Raise,
        limit: Option<Duration>,
    ) -> (Token, Option<TimerId>) {
        let token = self.timeouts.insert(slot, raise, &self.fibers);
        let deadline = self.event_loop.deadline(limit);
        (token, self.event_loop.timer(deadline, token))
    }

    /// The scheduler did not make the fiber, which has this number: it may be collected while the block runs, and the timeout
    /// ends with it.
    pub fn set_collectable(
        &mut self,
        slot: Slot,
        (token, timer): (Token, Option<TimerId>),
        fiber_number: u64,
    ) {
        if let Some(record) = self.fibers.get_mut(slot) {
            record.begin_collectable_timeout(fiber_number);
            self.timeouts.set_collectable(token, slot, timer);
        }
    }

    /// The fiber in which the block runs has been collected.
    #[cold]
    pub(super) fn end_collected_timeout(&mut self, token: Token) {
        if let Some((fiber, timer)) = self.timeouts.collectable(token) {
            self.end_timeout((token, timer));
            self.leave(fiber);
        }
    }

    /// The block has ended: nothing is raised after it.
    pub fn end_timeout(&mut self, (token, timer): (Token, Option<TimerId>)) {
        self.event_loop.cancel_timer(timer);
        self.timeouts.remove(token, &mut self.fibers);
    }
}
