//! What very many idle waits take: the memory of each, and no allocation for a later wait of the same descriptor. The driver is
//! without a kernel, so that there may be more descriptors than a process can have.
//!
//! ```text
//! cargo test --release --test idle_waits -- --nocapture
//! ```

#![cfg(unix)]

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

#[path = "support/memory.rs"]
mod memory;

use reactor::{
    Attempt, Descriptor, Driver, Event, Events, Interest, OwnerId, Ready, Registration,
    Reregistration, Selector, Token, Wait, WaitId, Wake,
};

/// Accepts every registration, and reports the token that was registered last.
struct NoKernel(Token);

struct NoWake;

impl Wake for NoWake {
    fn wake(&self) -> io::Result<()> {
        Ok(())
    }
}

impl Driver for NoKernel {
    fn register(&mut self, _: Descriptor, token: Token, _: Interest) -> io::Result<Registration> {
        self.0 = token;
        Ok(Registration::Armed)
    }

    fn reregister(
        &mut self,
        _: Descriptor,
        token: Token,
        _: Interest,
    ) -> io::Result<Reregistration> {
        self.0 = token;
        Ok(Reregistration::Kept)
    }

    fn deregister(&mut self, _: Descriptor) -> io::Result<()> {
        Ok(())
    }

    fn poll(&mut self, events: &mut Events, _: Option<Duration>) -> io::Result<()> {
        events.clear();
        let (token, ready) = (self.0, Ready::READABLE);
        events.push(Event { token, ready });
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

fn begin(selector: &mut Selector, descriptor: Descriptor, now: Instant) -> WaitId {
    let owner = OwnerId(descriptor as u64 + 1);
    let token = Token::new(descriptor as u32, 0);
    match selector.wait(descriptor, owner, READ, token, now) {
        Ok(Wait::Pending(wait)) => wait,
        other => panic!("expected a pending wait, got {other:?}"),
    }
}

/// The bytes that each of so many waits takes.
fn bytes_each(count: Descriptor) -> usize {
    let (before, now) = (memory::held(), Instant::now());
    let mut selector = Selector::with_driver(Box::new(NoKernel(Token::new(0, 0))));
    let mut events = Events::new();
    let mut last = None;
    let started = Instant::now();
    for descriptor in 0..count {
        last = Some(begin(&mut selector, descriptor, now));
    }
    let begun = started.elapsed();
    // The first re-arms find that they last.
    while selector.next_rearm() <= Some(now + Duration::from_millis(100)) {
        let due = now + Duration::from_millis(100);
        selector.rearm(due, &mut events).unwrap();
    }
    let bytes = (memory::held() - before) as usize / count as usize;

    // The wait that the driver reports is answered, ends, and begins again.
    let descriptor = count - 1;
    let owner = OwnerId(descriptor as u64 + 1);
    selector.deregister(descriptor);
    events.clear();
    selector
        .poll(&mut events, Some(Duration::ZERO), now)
        .unwrap();
    selector.end(last.unwrap());
    let mut round = |selector: &mut Selector| {
        let wait = begin(selector, descriptor, now);
        events.clear();
        selector
            .poll(&mut events, Some(Duration::ZERO), now)
            .unwrap();
        assert_eq!(selector.end(wait), Ready::READABLE);
        selector.attempted(descriptor, owner, READ, Attempt::WouldBlock);
    };
    round(&mut selector);
    let allocations = memory::allocations();
    for _ in 0..1000 {
        round(&mut selector);
    }
    assert_eq!(memory::allocations(), allocations, "a later wait allocates");
    println!("{count} waits: {bytes} bytes each, begun in {begun:?}");
    bytes
}

#[test]
fn a_wait_takes_its_record_and_little_more_and_a_later_one_allocates_nothing() {
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
