//! What the tables of `src/reactor/waits/registration.rs` say, as a program: which calls a step makes, and which waits it answers.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use reactor::{
    Attempt, CachedReadiness, Descriptor, DescriptorReadiness, Interest, OwnerId, Ready, Token,
    WaitId,
};

use crate::model_kernel::{Answer, Call, Kernel, Made, Report};

/// The rows of the tables, and which of them have occurred.
pub struct Table {
    /// The cells before the effect, joined by ` | `; and the cell with the driver call.
    rows: BTreeMap<String, String>,
    used: RefCell<BTreeSet<String>>,
}

impl Table {
    pub fn read() -> Self {
        let text = include_str!("../../src/reactor/waits/registration.rs");
        let mut rows = BTreeMap::new();
        for line in text.lines().filter(|line| line.starts_with("//! |")) {
            let cells: Vec<_> = line[5..]
                .trim_end_matches('|')
                .split('|')
                .map(str::trim)
                .collect();
            let (condition, call) = match cells[..] {
                _ if cells[0].starts_with('-') => continue,
                [
                    "registered" | "the driver's answer" | "reported" | "call",
                    ..,
                ] => continue,
                // The driver's answer causes no call.
                [answer, _] => (answer.to_owned(), "none"),
                [first, second, _, call] => (format!("{first} | {second}"), call),
                _ => panic!("a row of another form: {line}"),
            };
            let before = rows.insert(condition, call.to_owned());
            assert_eq!(before, None, "twice: {line}");
        }
        let used = RefCell::default();
        Self { rows, used }
    }

    /// The call that a row names.
    fn call(&self, row: &str) -> &str {
        self.used.borrow_mut().insert(row.to_owned());
        let call = self.rows.get(row);
        call.unwrap_or_else(|| panic!("there is no row {row:?}"))
    }

    pub fn unused(&self) -> Vec<&str> {
        let used = self.used.borrow();
        let rows = self.rows.keys().filter(|row| !used.contains(*row));
        rows.map(String::as_str).collect()
    }
}

#[derive(Clone, Copy, Default)]
struct Record {
    registered: u8,
    token: Option<Token>,
    owner: u64,
    ready: u8,
    drained: u8,
    assumed: u8,
    ignores_short: bool,
    spurious: u8,
    hung_up: bool,
}

struct Waiting {
    id: WaitId,
    token: u32,
    number: Descriptor,
    interest: Interest,
    answer: Option<Ready>,
    armed: Instant,
    rearms: usize,
}

const INTERVALS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(400),
    Duration::from_millis(1_600),
    Duration::from_millis(6_400),
    Duration::from_millis(25_600),
];

pub struct Expected<'table> {
    table: &'table Table,
    kernel: Kernel,
    records: BTreeMap<Descriptor, Record>,
    waits: Vec<Waiting>,
    /// When idle waits are next searched for.
    next_rearm: Option<Instant>,
    has_recent: bool,
    /// Answers outside an event.
    answered: Vec<u32>,
    rearmed_now: BTreeSet<Descriptor>,
    accepted: Vec<Report>,
}

impl<'table> Expected<'table> {
    pub fn new(table: &'table Table, kernel: Kernel) -> Self {
        Self {
            table,
            kernel,
            records: BTreeMap::new(),
            waits: Vec::new(),
            next_rearm: None,
            has_recent: false,
            answered: Vec::new(),
            rearmed_now: BTreeSet::new(),
            accepted: Vec::new(),
        }
    }

    /// Whether the wait begins without an error, and whether it has to wait.
    pub fn wait(
        &mut self,
        number: Descriptor,
        owner: OwnerId,
        interest: Interest,
        token: u32,
        now: Instant,
        id: Option<WaitId>,
    ) -> (bool, bool) {
        let record = self.record(number);
        let asked = interest.bits();
        let trusted = record.owner == owner.0 && owner != OwnerId::UNKNOWN;
        let row = if record.registered == 0 {
            "nothing | -"
        } else if !trusted {
            "by another or an unknown owner | - (not trusted)"
        } else if asked & !record.registered != 0 {
            "some of the asked directions | anything"
        } else if asked & !record.drained == 0 {
            "all asked directions | all of them drained"
        } else {
            "all asked directions | one of them not drained"
        };
        let named = [
            ("asked", asked),
            ("wanted", self.wanted(number)),
            ("registered", record.registered),
        ];
        match self.driver_call(row, number, &named) {
            None => {}
            Some(made) => {
                let begun = match (made.call, made.answer) {
                    (Call::Register(..), Answer::Kept | Answer::New) => Ok(true),
                    (Call::Register(..), Answer::Unpollable) => Ok(false),
                    (Call::Register(..), Answer::Failed) => Err(()),
                    _ => self.rearmed(number, made, false),
                };
                match begun {
                    Ok(true) if !trusted => self.begin(number, owner.0, made),
                    Ok(true) => {}
                    Ok(false) => return (true, false),
                    Err(()) => return (false, false),
                }
            }
        }
        self.change(number, |record| record.spurious &= !asked);
        let id = id.expect("it is pending");
        self.waits.push(Waiting {
            id,
            token,
            number,
            interest,
            answer: None,
            armed: now,
            rearms: 0,
        });
        if !self.has_recent {
            self.has_recent = true;
            self.next_rearm = self
                .next_rearm
                .into_iter()
                .chain([now + INTERVALS[0]])
                .min();
        }
        (true, true)
    }

