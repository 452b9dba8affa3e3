//! Sleeps that borrow nothing of the reactor, on each available backend: what ends them, and that none of it is lost.

use std::{
    io::{Read, Write},
    net::TcpStream,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use reactor::{
    AsDescriptor, Backend, Deadline, Descriptor, Events, Interest, Operation, OwnerId, Reactor,
    Sleep, Token, Wait,
};

use sockets::{NOW, TEST_TIMEOUT, tcp};

#[path = "support/sockets.rs"]
mod sockets;

const READ: Interest = Interest::READABLE;

/// Makes each function a test that runs on each available backend.
macro_rules! sleeps {
    ($($test:ident)*) => {
        mod on_every_backend {
            $(
                #[test]
                fn $test() {
                    super::sockets::backends().for_each(super::$test);
                }
            )*
        }
    };
}

sleeps! {
    an_event_before_the_block_ends_it
    an_event_during_the_block_ends_it
    a_wake_before_the_block_ends_it
    what_has_ended_a_block_ends_the_next_one_until_it_is_collected
    a_sleep_that_is_dropped_unblocked_loses_nothing
    two_blocks_end_with_one_wake
    two_blocks_each_end_with_their_timeout
    a_wait_that_begins_during_a_block_ends_it
    a_timer_that_begins_during_a_block_ends_it
    an_operation_that_begins_during_a_block_ends_it
    a_block_that_begins_late_ends_no_later
    a_wait_that_ends_during_a_block_leaves_the_others
    a_block_outlives_its_reactor
    a_sleep_arms_what_the_last_collect_has_reported
    sleeps_answer_each_round_trip_without_a_rearm
    many_parked_sockets_make_no_turns
    unread_bytes_make_no_turns
    an_idle_reactor_makes_no_turns
}

/// A reactor, and connections whose first ends it waits for: the tokens are their places.
struct Subject {
    reactor: Reactor,
    events: Events,
    pairs: Vec<(TcpStream, TcpStream)>,
}

impl Subject {
    fn new(backend: Backend, count: usize) -> Self {
        let mut subject = Self {
            reactor: Reactor::open(Some(backend)).unwrap(),
            events: Events::new(),
            pairs: (0..count).map(|_| tcp()).collect(),
        };
        (0..count).for_each(|place| subject.wait(place));
        assert_eq!(subject.collect(), []);
        subject
    }

    fn wait(&mut self, place: usize) {
        let socket = self.pairs[place].0.as_descriptor();
        let (owner, token) = (OwnerId(place as u64 + 1), Token::new(place as u32, 0));
        let wait = self.reactor.wait(socket, owner, READ, token);
        assert!(matches!(wait, Ok(Wait::Pending(_))));
    }

    /// The peer sends a byte, which has arrived when this returns.
    fn send(&mut self, place: usize) {
        let (ours, theirs) = &mut self.pairs[place];
        theirs.write_all(b"x").unwrap();
        while reactor::poll_now(ours.as_descriptor(), READ)
            .unwrap()
            .is_none()
        {
            thread::yield_now();
        }
    }

    /// Reads until there is nothing more.
    fn read(&mut self, place: usize) {
        let ours = &mut self.pairs[place].0;
        while ours.read(&mut [0; 8]).is_ok() {}
        let (socket, owner) = (ours.as_descriptor(), OwnerId(place as u64 + 1));
        self.reactor
            .attempted(socket, owner, READ, reactor::Attempt::WouldBlock);
    }

    /// The places of the connections that are reported.
    fn collect(&mut self) -> Vec<u32> {
        self.events.clear();
        self.reactor.collect(&mut self.events).unwrap();
        let mut places: Vec<_> = self
            .events
            .iter()
            .map(|event| event.token.index())
            .collect();
        places.sort_unstable();
        places
    }

    /// Sleeps and collects until there is an event. The limit is never over.
    fn turn(&mut self) -> Vec<u32> {
        loop {
            self.reactor.sleep(TEST_TIMEOUT).block().unwrap();
            let places = self.collect();
            if !places.is_empty() {
                return places;
            }
        }
    }

    /// The turns until a timer has elapsed. A slow machine makes no more of them.
    fn turns_within(&mut self, duration: Duration) -> usize {
        let timer = Token::new(Token::MAX_INDEX, 0);
        self.reactor.timer(Deadline::after(duration), timer);
        self.events.clear();
        let mut turns = 0;
        while !self.events.iter().any(|event| event.token == timer) {
            self.reactor.turn(&mut self.events, None).unwrap();
            turns += 1;
        }
        turns
    }
}

/// Blocks in the sleep on another thread, which has begun when this returns.
fn block_elsewhere(sleep: Sleep) -> JoinHandle<Sleep> {
    let (begun, begins) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        begun.send(()).unwrap();
        sleep.block().unwrap();
        sleep
    });
    begins.recv().unwrap();
    thread::sleep(Duration::from_millis(5)); // likely asleep by now; the tests hold if it is not
    thread
}

