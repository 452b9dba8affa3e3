//! The memory that each of very many idle waits takes. The driver is without a kernel, so that there may be more descriptors than a
//! process can have.
//!
//! ```text
//! cargo test --release --test idle_waits -- --nocapture
//! ```

#![cfg(unix)]

use std::{io, sync::Arc, time::Duration};

#[path = "support/memory.rs"]
mod memory;

use reactor::{
    Descriptor, Driver, Events, Interest, OwnerId, Reactor, Registration, Token, Wait, Wake,
};

/// Accepts every registration, and reports nothing.
struct NoKernel;

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Driver for NoKernel {
    fn register(
        &mut self,
        _: Descriptor,
        _: Token,
        _: Interest,
        _: bool,
    ) -> io::Result<Registration> {
        Ok(Registration::Kept)
    }

    fn deregister(&mut self, _: Descriptor) -> io::Result<()> {
        Ok(())
    }

    fn poll(&mut self, events: &mut Events, _: Option<Duration>) -> io::Result<()> {
        events.clear();
        Ok(())
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(NoWake)
    }

    fn descriptor(&self) -> Option<Descriptor> {
        None
    }
}

const READ: Interest = Interest::READABLE;

/// The bytes that each of so many waits takes.
fn bytes_each(count: Descriptor) -> usize {
    let mut reactor = Reactor::with_driver(Box::new(NoKernel));
    let (before, started) = (memory::held(), reactor.clock());
    for descriptor in 0..count {
        let owner = OwnerId(descriptor as u64 + 1);
        let token = Token::new(descriptor as u32, 0);
        let wait = reactor.wait(descriptor, owner, READ, token);
        assert!(matches!(wait, Ok(Wait::Pending(_))));
    }
    let begun = started.elapsed();
    // The first re-arms find that they last.
    let due = started + Duration::from_millis(100);
    while reactor.statistics().rearmed < count as u64 {
        reactor.collect_at(due, &mut Events::new()).unwrap();
    }
    let bytes = (memory::held() - before) as usize / count as usize;

    println!("{count} waits: {bytes} bytes each, begun in {begun:?}");
    bytes
}

#[test]
fn a_wait_takes_its_record_and_little_more() {
    memory::start();
    let counts: &[Descriptor] = match cfg!(miri) || cfg!(debug_assertions) {
        true => &[1_000, 10_000],
        false => &[1_000, 10_000, 100_000, 1_000_000],
    };
    for count in counts {
        let bytes = bytes_each(*count);
        // A record is a cache line.
        assert!(
            (64..80).contains(&bytes),
            "{count} waits: {bytes} bytes each"
        );
    }
}