    /// The id of the wait at this place, and whether this ends it: its event has not been reported.
    pub fn end(&mut self, place: usize) -> (WaitId, bool) {
        let wait = self.waits.remove(place);
        let answered = self.answered.len();
        self.answered.retain(|token| *token != wait.token);
        (
            wait.id,
            wait.answer.is_none() || self.answered.len() < answered,
        )
    }

    pub fn attempted(
        &mut self,
        number: Descriptor,
        owner: OwnerId,
        direction: Interest,
        attempt: Attempt,
    ) {
        let record = self.record(number);
        if record.registered == 0 || record.owner != owner.0 || owner == OwnerId::UNKNOWN {
            self.no_call("attempted | nothing, or by another owner");
            return;
        }
        let bits = direction.bits() & record.registered;
        let (row, drained, assumed) = match attempt {
            Attempt::WouldBlock => ("attempted: would block | by the same owner", bits, 0),
            Attempt::Short if record.hung_up || record.ignores_short => {
                ("attempted: short | by the same owner", 0, 0)
            }
            Attempt::Short => ("attempted: short | by the same owner", bits, bits),
            Attempt::Complete => ("attempted: complete | by the same owner", 0, 0),
        };
        self.no_call(row);
        self.change(number, |record| {
            record.spurious &= !direction.bits();
            record.drained |= drained;
            record.ready &= !drained;
            record.assumed = record.assumed & !drained | assumed;
        });
    }

    pub fn deregister(&mut self, number: Descriptor) {
        if self.is_registered(number) {
            self.driver_call("deregister | something", number, &[]);
            self.abandon(number, Some(Ready::ERROR));
        } else {
            self.no_call("deregister | nothing");
        }
    }

    pub fn note_close(&mut self, number: Descriptor, owner: OwnerId) {
        let record = self.record(number);
        let is_owner = owner != OwnerId::UNKNOWN && record.owner == owner.0;
        if is_owner && record.registered != 0 && self.waiters(number).is_empty() {
            self.no_call("note_close | by the same owner, no wait");
            self.records.remove(&number);
        } else {
            self.no_call("note_close | by another owner, or a wait");
        }
    }

    pub fn replaced(&mut self, number: Descriptor) {
        if self.is_registered(number) {
            _ = self.again("replaced | something", number);
        } else {
            self.no_call("replaced | nothing");
        }
    }

    /// The events of a poll, and of the re-arms that are due. None if there is only an error.
    pub fn collect(&mut self, now: Instant) -> Option<Vec<(u32, Ready)>> {
        let mut events = Vec::new();
        self.poll(&mut events)?;
        let rearmed = self.rearm(now, &mut events);
        rearmed.or((!events.is_empty()).then_some(()))?;
        Some(events)
    }

    /// None if the poll failed.
    fn poll(&mut self, events: &mut Vec<(u32, Ready)>) -> Option<()> {
        for report in self.kernel.take_poll()? {
            self.event(report, events);
        }
        self.deliver(events);
        Some(())
    }

    /// None if the poll after it failed.
    fn rearm(&mut self, now: Instant, events: &mut Vec<(u32, Ready)>) -> Option<()> {
        if self.next_rearm.is_none_or(|next| now < next) {
            return Some(());
        }
        (self.has_recent, self.next_rearm) = (false, None);
        let numbers: BTreeSet<_> = self.unanswered().map(|(_, number, _)| number).collect();
        for number in numbers {
            let Some((armed, rearms)) = self.oldest(number) else {
                continue;
            };
            let interval = INTERVALS[rearms.min(4)];
            // A later one is made together with others when it is nearly due.
            let enough = if rearms == 0 {
                interval
            } else {
                interval * 3 / 4
            };
            if now - armed >= enough {
                for wait in self.waits.iter_mut().filter(|wait| wait.number == number) {
                    (wait.armed, wait.rearms) = (now, wait.rearms + 1);
                }
                let assumed = self.record(number).assumed != 0;
                let row = "rearm, when the oldest wait is due | something";
                if self.again(row, number).is_ok() && assumed {
                    self.rearmed_now.insert(number);
                }
            }
            if let Some((armed, rearms)) = self.oldest(number) {
                let due = (armed + INTERVALS[rearms.min(4)]).max(now + INTERVALS[0]);
                self.next_rearm = self.next_rearm.into_iter().chain([due]).min();
            }
        }
        self.deliver(events);
        let polled = match self.rearmed_now.is_empty() {
            true => Some(()),
            false => self.poll(events),
        };
        self.rearmed_now.clear();
        polled
    }

