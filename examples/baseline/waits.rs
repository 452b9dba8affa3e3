//! Waits without descriptors: timers, and two threads that exchange a value.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use super::{
    poll::Poll,
    report::{check, measure, plainly},
};

/// Ten sleeps of 1 to 10 ms in each of `count` tasks: a heap of deadlines, and the timeout of epoll.
pub fn sleeps(count: usize) -> io::Result<()> {
    // epoll_wait(2) returns late by the timer slack of the thread, 50 us; see prctl(2), PR_SET_TIMERSLACK.
    measure(count, all_sleeps, plainly)
}

fn all_sleeps(count: usize) -> io::Result<()> {
    let mut poll = Poll::new()?;
    let length = |task: usize, turn: usize| Duration::from_millis((task + turn) as u64 % 10 + 1);
    let start = Instant::now();
    let mut timers: BinaryHeap<Reverse<(Instant, usize, usize)>> = (0..count)
        .map(|task| Reverse((start + length(task, 0), task, 0)))
        .collect();
    let mut woken = 0;
    while let Some(&Reverse((due, task, turn))) = timers.peek() {
        let now = Instant::now();
        if due > now {
            poll.wait(Some(due - now))?;
            continue;
        }
        timers.pop();
        woken += 1;
        if turn < 9 {
            timers.push(Reverse((now + length(task, turn + 1), task, turn + 1)));
        }
    }
    check(woken, 10 * count, "sleeps")
}

/// Round trips of a value between two threads.
pub fn queue(count: usize) -> io::Result<()> {
    let (there, taken) = channel::<usize>();
    let (back, answers) = channel::<usize>();
    let other = thread::spawn(move || {
        while let Ok(value) = taken.recv() {
            if back.send(value).is_err() {
                return;
            }
        }
    });
    let rounds = |count: usize| -> io::Result<()> {
        for turn in 0..count {
            there.send(turn).map_err(io::Error::other)?;
            check(answers.recv().map_err(io::Error::other)?, turn, "the value")?;
        }
        Ok(())
    };
    measure(count, rounds, plainly)?;
    drop(there);
    other
        .join()
        .map_err(|_| io::Error::other("the other thread failed"))
}