// --- what ends a sleep -----------------------------------------------------------------------------------------------

fn an_event_before_the_block_ends_it(backend: Backend) {
    let mut subject = Subject::new(backend, 2);
    let sleep = subject.reactor.sleep(None);
    subject.send(1);
    sleep.block().unwrap();
    drop(sleep);
    assert_eq!(subject.collect(), [1]);
}

fn an_event_during_the_block_ends_it(backend: Backend) {
    let mut subject = Subject::new(backend, 2);
    let sleeper = block_elsewhere(subject.reactor.sleep(None));
    subject.send(1);
    drop(sleeper.join());
    assert_eq!(subject.collect(), [1]);
}

fn a_wake_before_the_block_ends_it(backend: Backend) {
    let mut subject = Subject::new(backend, 1);
    let sleep = subject.reactor.sleep(None);
    subject.reactor.handle().wake().unwrap();
    sleep.block().unwrap();
    drop(sleep);
    assert_eq!(subject.collect(), []);
    subject.send(0);
    assert_eq!(subject.turn(), [0]);
}

fn what_has_ended_a_block_ends_the_next_one_until_it_is_collected(backend: Backend) {
    let mut subject = Subject::new(backend, 1);
    let sleep = subject.reactor.sleep(None);
    subject.send(0);
    sleep.block().unwrap();
    sleep.block().unwrap();
    drop(sleep);
    subject.reactor.sleep(None).block().unwrap();
    assert_eq!(subject.collect(), [0]);
    // Now there is nothing left: the sleep lasts until its limit.
    let limit = Duration::from_millis(3);
    let started = Instant::now();
    while started.elapsed() < limit {
        subject.reactor.sleep(Some(limit)).block().unwrap();
    }
    assert_eq!(subject.collect(), []);
}

fn a_sleep_that_is_dropped_unblocked_loses_nothing(backend: Backend) {
    let mut subject = Subject::new(backend, 1);
    let sleep = subject.reactor.sleep(None);
    subject.send(0);
    drop(sleep);
    assert_eq!(subject.turn(), [0]);
}

// --- several threads -------------------------------------------------------------------------------------------------

fn a_timer_that_begins_during_a_block_ends_it(backend: Backend) {
    let mut subject = Subject::new(backend, 0);
    let sleeper = block_elsewhere(subject.reactor.sleep(None));
    subject.reactor.timer(Deadline::now(), Token::new(7, 0));
    drop(sleeper.join());
    assert_eq!(subject.collect(), [7]);
}

fn an_operation_that_begins_during_a_block_ends_it(backend: Backend) {
    let mut subject = Subject::new(backend, 0);
    let (ours, _theirs) = tcp();
    let sleeper = block_elsewhere(subject.reactor.sleep(TEST_TIMEOUT));
    let Some(operations) = subject.reactor.operations() else {
        subject.reactor.handle().wake().unwrap();
        return drop(sleeper.join());
    };
    let (socket, send) = (ours.as_descriptor(), Operation::Send(b"x"));
    operations.start(socket, send, Token::new(7, 0)).unwrap();
    drop(sleeper.join());
    assert_eq!(subject.turn(), [7]);
}

fn a_block_that_begins_late_ends_no_later(backend: Backend) {
    let mut subject = Subject::new(backend, 0);
    let limit = Duration::from_millis(20);
    let sleep = subject.reactor.sleep(Some(limit));
    thread::sleep(limit);
    assert_eq!(sleep.timeout(), Some(Duration::ZERO));
}

fn two_blocks_end_with_one_wake(backend: Backend) {
    let mut subject = Subject::new(backend, 0); // Nothing is armed again, so nothing else ends the blocks.
    let sleeps = [(); 2].map(|()| subject.reactor.sleep(None));
    let sleepers = sleeps.map(block_elsewhere);
    subject.reactor.handle().wake().unwrap();
    sleepers
        .into_iter()
        .for_each(|sleeper| drop(sleeper.join()));
    assert_eq!(subject.collect(), []);
}

fn two_blocks_each_end_with_their_timeout(backend: Backend) {
    let mut subject = Subject::new(backend, 1);
    let sleeper = block_elsewhere(subject.reactor.sleep(None));
    subject
        .reactor
        .sleep(Some(Duration::from_millis(1)))
        .block()
        .unwrap();
    subject.reactor.handle().wake().unwrap();
    drop(sleeper.join());
    subject.send(0);
    assert_eq!(subject.turn(), [0]);
}

