//! The Ruby buffers that workers of the pool read files into at the moment.
//!
//! The fiber that owns the buffer stays parked until the worker is done, so the memory stays valid. A fiber that the end of the
//! scheduler abandons does not return, so that end waits until no buffer is lent.

use std::sync::{
    Arc,
    mpsc::{Receiver, Sender, channel},
};

/// One of them, until it is dropped.
pub type LentBuffer = Arc<Sender<()>>;

/// How many buffers are in flight.
#[derive(Debug)]
pub struct LentBuffers {
    lent: LentBuffer,
    /// Nothing is ever sent: it disconnects when no buffer is lent.
    returned: Receiver<()>,
}

impl Default for LentBuffers {
    fn default() -> Self {
        let (lent, returned) = channel();
        let lent = Arc::new(lent);
        Self { lent, returned }
    }
}

impl LentBuffers {
    pub fn lend(&self) -> LentBuffer {
        self.lent.clone()
    }

    pub fn count(&self) -> usize {
        Arc::strong_count(&self.lent) - 1
    }

    /// Blocks until none is lent.
    pub fn wait_until_returned(self) {
        drop(self.lent);
        _ = self.returned.recv();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::LentBuffers;

    #[test]
    fn the_end_waits_for_every_buffer() {
        let buffers = LentBuffers::default();
        let (first, second) = (buffers.lend(), buffers.lend());
        assert_eq!(2, buffers.count());
        drop(first);
        assert_eq!(1, buffers.count());
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            buffers.wait_until_returned();
            sender.send(()).unwrap();
        });
        assert!(receiver.try_recv().is_err());
        drop(second);
        assert_eq!(Ok(()), receiver.recv());
        thread.join().unwrap();
        LentBuffers::default().wait_until_returned();
    }
}
