//! Random histories of one fiber whose trap handlers wait during its waits, checked against a model: a stack of the
//! levels around the running code.

use reactor::Token;

use crate::state::{
    fiber::Slot,
    fiber_table::FiberTable,
    object_ref::ObjectRef,
    wait::{Pending, Purpose, WaitStatus, WakeCause},
};

/// One level around the running code or the current wait.
#[derive(Debug)]
enum Level {
    Wait {
        token: Token,
        blocker: Option<usize>,
        over: Option<WakeCause>,
        exception: Option<ObjectRef>,
    },
    Timeout {
        token: Token,
        exception: ObjectRef,
        is_expired: bool,
        /// The wait that had been answered when it expired.
        spares: Option<Token>,
    },
}

fn is_answer(cause: WakeCause) -> bool {
    cause != WakeCause::Interrupted
}

struct History {
    random: u64,
    fibers: FiberTable,
    slot: Slot,
    levels: Vec<Level>,
    kills: bool,
    objects: usize,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut fibers = FiberTable::default();
        let slot = fibers.insert(ObjectRef::new(0x1000), true);
        Self {
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            fibers,
            slot,
            levels: Vec::new(),
            kills: false,
            objects: 0,
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % limit
    }

    fn object(&mut self) -> ObjectRef {
        self.objects += 1;
        ObjectRef::new(8 * self.objects)
    }

    fn is_in_wait(&self) -> bool {
        matches!(self.levels.last(), Some(Level::Wait { .. }))
    }

    /// Begins a wait: the program's, or a handler's during another wait.
    fn begin_wait(&mut self) {
        let blocker = [None, Some(8), Some(16)][self.below(3)];
        let purpose = blocker.map_or(
            Purpose::Readiness {
                io_number: 5,
                events: 1,
            },
            |blocker| Purpose::Block {
                blocker,
                sleeps: false,
                has_limit: true,
            },
        );
        self.levels.push(Level::Wait {
            token: self.fibers.begin_wait(self.slot, purpose),
            blocker,
            over: None,
            exception: None,
        });
    }

    /// Begins a timeout block: the program's, or a handler's.
    fn begin_timeout(&mut self) {
        let exception = self.object();
        let token = super::begin_timeout(&mut self.fibers, self.slot, exception);
        self.levels.push(Level::Timeout {
            token,
            exception,
            is_expired: false,
            spares: None,
        });
    }

    /// Ends the innermost level.
    fn end(&mut self) {
        match self.levels.pop() {
            Some(Level::Wait { token, .. }) => self.fibers.end_wait(token),
            Some(Level::Timeout { token, .. }) => assert!(self.fibers.end_timeout(token).is_some()),
            None => {}
        }
    }

    /// Wakes one of the levels.
    fn wake(&mut self) {
        if self.levels.is_empty() {
            return;
        }
        let place = self.below(self.levels.len());
        let cause = [
            WakeCause::READABLE,
            WakeCause::Elapsed,
            WakeCause::Unblocked,
        ][self.below(3)];
        let inside = self.levels[place..].iter();
        let answered = inside.filter_map(|level| match level {
            Level::Wait { token, over, .. } => Some(over.is_some_and(is_answer).then_some(*token)),
            Level::Timeout { .. } => None,
        });
        let answered = answered.take(1).flatten().next();
        match &mut self.levels[place] {
            Level::Timeout {
                token,
                is_expired,
                spares,
                ..
            } => {
                self.fibers.expire(*token, false);
                if !*is_expired {
                    *spares = answered;
                }
                *is_expired = true;
            }
            Level::Wait { token, over, .. } => {
                let is_innermost = self.fibers.wake(*token, cause);
                let continues = over.is_none();
                let noted = !is_innermost && super::wake(&mut self.fibers, *token, cause);
                assert_eq!(continues, is_innermost || noted);
                let beats_limit = *over == Some(WakeCause::Elapsed) && cause == WakeCause::READABLE;
                *over = over.filter(|_| !beats_limit).or(Some(cause));
            }
        }
    }

    /// Raises an exception in the innermost wait for readiness.
    fn interrupt(&mut self) {
        let raised = self.object();
        let found = self.levels.iter_mut().rev().find_map(|level| match level {
            Level::Wait {
                token,
                blocker: None,
                over: over @ None,
                exception,
                ..
            } => {
                (*over, *exception) = (Some(WakeCause::Interrupted), Some(raised));
                Some(*token)
            }
            _ => None,
        });
        let mut waits = self.fibers.waits(self.slot);
        let meant = waits.find(|(_, wait)| wait.ends_by_exception_for(5));
        assert_eq!(found, meant.map(|(token, _)| token));
        drop(waits);
        if let Some(token) = found {
            self.fibers.wait_mut(token).unwrap().exception = raised;
            if !self.fibers.wake(token, WakeCause::Interrupted) {
                super::wake(&mut self.fibers, token, WakeCause::Interrupted);
            }
        }
    }

