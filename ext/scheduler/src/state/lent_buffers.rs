//! The Ruby buffers that workers of the pool read files into at the moment.
//!
//! The fiber that owns the buffer stays parked until the worker is done, so the memory stays valid. A fiber that the end of the
//! scheduler abandons does not return, so that end waits until no buffer is lent.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How many buffers are in flight.
#[derive(Clone, Debug, Default)]
pub struct LentBuffers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    count: Mutex<Count>,
    less: Condvar,
}

#[derive(Debug, Default)]
struct Count {
    in_flight: usize,
    /// A thread waits for it to become less. (A notification without a waiter costs a system call, too.)
    awaited: bool,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct LentBufferGuard(LentBuffers);

impl LentBuffers {
    pub fn begin(&self) -> LentBufferGuard {
        self.lock().in_flight += 1;
        LentBufferGuard(self.clone())
    }

    pub fn count(&self) -> usize {
        self.lock().in_flight
    }

    /// Blocks until no buffer is in flight.
    pub fn wait_until_none(&self) {
        let mut count = self.lock();
        while count.in_flight > 0 {
            count.awaited = true;
            let woken = self.0.less.wait(count);
            count = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Count> {
        self.0.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LentBufferGuard {
    fn drop(&mut self) {
        let LentBuffers(shared) = &self.0;
        let mut count = self.0.lock();
        count.in_flight -= 1;
        if count.awaited {
            shared.less.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::LentBuffers;

    #[test]
    fn the_end_waits_for_every_buffer() {
        let buffers = LentBuffers::default();
        let (first, second) = (buffers.begin(), buffers.begin());
        assert_eq!(2, buffers.count());
        drop(first);
        let (sender, receiver) = mpsc::channel();
        let waiting = buffers.clone();
        let thread = std::thread::spawn(move || {
            waiting.wait_until_none();
            sender.send(waiting.count()).unwrap();
        });
        assert!(receiver.try_recv().is_err());
        drop(second);
        assert_eq!(Ok(0), receiver.recv());
        thread.join().unwrap();
        buffers.wait_until_none();
    }
}