fn a_wait_that_begins_during_a_block_ends_it(backend: Backend) {
    let mut subject = Subject::new(backend, 1);
    let sleeper = block_elsewhere(subject.reactor.sleep(None));
    subject.pairs.push(tcp());
    subject.wait(1);
    assert_eq!(subject.collect(), []);
    subject.send(1);
    drop(sleeper.join());
    assert_eq!(subject.collect(), [1]);
    subject.send(0);
    assert_eq!(subject.turn(), [0]);
}

fn a_wait_that_ends_during_a_block_leaves_the_others(backend: Backend) {
    let mut subject = Subject::new(backend, 2);
    let sleeper = block_elsewhere(subject.reactor.sleep(None));
    let socket = subject.pairs[0].0.as_descriptor();
    subject.reactor.deregister(socket);
    drop(std::mem::replace(&mut subject.pairs[0], tcp()));
    assert_eq!(subject.collect(), [0], "deregistered");
    subject.send(1);
    drop(sleeper.join());
    assert_eq!(subject.turn(), [1]);
}

fn a_block_outlives_its_reactor(backend: Backend) {
    let mut subject = Subject::new(backend, 1);
    let handle = subject.reactor.handle();
    let later = subject.reactor.sleep(Some(Duration::from_millis(1)));
    let sleeper = block_elsewhere(subject.reactor.sleep(TEST_TIMEOUT));
    drop(subject);
    handle.wake().unwrap();
    drop(sleeper.join());
    // The number of the descriptor may be that of another file by now.
    if let Err(error) = later.block() {
        let is_closed = reactor::poll_now(Descriptor::MAX, READ).unwrap_err();
        assert_eq!(error.raw_os_error(), is_closed.raw_os_error());
    }
}

// --- counts ----------------------------------------------------------------------------------------------------------

fn a_sleep_arms_what_the_last_collect_has_reported(backend: Backend) {
    let mut subject = Subject::new(backend, 2);
    for _ in 0..3 {
        subject.send(0);
        assert_eq!(subject.turn(), [0]);
        subject.read(0);
        subject.wait(0);
        // No collect in between.
        let sleep = subject.reactor.sleep(None);
        subject.send(0);
        sleep.block().unwrap();
        drop(sleep);
        assert_eq!(subject.collect(), [0]);
        subject.read(0);
        subject.wait(0);
    }
    // Most were not answered only because they were armed again after 100 ms.
    assert!(subject.reactor.statistics().rearmed < 3);
}

fn sleeps_answer_each_round_trip_without_a_rearm(backend: Backend) {
    let mut subject = Subject::new(backend, 1);
    let polls = subject.reactor.statistics().polls;
    for _ in 0..20 {
        subject.send(0);
        assert_eq!(subject.turn(), [0]);
        subject.read(0);
        subject.wait(0);
    }
    let statistics = subject.reactor.statistics();
    assert_eq!(statistics.registered, 1);
    // One for each: what is there already ends the sleep, and the collect finds it. On a busy machine some need a second one, because
    // they last 100 ms.
    let polls = statistics.polls - polls;
    assert!(polls < 30 && statistics.rearmed < 10, "{statistics:?}");
}

/// Less than the second interval of re-arms, which begins after the first of 100 ms.
const WHILE: Duration = Duration::from_millis(250);
/// One re-arm and the timer.
const FEW: usize = 2;

fn many_parked_sockets_make_no_turns(backend: Backend) {
    let mut subject = Subject::new(backend, 100);
    let turns = subject.turns_within(WHILE);
    assert!(turns <= FEW, "{turns} turns");
    let statistics = subject.reactor.statistics();
    assert_eq!(statistics.events, 0);
    subject.send(7);
    assert_eq!(subject.turn(), [7]);
}

fn unread_bytes_make_no_turns(backend: Backend) {
    let mut subject = Subject::new(backend, 3);
    for place in 0..3 {
        subject.send(place);
    }
    while subject.reactor.statistics().events < 3 {
        subject.turn();
    }
    // Nobody reads them. A driver without edges reports each twice more.
    let turns = subject.turns_within(WHILE);
    assert!(turns <= FEW + 2, "{turns} turns");
    assert_eq!(subject.reactor.sleep(NOW).block().ok(), Some(()));
    (0..3).for_each(|place| subject.wait(place));
    assert_eq!(subject.collect(), [0, 1, 2]);
}

fn an_idle_reactor_makes_no_turns(backend: Backend) {
    let mut subject = Subject::new(backend, 0);
    let turns = subject.turns_within(Duration::from_millis(50));
    assert!(turns <= FEW, "{turns} turns");
}
