//! Waits for descriptors, for time and for an `unblock`, and the timeouts around them.

use std::time::Duration;

use reactor::{
    Attempt, Deadline, Descriptor, DescriptorReadiness, Interest, OwnerId, Ready, TimerId, Token,
    Wait, WaitId,
};

use crate::state::{
    State,
    fiber::Slot,
    object_ref::ObjectRef,
    strand::{TimeoutError, TimeoutProgress},
    wait::{Purpose, SEVERAL, WakeCause},
};

/// A descriptor, and the number of the IO object it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    pub descriptor: Descriptor,
    pub owner_id: OwnerId,
    pub interest: Interest,
}

/// Where a wait for readiness is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadinessWait {
    Polled(WaitId),
    /// The kernel cannot poll the file, and reports no events for it.
    Unpolled,
    /// The kernel cannot poll it, so a worker waits.
    ByWorker,
}

/// The events for which a descriptor is ready if the kernel cannot poll it.
pub fn ready_if_unpolled(interest: Interest) -> Interest {
    interest.without(Interest::PRIORITY).unwrap_or(interest)
}

/// The registrations of one wait. They are undone when it ends.
pub type Registered = (Token, ReadinessWait, Option<TimerId>);

/// The registrations of a wait on several objects.
#[derive(Debug)]
pub struct RegisteredAny {
    token: Token,
    waits: Vec<ReadinessWait>,
    timer: Option<TimerId>,
}

/// The result of beginning a wait on several objects.
#[derive(Debug)]
pub enum BegunAny {
    Parked,
    /// One of the objects is always ready.
    Ready,
    Failed(std::io::Error),
}

impl State {
    // --- descriptors ---------------------------------------------------------------------------------------------

    /// Registers a wait with this token. `None` if the kernel cannot poll the descriptor: it is then always ready,
    /// except for urgent data.
    ///
    /// # Errors
    ///
    /// See [`Reactor::wait`](reactor::Reactor::wait).
    pub(super) fn register(
        &mut self,
        watch: Watch,
        token: Token,
    ) -> std::io::Result<Option<ReadinessWait>> {
        let Some(reactor) = self.event_loop.reactor.as_mut() else {
            return Ok(None);
        };
        match reactor.wait(watch.descriptor, watch.owner_id, watch.interest, token) {
            Ok(Wait::Pending(wait)) => Ok(Some(ReadinessWait::Polled(wait))),
            Ok(Wait::Ready(Interest::PRIORITY)) => {
                Ok(Some(self.unpolled.push(watch.descriptor, token)))
            }
            Ok(Wait::Ready(_)) => Ok(None),
            Err(error) => self.unpolled.begin(watch, token, error),
        }
    }

    /// Undoes the registration, unless an event has ended it, with `answer`. Returns the events for which the descriptor was
    /// ready.
    pub(super) fn unregister(
        &mut self,
        token: Token,
        wait: ReadinessWait,
        answer: Option<Ready>,
    ) -> Ready {
        match (wait, answer) {
            (ReadinessWait::Polled(_), Some(ready)) => ready,
            (ReadinessWait::Polled(wait), None) => {
                self.end_wait(wait);
                Ready::EMPTY
            }
            _ => self.unpolled.end(token),
        }
    }

    fn end_wait(&mut self, wait: WaitId) -> bool {
        let reactor = self.event_loop.reactor.as_mut();
        reactor.is_some_and(|reactor| reactor.end(wait))
    }

    /// Begins a wait for readiness. `None` if the descriptor is always ready. For errors see
    /// [`Reactor::wait`](reactor::Reactor::wait).
    pub fn begin_readiness(
        &mut self,
        slot: Slot,
        watch: Watch,
        deadline: Option<Deadline>,
    ) -> std::io::Result<Option<Registered>> {
        let purpose = Purpose::Readiness {
            io_number: watch.owner_id.0,
            events: watch.interest.bits(),
        };
        let token = self.fibers.begin_wait(slot, purpose);
        match self.register(watch, token) {
            Ok(Some(wait)) => Ok(Some((token, wait, self.event_loop.timer(deadline, token)))),
            not_begun => {
                self.fibers.end_wait(token);
                not_begun.map(|_| None)
            }
        }
    }

    /// Undoes the registrations of a wait, which an event may have ended with `answer`. Returns the events for which the
    /// descriptor was ready.
    pub fn end_readiness(
        &mut self,
        (token, wait, timer): Registered,
        answer: Option<Ready>,
    ) -> Ready {
        self.event_loop.cancel_timer(timer);
        self.unregister(token, wait, answer)
    }