    /// Kills the fiber while it waits.
    fn kill(&mut self) {
        if let Some(Level::Wait {
            over, exception, ..
        }) = self.levels.last_mut()
        {
            self.fibers[self.slot].cancel(Pending::Kill);
            let token = self.fibers.wait_token(self.slot);
            self.fibers.wake(token, WakeCause::Interrupted);
            *over = over.or(Some(WakeCause::Interrupted));
            *exception = None;
            self.kills = true;
        }
    }

    /// The waits that an `unblock` for this object may end are exactly those that wait for it.
    fn find_blocked(&mut self) {
        let object = [8, 16][self.below(2)];
        let waits = self.fibers.waits(self.slot);
        let found = waits.filter(|(_, wait)| wait.is_block() && wait.is_blocked_by(object));
        let found: Vec<_> = found.map(|(token, _)| token).collect();
        let levels = self.levels.iter().rev();
        let expected = levels.filter_map(|level| match level {
            Level::Wait {
                token,
                blocker: Some(blocker),
                over: None,
                ..
            } if *blocker == object => Some(*token),
            _ => None,
        });
        assert_eq!(expected.collect::<Vec<_>>(), found);
    }

    /// The fiber runs during a wait. The levels that have been woken end.
    fn poll(&mut self) {
        let outermost_expired = self.outermost_expired();
        let Some(Level::Wait {
            over, exception, ..
        }) = self.levels.last_mut()
        else {
            return;
        };
        let expected = if *over == Some(WakeCause::Unblocked) {
            WaitStatus::Ended(WakeCause::Unblocked)
        } else if let Some(exception) = exception.take() {
            WaitStatus::Raise(Pending::Raise(exception))
        } else if std::mem::take(&mut self.kills) {
            WaitStatus::Raise(Pending::Kill)
        } else if outermost_expired.is_some() {
            WaitStatus::TimedOut
        } else {
            over.map_or(WaitStatus::Waiting, WaitStatus::Ended)
        };
        assert_eq!(
            expected,
            self.fibers.take_status(self.slot),
            "{:?}",
            self.levels
        );
        if expected == WaitStatus::TimedOut {
            let place = outermost_expired.unwrap();
            let raise = self.fibers.take_expired(self.slot);
            let Level::Timeout {
                exception,
                token,
                is_expired,
                ..
            } = &mut self.levels[place]
            else {
                panic!("no timeout");
            };
            assert_eq!(Some(*exception), raise.map(|raise| raise.0));
            *is_expired = false;
            assert_eq!(None, self.fibers.expire(*token, false), "it expires once");
            // The timeout is raised, and unwinds its block.
            while self.levels.len() > place {
                self.end();
            }
        } else if expected != WaitStatus::Waiting {
            self.end();
        }
    }

    /// The outermost expired one of the timeouts directly around the innermost wait, as the index of its level. Not one that
    /// expired after the answer.
    fn outermost_expired(&self) -> Option<usize> {
        let around = self.levels.len().checked_sub(1)?;
        let levels = self.levels[..around].iter().enumerate().rev();
        let own = levels.take_while(|(_, level)| matches!(level, Level::Timeout { .. }));
        let wait = self.fibers.wait_token(self.slot);
        let expired = own.filter(|(_, level)| match level {
            Level::Timeout {
                is_expired, spares, ..
            } => *is_expired && *spares != Some(wait),
            Level::Wait { .. } => false,
        });
        expired.last().map(|(place, _)| place)
    }

    fn step(&mut self) {
        match self.below(10) {
            0 | 1 if self.levels.len() < 8 => self.begin_wait(),
            2 if self.levels.len() < 8 => self.begin_timeout(),
            3 => self.end(),
            4 | 5 => self.wake(),
            6 => self.interrupt(),
            7 if self.below(4) == 0 => self.kill(),
            8 => self.find_blocked(),
            _ => self.poll(),
        }
        let parked = self.fibers.parked(self.slot);
        let expected = match self.levels.last() {
            Some(Level::Wait {
                token, over: None, ..
            }) => Some(*token),
            _ => None,
        };
        assert_eq!(expected, parked);
        let record = &self.fibers[self.slot];
        assert_eq!(self.is_in_wait(), record.is_in_wait());
    }
}

#[test]
fn random_histories_are_those_of_a_stack() {
    for seed in 1..=1000 {
        let mut history = History::new(seed);
        for _ in 0..200 {
            history.step();
        }
        while !history.levels.is_empty() {
            history.end();
        }
        let record = &history.fibers[history.slot];
        assert!(record.strand().is_empty(), "nothing is left");
    }
}
