//! Random programs on the registry and a model of the kernel, edge-triggered and level-triggered.
//!
//! - **Truth.** The kernel's model knows what is truly ready. As soon as no event is left, no wait may be unanswered whose
//!   descriptor is ready. Where the registry was not told of a change (a close, a dup2(2), bytes behind a message boundary), it
//!   has to notice by a later re-arm.
//! - **No stale answer.** An event answers a wait only if the registration is that of the file the number refers to.
//! - **System calls.** The tables of `src/reactor/waits/registration.rs` are read as they stand. Each step must make the calls of its row, and no
//!   other. Each row has to occur.
//! - **Memory.** A long program needs no more than a short one.
//!
//! `REGISTRY_SEED=17 cargo test --test registry_model` runs one program.

#[path = "support/memory.rs"]
mod memory;
#[path = "support/model_kernel.rs"]
mod model_kernel;
#[path = "support/model_registry.rs"]
mod model_registry;

use std::{
    collections::HashSet,
    env,
    time::{Duration, Instant},
};

use reactor::{Attempt, Descriptor, Event, Events, Interest, OwnerId, Reactor, Ready, Token, Wait};

use model_kernel::Kernel;
use model_registry::{Expected, Table, directions};

/// How many programs, and how many steps each has.
const PROGRAMS: u64 = if cfg!(miri) { 2 } else { 300 };
const STEPS: usize = if cfg!(miri) { 50 } else { 400 };
/// At most.
const OBJECTS: usize = 12;
const WAITS: usize = 24;
/// Longer than the longest interval between two re-arms.
const PATIENCE: Duration = Duration::from_secs(26);

const DIRECTIONS: [Interest; 3] = [Interest::READABLE, Interest::WRITABLE, Interest::PRIORITY];

/// xorshift: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn interest(&mut self) -> Interest {
        match self.below(6) {
            0..=2 => DIRECTIONS[0],
            3 => DIRECTIONS[1],
            _ => Interest::from_bits(1 + self.below(7) as u8).unwrap(),
        }
    }
}

/// An IO of the program.
#[derive(Clone, Copy)]
struct Object {
    number: Descriptor,
    owner: OwnerId,
    /// Its messages have boundaries: a short count does not mean that it is drained.
    has_boundaries: bool,
}

struct Program<'table> {
    random: Random,
    reactor: Reactor,
    kernel: Kernel,
    expected: Expected<'table>,
    objects: Vec<Object>,
    owners: u64,
    tokens: u32,
    now: Instant,
    events: Events,
    /// Numbers of which the registry was not told something. It notices when it next arms them.
    untold: HashSet<Descriptor>,
    /// No call fails.
    reliable: bool,
}

