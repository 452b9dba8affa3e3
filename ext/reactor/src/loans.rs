//! Memory of a waiting fiber's in the hands of a worker, who reads a file into it on another core.
//!
//! The fiber leaves only when the worker is done with it ([`Interrupted::Waits`](crate::blocking::Interrupted)), so the
//! memory stays what it is. A fiber that is given up unfinished at the end of its scheduler never leaves: so that end waits
//! until nothing is lent any more.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::{
    attempt::{self, Kind},
    raw::buffers::Lent,
};

/// How many pieces of memory are lent.
#[derive(Clone, Debug, Default)]
pub struct Loans(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    count: Mutex<Count>,
    less: Condvar,
}

#[derive(Debug, Default)]
struct Count {
    lent: usize,
    /// Somebody waits for it to become less. (To wake nobody is a system call, too.)
    awaited: bool,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Loan(Loans);

impl Loans {
    pub fn lend(&self) -> Loan {
        self.state().lent += 1;
        Loan(self.clone())
    }

    /// How many pieces of memory are lent.
    pub fn count(&self) -> usize {
        self.state().lent
    }

    /// Blocks until nothing is lent.
    pub fn settle(&self) {
        let mut state = self.state();
        while state.lent > 0 {
            state.awaited = true;
            let woken = self.0.less.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, Count> {
        self.0.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let Loans(shared) = &self.0;
        let mut state = self.0.state();
        state.lent -= 1;
        if state.awaited {
            shared.less.notify_all();
        }
    }
}

/// The most that is asked of the kernel at once. A kernel that is not preemptible (PREEMPT_NONE) lets the loop's thread go
/// on only at the end of a call: beside four fibers that read 1,000 cold MiB on two cores, a sleep of 1 ms was late by 2.1 ms
/// (p99; 3.7 in one piece), and 1,500 MiB/s were read instead of 1,200 (row cold of `bin/bench stalls`, three times in turn).
const PIECE: usize = 128 << 10;

/// Reads from a position in a file on, until the memory is full or the file ends, for as long as it takes.
///
/// At the first byte that is not in the page cache, the kernel is asked for all that is missing, and for as much again.
pub fn read(descriptor: i32, lent: &mut Lent, from: u64) -> Result<usize, Errno> {
    lent.fill(|bytes| {
        let (mut kind, mut done) = (Kind::File, 0);
        while done < bytes.len() {
            let place = from + done as u64;
            let end = bytes.len().min(done + PIECE);
            match attempt::read_file(kind, descriptor, &mut bytes[done..end], Some(place)) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(_) if kind == Kind::File => {
                    kind = Kind::Direct;
                    attempt::will_need(descriptor, place, 2 * (bytes.len() - done) as u64);
                }
                Err(_) if done > 0 => break, // who reads so far meets it again
                Err(errno) => return Err(errno),
            }
        }
        Ok(done)
    })
}
