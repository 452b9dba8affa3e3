//! A model of the kernel: numbers, files that may have several of them, and registrations: edge-triggered, each of one number and one
//! file, as in epoll(7); or level-triggered, each of one number, as in poll(2). It keeps the contract of `Driver`, and knows what is
//! truly ready.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use reactor::{Descriptor, Driver, Event, Events, Interest, Ready, Registration, Token, Wake};

use crate::memory;

/// A call of the registry, with the kernel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Register(Descriptor, Interest),
    Reregister(Descriptor, Interest),
    Deregister(Descriptor),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Registered; or the registration was found.
    Kept,
    New,
    Unpollable,
    Failed,
}

/// A call that was made, and the token that it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    pub call: Call,
    pub token: Option<Token>,
    pub answer: Answer,
}

/// An event, and the number and file of the registration that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    pub event: Event,
    pub number: Descriptor,
    pub file: usize,
}

struct Armed {
    number: Descriptor,
    file: usize,
    token: Token,
    interest: Interest,
    /// There was an edge since the last report.
    edge: bool,
}

struct File {
    ready: Ready,
    pollable: bool,
}

impl File {
    /// A file that is not pollable is always ready, and may be polled by level: a number became its, and nobody said so.
    fn readiness(&self) -> Ready {
        match self.pollable {
            true => self.ready,
            false => Ready::READABLE | Ready::WRITABLE | Ready::PRIORITY,
        }
    }
}

#[derive(Default)]
struct State {
    numbers: BTreeMap<Descriptor, usize>,
    files: HashMap<usize, File>,
    opened: usize,
    armed: Vec<Armed>,
    /// The numbers of all calls that arm one, since they were last asked for.
    named: Vec<Descriptor>,
    calls: VecDeque<Made>,
    /// The events of each poll; None if it failed.
    polls: VecDeque<Option<Vec<Report>>>,
    failures: VecDeque<bool>,
    /// The next poll reports again what is ready, although there was no edge.
    repeats: bool,
    /// As poll(2): no edges, and a registration is of whatever file its number has.
    by_level: bool,
}

#[derive(Clone, Default)]
pub struct Kernel(Arc<Mutex<State>>);

impl Kernel {
    pub fn new(by_level: bool) -> Self {
        let kernel = Self::default();
        kernel.state().by_level = by_level;
        kernel
    }

    /// A new file under the lowest free number.
    pub fn open(&self, pollable: bool, ready: Ready) -> Descriptor {
        let mut state = self.state();
        state.opened += 1;
        let file = state.opened;
        state.files.insert(file, File { ready, pollable });
        state.number(file)
    }

    /// Another number of the same file.
    pub fn dup(&self, number: Descriptor) -> Descriptor {
        let mut state = self.state();
        let file = state.numbers[&number];
        state.number(file)
    }

    /// `number` refers to the file of `other` from now on.
    pub fn dup2(&self, other: Descriptor, number: Descriptor) {
        let mut state = self.state();
        let file = state.numbers[&other];
        state.numbers.insert(number, file);
        state.end_files();
    }

    pub fn close(&self, number: Descriptor) {
        let mut state = self.state();
        state.numbers.remove(&number);
        state.end_files();
    }

    pub fn file(&self, number: Descriptor) -> Option<usize> {
        self.state().numbers.get(&number).copied()
    }

    /// What is truly ready; an error if the number is not open.
    pub fn ready(&self, number: Descriptor) -> Ready {
        let state = self.state();
        let file = state.numbers.get(&number);
        file.map_or(Ready::ERROR, |file| state.files[file].readiness())
    }

    /// More of the file is ready: an edge.
    pub fn raise(&self, number: Descriptor, more: Ready) {
        let mut state = self.state();
        let file = state.numbers[&number];
        let entry = state.files.get_mut(&file).unwrap();
        entry.ready |= more;
        for armed in state.armed.iter_mut().filter(|armed| armed.file == file) {
            armed.edge |= !visible(more, armed.interest).is_empty();
        }
    }

    /// Something was read or written: these are no longer ready.
    pub fn consume(&self, number: Descriptor, less: Ready) {
        let mut state = self.state();
        let file = state.numbers[&number];
        let entry = state.files.get_mut(&file).unwrap();
        entry.ready = entry.ready.without(less);
    }

    /// Whether each of the next calls fails.
    pub fn fail(&self, failures: impl IntoIterator<Item = bool>) {
        self.state().failures = failures.into_iter().collect();
    }

    pub fn repeat(&self) {
        self.state().repeats = true;
    }

    /// The oldest call that was not taken.
    pub fn take_call(&self) -> Option<Made> {
        self.state().calls.pop_front()
    }

    /// The events of the oldest poll that was not taken; None if it failed.
    pub fn take_poll(&self) -> Option<Vec<Report>> {
        let poll = self.state().polls.pop_front();
        poll.expect("there was a poll")
    }

