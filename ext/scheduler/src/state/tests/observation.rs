//! Descriptors in use, virtual time, deadlocks, marking, and what observers see.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use reactor::pool::WorkClass;

use super::{
    ERROR, HOUR, NIL, OTHER_ERROR, block, end_wait, fiber, open, order, park_on, scheduled,
};
use crate::state::{State, object_ref::ObjectRef, trace::Trace, wait::WaitHook};

// --- jobs, descriptors in use, virtual time, garbage -------------------------------------------------------------

#[test]
fn the_end_of_the_scheduler_drops_the_jobs_of_fibers_that_never_go_on() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    let (owned, dropped) = mpsc::channel::<()>();
    let work = move || owned;
    let job = state.begin_job(slot, 0, |pool, token| {
        pool.submit(token, WorkClass::Disk, work)
    });
    let kept = state.keep_job(job.unwrap());
    state.close()();
    let left = dropped.recv_timeout(Duration::from_secs(60));
    assert_eq!(Err(mpsc::RecvTimeoutError::Disconnected), left);
    assert!(state.job::<mpsc::Sender<()>>(kept).is_none());
    assert!(state.take_job::<mpsc::Sender<()>>(kept).is_none());
}

#[test]
fn the_end_of_the_scheduler_waits_for_every_buffer_that_a_worker_fills() {
    let (mut state, _script) = open();
    let lent = [state.worker_buffers.clone(), state.worker_buffers.clone()];
    let (sender, closed) = mpsc::channel();
    let close = state.close();
    let thread = std::thread::spawn(move || {
        close();
        sender.send(()).unwrap();
    });
    for buffer in lent {
        assert!(closed.try_recv().is_err());
        drop(buffer);
    }
    assert_eq!(Ok(()), closed.recv());
    thread.join().unwrap();
}

#[test]
fn a_slow_write_is_remembered_a_hundred_times_as_long() {
    let (mut state, now) = (State::default(), Instant::now());
    let after = |milliseconds| now + Duration::from_millis(milliseconds);
    assert!(state.is_write_quick(now));
    state.record_write(now, Duration::from_millis(2));
    assert!(!state.is_write_quick(after(199)));
    assert!(state.is_write_quick(after(200)));
    state.record_write(now, Duration::from_micros(10));
    assert!(state.is_write_quick(now));
}

#[test]
fn the_last_end_of_a_use_wakes_a_closing_fiber() {
    let (mut state, _script) = open();
    let (worker, closer) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    assert!(!state.begin_wait_until_unused(closer, 5));
    state.descriptors_in_use.begin((5, worker));
    assert!(state.begin_wait_until_unused(closer, 5));
    state.descriptors_in_use.end((5, worker));
    assert_eq!(None, state.release_closers());
    assert!(!state.descriptors_in_use.is_in_use(5));
    assert_eq!(vec![closer], order(&mut state));
}

#[test]
fn virtual_time_advances_only_when_no_fiber_can_run() {
    let (mut state, _script) = open();
    let (sleeper, worker) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    assert!(state.event_loop.freeze_clock(Duration::from_millis(1)));
    state.begin_block(sleeper, true, HOUR, None).unwrap();
    assert_eq!(
        Some(Duration::from_millis(1)),
        state.settle_before_advance()
    );
    state.yield_now(worker);
    assert_eq!(None, state.settle_before_advance());
    state.advance_if_idle();
    assert_eq!(Some(Duration::ZERO), state.event_loop.virtual_elapsed());
    assert_eq!(vec![worker], order(&mut state));
    state.begin_wait_until_unused(worker, 5);
    state.descriptors_in_use.begin((5, worker));
    assert!(state.begin_wait_until_unused(worker, 5));
    assert_eq!(None, state.settle_before_advance(), "work goes on");
    state.descriptors_in_use.end((5, worker));
    state.release_closers();
    assert_eq!(vec![worker], order(&mut state));
    end_wait(&mut state, worker);
    state.event_loop.hold_clock(true);
    assert_eq!(None, state.settle_before_advance());
    state.event_loop.hold_clock(false);
    state.advance_if_idle();
    assert_eq!(HOUR, state.event_loop.virtual_elapsed());
    state.poll_once().unwrap();
    assert_eq!(vec![sleeper], order(&mut state));
}

#[test]
fn a_sleep_in_which_only_an_unblock_helps_may_be_a_deadlock() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    block(&mut state, slot);
    assert!(!state.may_be_deadlocked());
    assert!(state.begin_sleep(slot, None).is_some());
    assert_eq!(None, state.progress_count());
    state.wake_thread();
    state.end_sleep();
    assert!(state.may_be_deadlocked());
    state.unblock(fiber(1), Some(NIL));
    assert!(!state.may_be_deadlocked());
    assert!(state.begin_sleep(slot, None).is_none());
}