    /// Begins one wait on several descriptors. `on_token` gets the wait's token, under which work reports its end;
    /// `has_work` says whether there is any work.
    pub fn begin_any(
        &mut self,
        slot: Slot,
        watches: impl ExactSizeIterator<Item = Watch>,
        timeout: Option<Duration>,
        has_work: bool,
        on_token: impl FnOnce(Token),
    ) -> (RegisteredAny, BegunAny) {
        let io_number = SEVERAL;
        let purpose = match has_work {
            false => Purpose::Readiness {
                io_number,
                events: 0,
            },
            true => Purpose::Work { io_number },
        };
        let token = self.fibers.begin_wait(slot, purpose);
        let mut waits = Vec::with_capacity(watches.len());
        let mut begun = BegunAny::Parked;
        for watch in watches {
            match self.register(watch, token) {
                Ok(Some(wait)) => {
                    waits.push(wait);
                    continue;
                }
                Ok(None) => begun = BegunAny::Ready,
                Err(error) => begun = BegunAny::Failed(error),
            }
            break;
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

    /// Ends the wait. If its fiber has parked, the wait has already ended, and another one is innermost. Returns which
    /// descriptors had an event, up to the first that could not be registered.
    pub fn end_any(&mut self, registered: RegisteredAny) -> Vec<bool> {
        self.fibers.end_wait(registered.token);
        self.event_loop.cancel_timer(registered.timer);
        let waits = registered.waits.into_iter();
        let had_event = |wait| match wait {
            ReadinessWait::Polled(wait) => !self.end_wait(wait),
            _ => !self.unpolled.end(registered.token).is_empty(),
        };
        waits.map(had_event).collect()
    }

    /// The tokens of all unanswered waits for the descriptor.
    pub(super) fn waiters(&self, descriptor: Descriptor) -> Vec<Token> {
        let reactor = self.event_loop.reactor.as_ref();
        let mut tokens = reactor.map_or_else(Vec::new, |reactor| reactor.waiters(descriptor));
        tokens.extend(self.unpolled.waiters(descriptor));
        tokens
    }

    /// The reactor's cached readiness of the descriptor; `None` once closed.
    pub fn cached_readiness(
        &self,
        descriptor: Descriptor,
        owner_id: OwnerId,
    ) -> Option<DescriptorReadiness> {
        let reactor = self.event_loop.reactor.as_ref()?;
        Some(reactor.cached_readiness(descriptor, owner_id))
    }

    /// Reports the outcome of a system call to the reactor.
    pub fn record_attempt(&mut self, watch: Watch, attempt: Attempt) {
        if let Some(reactor) = self.event_loop.reactor.as_mut() {
            reactor.attempted(watch.descriptor, watch.owner_id, watch.interest, attempt);
        }
    }

    // --- time ----------------------------------------------------------------------------------------------------

    /// Begins a wait for an `unblock`: that of `kernel_sleep` if `sleeps`, otherwise that of `block`. Without a limit,
    /// nothing else ends the wait. `None` if an `unblock` has already come.
    #[inline(always)]
    pub fn begin_block(
        &mut self,
        slot: Slot,
        sleeps: bool,
        limit: Option<Duration>,
        blocker: Option<ObjectRef>,
    ) -> Option<Option<TimerId>> {
        let purpose = Purpose::Block {
            blocker: blocker.map_or(0, ObjectRef::address),
            sleeps,
            has_limit: limit.is_some(),
        };
        let token = self.fibers.begin_block(slot, purpose)?;
        let deadline = self.event_loop.deadline(limit);
        Some(self.event_loop.timer(deadline, token))
    }

    /// Ends the wait of [`State::begin_block`] without parking. Returns whether an `unblock` had ended it.
    pub fn end_block(&mut self, slot: Slot) -> bool {
        let is_unblocked = self.fibers[slot].wake_cause() == Some(WakeCause::Unblocked);
        self.fibers.end_wait(self.fibers.wait_token(slot));
        is_unblocked
    }

    /// Begins a timeout around a block of Ruby code. Without a limit, only [`State::expire_timeout`] makes it expire.
    pub fn begin_timeout(
        &mut self,
        slot: Slot,
        raise: TimeoutError,
        limit: Option<Duration>,
    ) -> Token {
        let token = self.fibers.timeout_token(slot);
        let deadline = self.event_loop.deadline(limit);
        let timer = self.event_loop.timer(deadline, token);
        self.fibers.begin_timeout(token, raise, timer);
        token
    }

    /// Allows the fiber with this number, which the scheduler did not create, to be collected while the block runs. The
    /// timeout then ends with the fiber.
    pub fn set_collectable(&mut self, token: Token, fiber_number: u64) {
        self.fibers[token.index()].set_collectable(token.generation(), fiber_number);
    }

    /// Restarts the limit of a timeout whose block is running, unless it has expired.
    pub fn limit_timeout(&mut self, token: Token, limit: Option<Duration>) {
        let deadline = self.event_loop.deadline(limit);
        let record = self.fibers.get_mut(token.index());
        let timeout = record.and_then(|fiber| fiber.timeout_mut(token.generation()));
        let Some(timeout) = timeout.filter(|it| it.progress == TimeoutProgress::Running) else {
            return;
        };
        self.event_loop.cancel_timer(timeout.timer.take());
        timeout.timer = self.event_loop.timer(deadline, token);
    }

    /// Takes an expiry back that has not been raised. The timeout then has no limit. Returns whether there was one.
    pub fn withdraw_timeout(&mut self, token: Token) -> bool {
        let record = self.fibers.get_mut(token.index());
        let timeout = record.and_then(|fiber| fiber.timeout_mut(token.generation()));
        let Some(timeout) = timeout.filter(|it| it.progress == TimeoutProgress::Expired) else {
            return false;
        };
        timeout.progress = TimeoutProgress::Running;
        self.event_loop.cancel_timer(timeout.timer.take());
        true
    }

    /// Called when the block has ended: nothing is raised after it. Returns whether the timeout was known.
    pub fn end_timeout(&mut self, token: Token) -> bool {
        let timer = self.fibers.end_timeout(token);
        self.event_loop.cancel_timer(timer.flatten());
        timer.is_some()
    }
}