    /// The numbers that the calls since the last call of this have armed, or tried to.
    pub fn take_armed(&self) -> Vec<Descriptor> {
        std::mem::take(&mut self.state().named)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    fn called(&self, call: Call, token: Option<Token>, answer: Answer) -> Answer {
        let made = Made {
            call,
            token,
            answer,
        };
        self.state().calls.push_back(made);
        answer
    }
}

impl State {
    fn number(&mut self, file: usize) -> Descriptor {
        let free = (3..).find(|number| !self.numbers.contains_key(number));
        let number = free.unwrap();
        self.numbers.insert(number, file);
        number
    }

    /// A file without a number ends, and its registrations with it.
    fn end_files(&mut self) {
        let numbers = &self.numbers;
        self.files
            .retain(|file, _| numbers.values().any(|open| open == file));
        let (files, by_level) = (&self.files, self.by_level);
        self.armed
            .retain(|armed| by_level || files.contains_key(&armed.file));
    }

    /// As poll(2): each registration is of the file that its number has now, and that of a closed number leaves.
    fn follow_numbers(&mut self) {
        let numbers = &self.numbers;
        self.armed.retain_mut(|armed| {
            numbers
                .get(&armed.number)
                .map(|file| armed.file = *file)
                .is_some()
        });
    }

    fn arm(&mut self, number: Descriptor, token: Token, interest: Interest) -> Answer {
        self.named.push(number);
        let file = self.numbers.get(&number).copied();
        let failed = self.failures.pop_front() == Some(true);
        let known = self.armed.iter().position(|armed| {
            armed.number == number && (self.by_level || Some(armed.file) == file)
        });
        let Some(file) = file.filter(|_| !failed) else {
            known.map(|place| self.armed.remove(place));
            return Answer::Failed;
        };
        let File { ready, pollable } = self.files[&file];
        if !pollable && !self.by_level {
            return Answer::Unpollable;
        }
        known.map(|place| self.armed.remove(place));
        if !pollable {
            return Answer::Unpollable;
        }
        self.armed.push(Armed {
            number,
            file,
            token,
            interest,
            edge: !visible(ready, interest).is_empty(),
        });
        if known.is_some() {
            Answer::Kept
        } else {
            Answer::New
        }
    }

    fn poll(&mut self, events: &mut Events) -> Vec<Report> {
        let mut reports = Vec::new();
        let repeats = std::mem::take(&mut self.repeats) || self.by_level;
        if self.by_level {
            self.follow_numbers();
        }
        for armed in &mut self.armed {
            let ready = visible(self.files[&armed.file].readiness(), armed.interest);
            let edge = std::mem::take(&mut armed.edge) || repeats;
            if edge && !ready.is_empty() {
                let token = armed.token;
                let event = Event { token, ready };
                events.push(event);
                let (number, file) = (armed.number, armed.file);
                reports.push(Report {
                    event,
                    number,
                    file,
                });
            }
        }
        reports
    }
}

/// What of `ready` is reported to a registration with this interest: a hang-up and an error always.
fn visible(ready: Ready, interest: Interest) -> Ready {
    let hidden = (Ready::READABLE | Ready::PRIORITY | Ready::WRITABLE).without(interest.into());
    let seen = ready.without(hidden);
    if interest.is_readable() || ready.contains(Ready::HANGUP) {
        seen
    } else {
        seen.without(Ready::READ_CLOSED)
    }
}

impl Driver for Kernel {
    fn register(
        &mut self,
        number: Descriptor,
        token: Token,
        interest: Interest,
        is_known: bool,
    ) -> io::Result<Registration> {
        memory::counted(false, || {
            let answer = self.state().arm(number, token, interest);
            let call = match is_known {
                true => Call::Reregister(number, interest),
                false => Call::Register(number, interest),
            };
            match self.called(call, Some(token), answer) {
                Answer::Kept => Ok(Registration::Kept),
                Answer::New => Ok(Registration::New),
                Answer::Unpollable => Ok(Registration::Unpollable),
                Answer::Failed => Err(io::ErrorKind::OutOfMemory.into()),
            }
        })
    }

    /// If it fails, the registration stays.
    fn deregister(&mut self, number: Descriptor) -> io::Result<()> {
        memory::counted(false, || {
            let mut state = self.state();
            let failed = state.failures.pop_front() == Some(true);
            let file = state.numbers.get(&number).copied();
            if !failed {
                let by_level = state.by_level;
                state.armed.retain(|armed| {
                    armed.number != number || !(by_level || Some(armed.file) == file)
                });
            }
            drop(state);
            match self.called(Call::Deregister(number), None, Answer::Kept) {
                _ if failed => Err(io::ErrorKind::OutOfMemory.into()),
                _ => Ok(()),
            }
        })
    }

    fn poll(&mut self, events: &mut Events, _: Option<Duration>) -> io::Result<()> {
        memory::counted(false, || {
            events.clear();
            let mut state = self.state();
            if state.failures.pop_front() == Some(true) {
                state.polls.push_back(None);
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            let reports = state.poll(events);
            state.polls.push_back(Some(reports));
            Ok(())
        })
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(Silent)
    }

    fn descriptor(&self) -> Option<Descriptor> {
        None
    }
}

struct Silent;

impl Wake for Silent {
    fn wake(&self) -> io::Result<()> {
        Ok(())
    }
}