    fn event(&mut self, report: Report, events: &mut Vec<(u32, Ready)>) {
        let (number, ready) = (report.number, report.event.ready);
        let record = self.record(number);
        if record.registered == 0 || record.token != Some(report.event.token) {
            return self.no_call("an older generation, or none | -");
        }
        self.accepted.push(report);
        let (answered, reported) = (directions(ready), (ready.bits() & 7) as u8);
        if self.rearmed_now.contains(&number) && reported & record.assumed != 0 {
            let row =
                "the poll right after it reports a direction that is assumed drained | something";
            assert_eq!(self.table.call(row), "as any event");
            self.change(number, |record| record.ignores_short = true);
        }
        let closed = Ready::READ_CLOSED | Ready::HANGUP | Ready::ERROR;
        self.change(number, |record| {
            record.ready |= answered & record.registered;
            record.drained &= !answered;
            record.assumed &= !answered;
            record.hung_up |= ready.intersects(closed);
        });
        let wanted = self.wanted(number);
        if wanted & answered != 0 {
            self.no_call(if ready.intersects(Ready::HANGUP | Ready::ERROR) {
                "a hang-up or an error | one or more"
            } else if ready.intersects(Ready::READ_CLOSED) {
                "a closed reading half | one or more for reading"
            } else {
                "one or more directions | one or more for one of them"
            });
            for token in self.waiters(number) {
                if self.wait_of(token).interest.bits() & answered != 0 {
                    self.answer(token, ready);
                    events.push((token, ready));
                }
            }
            return;
        }
        let unwanted = reported & record.registered;
        let again = record.spurious & unwanted;
        if unwanted == 0 && wanted != 0 {
            return self.no_call("a closed reading half alone | one or more, none for reading");
        }
        if unwanted == 0 {
            let row = if ready == Ready::READ_CLOSED {
                "a closed reading half alone | none"
            } else {
                "a hang-up or an error alone | none"
            };
            self.driver_call(row, number, &[]);
            self.abandon(number, Some(Ready::ERROR));
            return;
        }
        self.change(number, |record| record.spurious |= unwanted);
        let rest = record.registered & !again;
        if again == 0 {
            self.no_call("a direction, for the first time | none for it");
        } else if rest == 0 {
            let row = "all registered directions, noted as spurious | none";
            self.driver_call(row, number, &[]);
            self.abandon(number, Some(Ready::ERROR));
        } else {
            let row = "a direction that is noted as spurious | none for it";
            let made = self.driver_call(row, number, &[("the rest", rest)]);
            let made = made.unwrap();
            _ = self.rearmed(number, made, false);
        }
    }

    fn deliver(&mut self, events: &mut Vec<(u32, Ready)>) {
        let mut answered = std::mem::take(&mut self.answered);
        answered.sort_by_key(|token| u64::from(self.wait_of(*token).id));
        let answers = answered
            .into_iter()
            .map(|token| (token, self.wait_of(token).answer.unwrap()));
        events.extend(answers);
    }

    /// The registration is made again: `Ok(false)` if the file is not polled.
    fn again(&mut self, row: &str, number: Descriptor) -> Result<bool, ()> {
        let registered = self.record(number).registered;
        let made = self.driver_call(row, number, &[("registered", registered)]);
        let made = made.unwrap();
        self.rearmed(number, made, row.starts_with("replaced"))
    }

    /// The second table.
    fn rearmed(&mut self, number: Descriptor, made: Made, is_told: bool) -> Result<bool, ()> {
        let owner = self.record(number).owner;
        match made.answer {
            Answer::Kept => {
                self.no_call("kept");
                let armed = armed(made);
                self.change(number, |record| {
                    record.token = made.token;
                    record.registered = armed;
                    record.ready &= armed;
                    record.drained &= armed;
                    record.assumed &= armed;
                    record.spurious &= armed;
                });
                Ok(true)
            }
            Answer::New => {
                self.no_call("new");
                if !is_told {
                    self.abandon(number, Some(Ready::ERROR));
                }
                self.begin(number, owner, made);
                Ok(true)
            }
            Answer::Unpollable => {
                self.no_call("unpollable");
                self.abandon(number, None);
                Ok(false)
            }
            Answer::Failed => {
                self.no_call("an error");
                self.abandon(number, Some(Ready::ERROR));
                Err(())
            }
        }
    }

