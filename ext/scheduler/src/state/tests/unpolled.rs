//! Worker waits for descriptors that the driver refuses.

use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
};

use reactor::{
    Descriptor, Interest, OwnerId, Ready, Token,
    pool::{Job, Outcome, Pool, WorkClass},
};

use super::{HOUR, end_wait, open, order, scheduled};
use crate::state::{
    State,
    unpolled::WorkerWait,
    wait_registration::{ReadinessWait, Watch},
};

const REFUSED: Descriptor = 1 << 20;
static ENDED: AtomicUsize = AtomicUsize::new(0);

/// A wait whose worker finishes at once.
#[derive(Debug)]
struct Done(Job<()>);

impl WorkerWait for Done {
    fn ready(&mut self) -> Ready {
        match self.0.take() {
            Some(Outcome::Done(())) => Ready::READABLE,
            _ => Ready::EMPTY,
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        ENDED.fetch_add(1, Ordering::SeqCst);
    }
}

fn begin(
    pool: &mut Pool,
    watch: Watch,
    token: Token,
    refused: io::Error,
) -> io::Result<Option<Box<dyn WorkerWait>>> {
    match watch.interest {
        Interest::WRITABLE => Ok(None),
        Interest::READABLE => {
            let job = pool.submit(token, WorkClass::Network, || ()).unwrap();
            Ok(Some(Box::new(Done(job))))
        }
        _ => Err(refused),
    }
}

fn watch(interest: Interest) -> Watch {
    Watch {
        descriptor: REFUSED,
        owner_id: OwnerId(7),
        interest,
    }
}

fn poll_until_ready(state: &mut State) -> Vec<usize> {
    loop {
        state.poll_once().unwrap();
        let ready = order(state);
        if !ready.is_empty() {
            return ready.into_iter().map(|slot| slot as usize).collect();
        }
    }
}

#[test]
fn a_worker_waits_for_what_the_driver_refuses() {
    let (mut state, script) = open();
    let refuse = || script.on_register(Err(io::ErrorKind::InvalidInput.into()));
    let slot = scheduled(&mut state, 1);
    refuse();
    let begun = state.begin_readiness(slot, watch(Interest::READABLE), None);
    assert!(begun.is_err(), "no worker waits unless it is told");

    state.wait_by_workers(begin);
    for interest in [Interest::WRITABLE, Interest::PRIORITY] {
        refuse();
        let begun = state.begin_readiness(slot, watch(interest), None);
        match interest {
            Interest::WRITABLE => assert_eq!(None, begun.unwrap(), "always ready"),
            _ => assert_eq!(io::ErrorKind::InvalidInput, begun.unwrap_err().kind()),
        }
    }

    refuse();
    let deadline = state.event_loop.deadline(HOUR);
    let begun = state.begin_readiness(slot, watch(Interest::READABLE), deadline);
    let registered = begun.unwrap().unwrap();
    assert_eq!(ReadinessWait::ByWorker, registered.1);
    assert_eq!(vec![slot], state.users_of(REFUSED, 7), "a close finds it");
    state.before_park(slot);
    assert_eq!(vec![slot as usize], poll_until_ready(&mut state));
    end_wait(&mut state, slot);
    let before = ENDED.load(Ordering::SeqCst);
    assert_eq!(
        Ready::READABLE,
        state.end_readiness(registered, Some(Ready::NOTIFIED))
    );
    assert_eq!(before + 1, ENDED.load(Ordering::SeqCst));
    assert!(state.users_of(REFUSED, 7).is_empty());
}

#[test]
fn the_end_of_the_loop_ends_the_waits_of_workers() {
    #[derive(Debug)]
    struct Idle;
    impl WorkerWait for Idle {
        fn ready(&mut self) -> Ready {
            Ready::EMPTY
        }
    }
    let (mut state, script) = open();
    state.wait_by_workers(|_, _, _, _| Ok(Some(Box::new(Idle))));
    let slot = scheduled(&mut state, 1);
    script.on_register(Err(io::ErrorKind::InvalidInput.into()));
    let begun = state.begin_readiness(slot, watch(Interest::READABLE), None);
    assert!(begun.unwrap().is_some());
    assert_eq!(1, state.users_of(REFUSED, 7).len());
    state.close()();
    assert!(state.users_of(REFUSED, 7).is_empty());
}
