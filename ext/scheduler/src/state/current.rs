//! Which fiber is running, and scheduler-wide state: the root fiber, errors, and what is raised from outside.

use std::{collections::VecDeque, time::Instant};

use reactor::Token;

use crate::state::{
    fiber::Slot,
    object_ref::ObjectRef,
    wait::{FiberId, Pending},
};

/// The proxy of an operation, and the exception that the VM wants raised in the operation. From Ruby 4.1 on, the VM
/// passes the proxy instead of the fiber.
pub type ProxyRaise = [ObjectRef; 2];

#[derive(Debug, Default)]
pub struct Current {
    /// The running fiber, as far as the scheduler knows: the fiber to which it last switched.
    pub running: Option<Slot>,
    /// The fiber for which the running fiber runs, or last ran, if the scheduler did not create the running fiber.
    pub resumer: Option<FiberId>,
    /// Some fiber may have been killed without the hooks noticing.
    pub kill_suspected: bool,
    /// The fiber that the VM resumes when a fiber ends. It waits in `fiber` or `drain`, and was not created by the
    /// scheduler.
    pub root: Option<Slot>,
    /// A fiber has just ended, so the VM itself switches to the next one.
    just_ended: bool,
    /// An exception raised in another fiber but meant for the root fiber.
    pub fatal_error: Option<ObjectRef>,
    /// The root fiber is to run the thread's pending interrupts.
    pub has_interrupts_for_root: bool,
    /// Why fibers are being cancelled until none are left.
    pub cancelling: Option<ObjectRef>,
    /// The number of live fibers that the scheduler has cancelled.
    cancelled: usize,
    /// The first error that ended a fiber while others kept running. The root fiber raises it when all have ended.
    pub first_error: Option<ObjectRef>,
    /// The wait after which a fiber last started another fiber, and since when the starter has done nothing else.
    spawn_streak: Option<(Token, Instant)>,
    pub proxy_raises: VecDeque<ProxyRaise>,
}

impl Current {
    /// The fiber no longer has a record, and its slot will be reused.
    pub fn forget_running(&mut self, slot: Slot) {
        if self.running == Some(slot) {
            self.running = None;
        }
    }

    /// Called when `slot` has control again. Returns the fiber that had control before, if it gave up control without
    /// ending or parking.
    pub fn resume(&mut self, slot: Slot) -> Option<Slot> {
        let left = self.running.replace(slot);
        let ended = std::mem::take(&mut self.just_ended);
        left.filter(|left| !ended && *left != slot)
    }

    /// The running fiber has ended.
    pub fn on_end(&mut self, was_cancelled: bool) {
        self.just_ended = true;
        self.cancelled -= usize::from(was_cancelled);
    }

    /// Called when the scheduler cancels a fiber, for the first time unless it `was_cancelled`.
    pub fn count_cancelled(&mut self, was_cancelled: bool) {
        self.cancelled += usize::from(!was_cancelled);
    }

    /// See [`State::cancels_again`](crate::state::State::cancels_again).
    pub fn cancels_again(&self) -> Option<ObjectRef> {
        self.cancelling.filter(|_| self.cancelled == 0)
    }

    pub fn has_pending_for_root(&self) -> bool {
        self.fatal_error.is_some() || self.has_interrupts_for_root
    }

    /// Takes the exception or the interrupts pending for the root fiber, if `slot` is the root fiber.
    pub fn take_pending_for_root(&mut self, slot: Slot, is_scheduled: bool) -> Option<Pending> {
        let is_root = self.root.is_none_or(|root| root == slot);
        if !is_root || is_scheduled {
            return None;
        }
        if let Some(error) = self.fatal_error.take() {
            return Some(Pending::Raise(error));
        }
        std::mem::take(&mut self.has_interrupts_for_root).then_some(Pending::Interrupts)
    }

    /// Since when the fiber has only started other fibers, without a wait; `None` if it has started none since its last
    /// wait.
    pub fn take_spawn_streak(&mut self, token: Token) -> Option<Instant> {
        let streak = self.spawn_streak.take().filter(|(last, _)| *last == token);
        streak.map(|(_, since)| since)
    }

    pub fn set_spawn_streak(&mut self, token: Token, since: Instant) {
        self.spawn_streak = Some((token, since));
    }

    pub(super) fn for_each_object(&self, visit: &mut impl FnMut(ObjectRef)) {
        let errors = [self.fatal_error, self.first_error, self.cancelling]
            .into_iter()
            .flatten();
        let raises = self.proxy_raises.iter().flatten().copied();
        errors.chain(raises).for_each(visit);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use reactor::Token;

    use super::{Current, ObjectRef, Pending};

    const ERROR: ObjectRef = ObjectRef::new(8);

    #[test]
    fn a_fiber_that_gave_control_away_without_parking_is_told() {
        let mut current = Current {
            running: Some(2),
            ..Current::default()
        };
        assert_eq!(Some(2), current.resume(1));
        assert_eq!(None, current.resume(1));
        current.running = Some(2);
        current.on_end(false);
        assert_eq!(None, current.resume(1));
        current.running = Some(3);
        assert_eq!(Some(3), current.resume(1));
    }

    #[test]
    fn a_fatal_error_is_raised_in_the_root_fiber_only() {
        let mut current = Current {
            root: Some(1),
            fatal_error: Some(ERROR),
            ..Current::default()
        };
        assert_eq!(None, current.take_pending_for_root(2, false));
        assert_eq!(None, current.take_pending_for_root(1, true));
        assert_eq!(
            Some(Pending::Raise(ERROR)),
            current.take_pending_for_root(1, false)
        );
        assert_eq!(None, current.take_pending_for_root(1, false));
    }

    #[test]
    fn what_is_pending_for_the_thread_is_run_once_by_the_root_fiber_after_an_error() {
        let mut current = Current {
            root: Some(1),
            fatal_error: Some(ERROR),
            has_interrupts_for_root: true,
            ..Current::default()
        };
        assert_eq!(None, current.take_pending_for_root(2, false));
        let all = std::iter::from_fn(|| current.take_pending_for_root(1, false));
        assert_eq!(
            vec![Pending::Raise(ERROR), Pending::Interrupts],
            all.collect::<Vec<_>>()
        );
        assert!(!current.has_pending_for_root());
    }

    #[test]
    fn without_a_root_fiber_any_foreign_fiber_takes_a_fatal_error() {
        let mut current = Current {
            fatal_error: Some(ERROR),
            ..Current::default()
        };
        assert_eq!(None, current.take_pending_for_root(2, true));
        assert_eq!(
            Some(Pending::Raise(ERROR)),
            current.take_pending_for_root(2, false)
        );
    }

    #[test]
    fn a_wait_ends_a_spawn_streak() {
        let (mut current, since) = (Current::default(), Instant::now());
        current.set_spawn_streak(Token::new(1, 1), since);
        assert_eq!(Some(since), current.take_spawn_streak(Token::new(1, 1)));
        current.set_spawn_streak(Token::new(1, 1), since);
        assert_eq!(None, current.take_spawn_streak(Token::new(1, 2)));
        assert_eq!(None, current.take_spawn_streak(Token::new(1, 1)));
    }
}