    fn begin(&mut self, number: Descriptor, owner: u64, made: Made) {
        let (registered, token) = (armed(made), made.token);
        let record = Record {
            registered,
            token,
            owner,
            ..Record::default()
        };
        self.records.insert(number, record);
    }

    fn abandon(&mut self, number: Descriptor, answer: Option<Ready>) {
        for token in self.waiters(number) {
            let asked = self.wait_of(token).interest;
            self.answer(token, answer.unwrap_or(Ready::from(asked)));
            self.answered.push(token);
        }
        self.records.remove(&number);
    }

    fn answer(&mut self, token: u32, ready: Ready) {
        let wait = self.waits.iter_mut().find(|wait| wait.token == token);
        let before = wait.unwrap().answer.replace(ready);
        assert_eq!(before, None, "wait {token} is answered twice");
    }

    /// When the oldest unanswered wait was last armed, and how often it was armed again.
    fn oldest(&self, number: Descriptor) -> Option<(Instant, usize)> {
        let mut waits = self.waits.iter();
        let oldest = waits.find(|wait| wait.number == number && wait.answer.is_none())?;
        Some((oldest.armed, oldest.rearms))
    }

    fn no_call(&self, row: &str) {
        assert_eq!(self.table.call(row), "none", "{row}");
    }

    /// Takes the call that the row names from the calls that were made. `named`: the sets of directions that it may name.
    fn driver_call(&self, row: &str, number: Descriptor, named: &[(&str, u8)]) -> Option<Made> {
        let call = self.table.call(row);
        let (call, sets) = call.split_once('(').unwrap_or((call, ""));
        let set = |name| named.iter().find(|(known, _)| *known == name).unwrap().1;
        let interest = || {
            let sets = sets.trim_end_matches(')').split(" and ").map(set);
            Interest::from_bits(sets.fold(0, |all, set| all | set)).unwrap()
        };
        let expected = match call {
            "none" => return None,
            "register" => Call::Register(number, interest()),
            "reregister" => Call::Reregister(number, interest()),
            "deregister" => Call::Deregister(number),
            other => panic!("what is {other:?}?"),
        };
        let made = self.kernel.take_call();
        assert_eq!(made.map(|made| made.call), Some(expected), "{row}");
        made
    }

    /// The events of the newest registrations, since the last call of this.
    pub fn accepted(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.accepted)
    }

    pub fn waits(&self) -> usize {
        self.waits.len()
    }

    /// Token, number and interest of all unanswered waits.
    pub fn unanswered(&self) -> impl Iterator<Item = (u32, Descriptor, Interest)> {
        let waits = self.waits.iter().filter(|wait| wait.answer.is_none());
        waits.map(|wait| (wait.token, wait.number, wait.interest))
    }

    pub fn waiters(&self, number: Descriptor) -> Vec<u32> {
        let waits = self.unanswered().filter(|(_, other, _)| *other == number);
        waits.map(|(token, ..)| token).collect()
    }

    pub fn is_registered(&self, number: Descriptor) -> bool {
        self.record(number).registered != 0
    }

    pub fn cached_readiness(&self, number: Descriptor, owner: OwnerId) -> DescriptorReadiness {
        let record = self.record(number);
        if owner == OwnerId::UNKNOWN || record.owner != owner.0 {
            return DescriptorReadiness::default();
        }
        let of = |direction: Interest| match direction.bits() {
            bit if record.drained & bit != 0 => CachedReadiness::Drained,
            bit if record.ready & bit != 0 => CachedReadiness::Ready,
            _ => CachedReadiness::Unknown,
        };
        DescriptorReadiness {
            readable: of(Interest::READABLE),
            writable: of(Interest::WRITABLE),
            hung_up: record.hung_up,
        }
    }

    fn wanted(&self, number: Descriptor) -> u8 {
        let waits = self.unanswered().filter(|(_, other, _)| *other == number);
        waits.fold(0, |wanted, (.., interest)| wanted | interest.bits())
    }

    fn wait_of(&self, token: u32) -> &Waiting {
        let wait = self.waits.iter().find(|wait| wait.token == token);
        wait.unwrap()
    }

    fn record(&self, number: Descriptor) -> Record {
        self.records.get(&number).copied().unwrap_or_default()
    }

    fn change(&mut self, number: Descriptor, change: impl FnOnce(&mut Record)) {
        change(self.records.get_mut(&number).unwrap());
    }
}

/// The directions that a call has armed.
fn armed(made: Made) -> u8 {
    match made.call {
        Call::Register(_, interest) | Call::Reregister(_, interest) => interest.bits(),
        Call::Deregister(_) => 0,
    }
}

/// The directions whose waits an event ends.
pub fn directions(ready: Ready) -> u8 {
    if ready.intersects(Ready::HANGUP | Ready::ERROR) {
        return 7;
    }
    let all = Interest::from_bits(7).unwrap();
    ready.answers(all).map_or(0, Interest::bits)
}
