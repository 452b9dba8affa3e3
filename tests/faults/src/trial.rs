//! One run of a program: it is only watched, or one of its calls fails.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt, io,
    process::{Command, ExitStatus},
    time::Duration,
};

use crate::{
    caller::Callers,
    descriptors::Owners,
    list::{name, numbers},
    marks,
    supervisor::{Answer, Call, Supervised, Watchdog, kill, run},
};

/// The name of a call that is the same on each machine: what is called, and for which task of the program. The occurrences are
/// counted for each of these, because in which order the tasks run depends on the machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub call: String,
    pub task: Task,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Task {
    /// The descriptor of the call belongs to this task of the program.
    Number(u64),
    /// The call has no descriptor of a task, and the thread that made the mark [`marks::BEGIN`] makes it.
    Main,
    /// As `Main`, by another thread.
    Thread,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Main => f.write_str("main"),
            Self::Thread => f.write_str("thread"),
        }
    }
}

impl std::str::FromStr for Task {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "main" => Ok(Self::Main),
            "thread" => Ok(Self::Thread),
            number => number.parse().map(Self::Number),
        }
    }
}

/// What happens to the calls that count.
#[derive(Clone, Debug)]
pub enum Plan {
    /// They are only counted.
    Watch,
    /// The call with this name and number among the calls of its name (from 1 on) fails with this error.
    Fail(Place, usize, i32),
}

#[derive(Debug)]
pub struct Report {
    /// None: the program hung, and was killed.
    pub status: Option<ExitStatus>,
    /// How often each call was made between the marks; only of the calls of the list, unless they were only watched.
    pub calls: BTreeMap<Place, usize>,
    /// Whether the call that was to fail was made.
    pub is_made: bool,
}

impl Plan {
    /// The numbers of the calls that are asked about in trials with these plans; empty: all.
    pub fn asked(plans: &[Self]) -> Vec<i64> {
        if plans.iter().any(|plan| matches!(plan, Self::Watch)) {
            return Vec::new();
        }
        let marks = [libc::SYS_getpriority];
        numbers().into_iter().chain(marks).collect()
    }
}

/// Runs the program, whose filter has the numbers of [`Plan::asked`]. A trial begins with a mark that has the number of its plan,
/// and ends with the process that has made the mark. If `library` is given, only calls count that are made by the file whose
/// path ends so. No trial may take longer than `limit`. None for a trial that has not begun.
///
/// # Errors
///
/// Those of [`run`].
pub fn trials(
    command: Command,
    plans: &[Plan],
    library: Option<&str>,
    limit: Duration,
) -> io::Result<Vec<Option<Report>>> {
    let mut trials = Trials {
        plans,
        library,
        current: None,
        begun: None,
        callers: Callers::default(),
        reports: plans.iter().map(|_| None).collect(),
    };
    run(command, limit, &mut trials)?;
    Ok(trials.reports)
}

struct Trials<'a> {
    plans: &'a [Plan],
    library: Option<&'a str>,
    current: Option<Trial>,
    /// The process that has just made its first mark.
    begun: Option<i32>,
    callers: Callers,
    reports: Vec<Option<Report>>,
}

struct Trial {
    number: usize,
    process: i32,
    /// The thread that made the first mark.
    main: i32,
    /// Whether the calls count.
    is_on: bool,
    processes: HashMap<i32, i32>,
    owners: Owners,
    of_the_test: HashSet<i32>,
    calls: BTreeMap<Place, usize>,
    is_made: bool,
}

impl Supervised for Trials<'_> {
    fn answer(&mut self, call: &Call) -> Answer {
        if call.number == libc::SYS_getpriority {
            return self.mark(call);
        }
        let Some(trial) = self.current.as_mut().filter(|trial| trial.is_on) else {
            return Answer::Real;
        };
        if trial.process_of(call.thread) != trial.process {
            return Answer::Real;
        }
        let owner = trial.owners.owner(call);
        if call.number == libc::SYS_close {
            trial.owners.close(call);
        }
        let is_of_the_library = |path| self.callers.is_library(call, path);
        if trial.of_the_test.contains(&call.thread) || !self.library.is_none_or(is_of_the_library) {
            return Answer::Real;
        }
        let place = Place {
            task: trial.task(owner, call.thread),
            call: name(call),
        };
        trial.count(place, &self.plans[trial.number])
    }

    fn ended(&mut self, thread: i32, status: ExitStatus, watchdog: &Watchdog) {
        let is_end = |trial: &mut Trial| trial.process == thread;
        let Some(trial) = self.current.take_if(is_end) else {
            return;
        };
        kill(thread); // Children that it has left.
        self.reports[trial.number] = Some(Report {
            status: (!watchdog.has_killed(thread)).then_some(status),
            calls: trial.calls,
            is_made: trial.is_made,
        });
    }

    fn begun(&mut self) -> Option<i32> {
        self.begun.take()
    }
}

impl Trials<'_> {
    fn mark(&mut self, call: &Call) -> Answer {
        let mark = call.arguments[1];
        if let Some(number) = marks::begun(mark) {
            self.begin(number, call.thread);
            return MARKED;
        }
        let Some(trial) = &mut self.current else {
            return Answer::Real;
        };
        match mark {
            marks::END => trial.is_on = false,
            marks::LIBRARY => _ = trial.of_the_test.remove(&call.thread),
            marks::TEST => _ = trial.of_the_test.insert(call.thread),
            mark => match marks::owned(mark) {
                Some((descriptor, task)) => trial.owners.own(descriptor, task),
                None => return Answer::Real,
            },
        }
        MARKED
    }

    fn begin(&mut self, number: usize, thread: i32) {
        let process = process_of(thread);
        self.begun = Some(process);
        self.current = Some(Trial {
            number,
            process,
            main: thread,
            is_on: true,
            processes: HashMap::new(),
            owners: Owners::default(),
            of_the_test: HashSet::new(),
            calls: BTreeMap::new(),
            is_made: false,
        });
    }
}

/// The answer to a mark.
const MARKED: Answer = Answer::Value(20);

impl Trial {
    fn process_of(&mut self, thread: i32) -> i32 {
        *self
            .processes
            .entry(thread)
            .or_insert_with(|| process_of(thread))
    }

    fn task(&self, owner: Option<u64>, thread: i32) -> Task {
        match owner {
            Some(number) => Task::Number(number),
            None if thread == self.main => Task::Main,
            None => Task::Thread,
        }
    }

    fn count(&mut self, place: Place, plan: &Plan) -> Answer {
        let count = self.calls.entry(place.clone()).or_default();
        *count += 1;
        match plan {
            Plan::Fail(wanted, occurrence, error) if *wanted == place && occurrence == count => {
                self.is_made = true;
                Answer::Error(*error)
            }
            _ => Answer::Real,
        }
    }
}

/// The process of a thread.
fn process_of(thread: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}