impl<'table> Program<'table> {
    fn new(table: &'table Table, seed: u64, by_level: bool) -> Self {
        let kernel = Kernel::new(by_level);
        let reactor = Reactor::with_driver(Box::new(kernel.clone()));
        Self {
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            now: reactor.clock(),
            reactor,
            expected: Expected::new(table, kernel.clone()),
            kernel,
            objects: Vec::new(),
            owners: 0,
            tokens: 0,
            events: Events::with_capacity(1024),
            untold: HashSet::new(),
            reliable: false,
        }
    }

    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
            self.compare();
            if self.random.one_in(40) {
                self.settle();
                self.no_wait_is_forgotten(false);
            }
        }
        self.reliable = true;
        self.now += PATIENCE;
        self.settle();
        self.no_wait_is_forgotten(true);
    }

    fn step(&mut self) {
        let failing = !self.reliable && self.random.one_in(12);
        let failures = [(); 4].map(|()| failing && self.random.one_in(2));
        self.kernel.fail(failures);
        match self.random.below(30) {
            0..=1 => self.open(),
            2 => self.share(),
            3..=9 => self.wait(),
            10..=11 => self.end(),
            12..=15 => self.attempt(),
            16..=19 => self.raise(),
            20 => self.close(),
            21 => self.replace(),
            22 => self.note(),
            23..=27 => self.poll(),
            28 => self.poll_after(500),
            _ => self.poll_after(30_000),
        }
        self.kernel.fail([]);
        assert_eq!(self.kernel.take_call(), None, "one call more");
    }

    fn open(&mut self) {
        if self.objects.len() == OBJECTS {
            return;
        }
        let pollable = !self.random.one_in(8);
        let ready = [Ready::EMPTY, Ready::READABLE, Ready::WRITABLE][self.random.below(3)];
        let number = self.kernel.open(pollable, ready);
        self.refers_to_another_file(number);
        self.own(number);
    }

    /// A duplicate, or a second object with the same number.
    fn share(&mut self) {
        let Some(object) = self.pick() else { return };
        if self.objects.len() == OBJECTS {
            return;
        }
        let number = if self.random.one_in(2) {
            object.number
        } else {
            let number = self.kernel.dup(object.number);
            self.refers_to_another_file(number);
            number
        };
        self.own(number);
    }

    fn own(&mut self, number: Descriptor) {
        self.owners += 1;
        let known = !self.random.one_in(10);
        self.objects.push(Object {
            number,
            owner: if known {
                OwnerId(self.owners)
            } else {
                OwnerId::UNKNOWN
            },
            has_boundaries: self.random.one_in(5),
        });
    }

    fn wait(&mut self) {
        let Some(object) = self.pick() else { return };
        if self.expected.waits() >= WAITS {
            return self.end();
        }
        self.tokens += 1;
        let (interest, now) = (self.random.interest(), self.reactor.clock());
        let token = Token::new(self.tokens, 0);
        let result = memory::counted(true, || {
            self.reactor
                .wait(object.number, object.owner, interest, token)
        });
        self.forgive();
        let id = match &result {
            Ok(Wait::Pending(id)) => Some(*id),
            Ok(Wait::Ready(ready)) => {
                assert_eq!(*ready, interest);
                None
            }
            Err(_) => None,
        };
        let expected =
            self.expected
                .wait(object.number, object.owner, interest, self.tokens, now, id);
        assert_eq!((result.is_ok(), id.is_some()), expected);
    }

    /// Ends a wait that may have ended already.
    fn end(&mut self) {
        if self.expected.waits() > 0 {
            let place = self.random.below(self.expected.waits());
            let (id, is_ended) = self.expected.end(place);
            let ended = memory::counted(true, || self.reactor.end(id));
            assert_eq!(ended, is_ended);
            assert!(!self.reactor.end(id), "once more");
        }
    }

    /// One system call of the owner, and its report.
    fn attempt(&mut self) {
        let Some(object) = self.pick() else { return };
        let Object { number, owner, .. } = object;
        let direction = DIRECTIONS[self.random.below(3)];
        let ready = self.kernel.ready(number);
        let is_ended = ready.intersects(Ready::HANGUP | Ready::ERROR)
            || direction.is_readable() && ready.contains(Ready::READ_CLOSED);
        let attempt = if directions(ready) & direction.bits() == 0 {
            Attempt::WouldBlock
        } else if is_ended {
            // The end of the stream stays ready.
            [Attempt::Short, Attempt::Complete][self.random.below(2)]
        } else {
            match self.random.below(4) {
                0 => Attempt::Complete,
                1 => {
                    self.kernel.consume(number, direction.into());
                    Attempt::Complete
                }
                _ if object.has_boundaries && self.random.one_in(2) => {
                    self.is_not_told(number);
                    Attempt::Short
                }
                _ => {
                    self.kernel.consume(number, direction.into());
                    Attempt::Short
                }
            }
        };
        memory::counted(true, || {
            self.reactor.attempted(number, owner, direction, attempt)
        });
        self.expected.attempted(number, owner, direction, attempt);
    }

    fn raise(&mut self) {
        let Some(Object { number, .. }) = self.pick() else {
            return;
        };
        let more = match self.random.below(12) {
            0..=5 => Ready::READABLE,
            6..=8 => Ready::WRITABLE,
            9 => Ready::PRIORITY | Ready::READABLE,
            10 if self.random.one_in(4) => Ready::READ_CLOSED,
            10 => Ready::READ_CLOSED | Ready::READABLE,
            _ if self.random.one_in(2) => Ready::ERROR,
            _ => Ready::HANGUP | Ready::READ_CLOSED | Ready::READABLE | Ready::WRITABLE,
        };
        self.kernel.raise(number, more);
    }

    fn close(&mut self) {
        if self.objects.is_empty() {
            return;
        }
        let place = self.random.below(self.objects.len());
        let Object { number, owner, .. } = self.objects.swap_remove(place);
        match self.random.below(4) {
            0..=1 => self.deregister(number),
            2 => self.note_close(number, owner),
            _ => {} // Nothing is said.
        }
        self.kernel.close(number);
        self.objects.retain(|object| object.number != number);
        self.refers_to_another_file(number);
    }

    fn replace(&mut self) {
        let (Some(from), Some(to)) = (self.pick(), self.pick()) else {
            return;
        };
        if from.number == to.number {
            return;
        }
        self.kernel.dup2(from.number, to.number);
        self.refers_to_another_file(to.number);
        if self.random.one_in(2) {
            memory::counted(true, || self.reactor.replaced(to.number));
            self.forgive();
            self.expected.replaced(to.number);
        }
    }

    /// Something is said that is not followed by a close; or of a number that is nobody's.
    fn note(&mut self) {
        let number = self.pick().map_or(100, |object| object.number);
        match self.random.below(3) {
            0 => self.deregister(number),
            1 => self.note_close(number, OwnerId(self.owners)),
            _ => {
                memory::counted(true, || self.reactor.replaced(number));
                self.forgive();
                self.expected.replaced(number);
            }
        }
    }

    fn deregister(&mut self, number: Descriptor) {
        memory::counted(true, || self.reactor.deregister(number));
        self.expected.deregister(number);
        self.untold.remove(&number);
    }

    fn note_close(&mut self, number: Descriptor, owner: OwnerId) {
        memory::counted(true, || self.reactor.note_close(number, owner));
        self.expected.note_close(number, owner);
    }

    fn poll(&mut self) {
        if self.random.one_in(6) {
            self.kernel.repeat();
        }
        self.events.clear();
        let collected =
            memory::counted(true, || self.reactor.collect_at(self.now, &mut self.events));
        let expected = self.expected.collect(self.now);
        assert_eq!(collected.is_ok(), expected.is_some());
        self.check_events(&expected.unwrap_or_default());
        self.no_report_is_stale();
    }

    fn poll_after(&mut self, milliseconds: usize) {
        self.now += Duration::from_millis(self.random.below(milliseconds) as u64);
        self.poll();
    }

    fn check_events(&self, expected: &[(u32, Ready)]) {
        let answer = |event: &Event| (event.token.index(), event.ready);
        let reported: Vec<_> = self.events.iter().map(answer).collect();
        assert_eq!(reported, expected);
    }

    /// Polls until there is no event, and none that a call may have brought about. Nothing fails meanwhile.
    fn settle(&mut self) {
        let mut silent = 0;
        while silent < 3 {
            let armed = self.armed();
            self.poll();
            let is_silent = self.events.is_empty() && self.armed() == armed;
            silent = if is_silent { silent + 1 } else { 0 };
        }
    }

    /// How many calls have armed a descriptor again.
    fn armed(&self) -> u64 {
        let statistics = self.reactor.statistics();
        statistics.rearmed + statistics.renewed
    }

    /// Each unanswered wait has its reason: its descriptor is open, and not ready.
    fn no_wait_is_forgotten(&self, with_patience: bool) {
        for (token, number, interest) in self.expected.unanswered() {
            let ended = directions(self.kernel.ready(number));
            let excused = !with_patience && self.untold.contains(&number);
            assert!(
                ended & interest.bits() == 0 || excused,
                "wait {token} for {interest:?} of {number} is not answered"
            );
        }
    }

    /// Events of the newest registration of a number are about the file that the number refers to, if the registry was told.
    fn no_report_is_stale(&mut self) {
        for report in self.expected.accepted() {
            let is_right = self.kernel.file(report.number) == Some(report.file);
            let excused = self.untold.contains(&report.number);
            assert!(is_right || excused, "{report:?}");
        }
        self.forgive();
    }

    /// The registry's cached readiness and its list of waits.
    fn compare(&self) {
        for object in &self.objects {
            let Object { number, owner, .. } = *object;
            let cached = self.reactor.cached_readiness(number, owner);
            assert_eq!(cached, self.expected.cached_readiness(number, owner));
            let tokens = self.reactor.waiters(number);
            let tokens: Vec<_> = tokens.iter().map(|token| token.index()).collect();
            assert_eq!(tokens, self.expected.waiters(number));
        }
    }

    fn refers_to_another_file(&mut self, number: Descriptor) {
        self.is_not_told(number);
    }

    fn is_not_told(&mut self, number: Descriptor) {
        if self.expected.is_registered(number) {
            self.untold.insert(number);
        }
    }

    /// The numbers that were armed now are known again.
    fn forgive(&mut self) {
        for number in self.kernel.take_armed() {
            self.untold.remove(&number);
        }
    }

    fn pick(&mut self) -> Option<Object> {
        let count = self.objects.len();
        (count > 0).then(|| self.objects[self.random.below(count)])
    }
}

#[test]
fn random_programs_lose_no_wait_and_make_the_calls_of_the_table() {
    let table = Table::read();
    let seeds = match env::var("REGISTRY_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=PROGRAMS).collect(),
    };
    let all = seeds.len() > 100;
    for seed in seeds {
        for by_level in [false, true] {
            println!("seed {seed}, by level: {by_level}");
            Program::new(&table, seed, by_level).run(STEPS);
        }
    }
    assert!(!all || table.unused().is_empty(), "{:#?}", table.unused());
}

#[test]
#[cfg_attr(miri, ignore = "it would take hours")]
#[cfg_attr(windows, ignore = "memory is not counted there")]
fn a_long_program_needs_no_more_memory_than_a_short_one() {
    let table = Table::read();
    let start = memory::held();
    let mut program = Program::new(&table, 1, false);
    program.run(10_000);
    let short = memory::held() - start;
    for _ in 0..9 {
        program.reliable = false;
        program.run(10_000);
    }
    let long = memory::held() - start;
    // A descriptor keeps room for the most waits that it ever had, of 32 bytes each.
    let room = (OBJECTS * WAITS * 32) as isize;
    assert!(short > 0 && long < short + room, "{short}, then {long}");
}