#[test]
fn every_object_is_marked() {
    let (mut state, _script) = open();
    let (first, second) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    state.begin_timeout(first, (ERROR, NIL), Some(Duration::from_secs(1)));
    park_on(&mut state, second, 5);
    state.interrupt(second, OTHER_ERROR);
    state.push_proxy_raise([ObjectRef::new(24), ObjectRef::new(32)]);
    state.keep_error(ObjectRef::new(40), true);
    state.keep_error(ObjectRef::new(48), false);
    let mut marked = Vec::new();
    state.for_each_object(|object| marked.push(object.address()));
    marked.sort_unstable();
    let fibers = [1, 2].map(|number| fiber(number).address());
    let expected = [&[4, 8, 16, 24, 32, 40, 48][..], &fibers].concat();
    assert_eq!(expected, marked);
}

#[test]
fn rows_tell_what_each_fiber_waits_for() {
    let (mut state, _script) = open();
    let (reader, sleeper) = (scheduled(&mut state, 1), scheduled(&mut state, 2));
    park_on(&mut state, reader, 5);
    block(&mut state, sleeper);
    scheduled(&mut state, 3);
    let rows = state.fiber_rows();
    let states: Vec<_> = rows.iter().map(|row| row.state).collect();
    assert_eq!(["waiting", "waiting", "running"], states[..]);
    assert_eq!((5, 1), (rows[0].io_number, rows[0].events));
    assert!(rows[1].waits_for_unblock_only && rows[1].waiting_since.is_some());
    let hooks: Vec<_> = state.wait_hooks().map(WaitHook::name).collect();
    assert_eq!(["io", "block"], hooks[..]);
    let parked = state.statistics().into_iter().find(|row| row.0 == "parked");
    assert_eq!(Some(("parked", 2)), parked);
}

#[test]
fn a_trace_tells_what_happened_to_a_fiber() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    state.trace = Some(Box::new(Trace::new(100)));
    block(&mut state, slot);
    state.unblock(fiber(1), Some(NIL));
    state.on_resumed(slot);
    let wait = state.fibers.wait_token(slot);
    state.after_park(wait);
    state.end_fiber(fiber(1));
    let moments = state.trace.take().unwrap().moments;
    let names: Vec<_> = moments.iter().map(|moment| moment.0.name()).collect();
    assert_eq!(["park", "ready", "control", "unpark", "end"], names[..]);
}

#[test]
fn the_longest_hold_since_it_was_last_taken_is_that_of_the_fiber_that_polls_or_ends() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    state.before_switch(slot);
    state.poll_once().unwrap();
    assert_eq!(None, state.take_hold(), "nobody watches");
    state.watch_holds(Duration::from_secs(3600));
    state.poll_once().unwrap();
    assert_eq!(None, state.take_hold(), "it was short");
    state.watch_holds(Duration::ZERO);
    state.poll_once().unwrap();
    let holder = |state: &mut State| state.take_hold().map(|(fiber, _)| fiber);
    assert_eq!(Some(Some(fiber(1))), holder(&mut state));
    assert_eq!(None, holder(&mut state));
    state.end_fiber(fiber(1));
    let mut marked = Vec::new();
    state.for_each_object(|object| marked.push(object));
    assert!(marked.contains(&fiber(1)));
    assert_eq!(Some(Some(fiber(1))), holder(&mut state));
}

#[test]
fn what_a_starter_has_held_before_is_no_hold_of_the_fiber_it_starts() {
    let (mut state, _script) = open();
    state.watch_holds(Duration::ZERO);
    let root = state.enter(fiber(0)).unwrap().slot;
    let first = scheduled(&mut state, 1);
    let start = state.begin_start(root, first);
    assert_eq!(None, state.take_hold(), "no fiber was held up");
    state.end_start(start);
    let second = scheduled(&mut state, 2);
    state.begin_start(root, second);
    let holder = |state: &mut State| state.take_hold().map(|(fiber, _)| fiber);
    assert_eq!(Some(None), holder(&mut state));
    let third = scheduled(&mut state, 3);
    state.begin_start(second, third);
    assert_eq!(Some(Some(fiber(2))), holder(&mut state));
}

#[test]
fn a_fiber_has_waited_for_as_long_as_the_one_it_has_resumed() {
    let (mut state, _script) = open();
    let slot = scheduled(&mut state, 1);
    state.before_switch(slot);
    let enumerator = state.enter(fiber(2)).unwrap().slot;
    let waits = |state: &State| {
        state
            .fiber_rows()
            .iter()
            .all(|row| row.waiting_since.is_some())
    };
    assert!(!waits(&state));
    block(&mut state, enumerator);
    assert!(waits(&state));
}
