//! One run of a program: it is only watched, or one of its calls fails.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    process::{Command, ExitStatus},
    time::Duration,
};

use crate::{
    caller::Callers,
    list::{name, numbers},
    marks,
    supervisor::{Answer, Call, run},
};

/// What happens to the calls that count.
#[derive(Clone, Debug)]
pub enum Plan {
    /// They are only counted.
    Watch,
    /// The call with this name and number among the calls of its name (from 1 on) fails with this error.
    Fail(String, usize, i32),
}

#[derive(Debug)]
pub struct Report {
    /// None: the program hung, and was killed.
    pub status: Option<ExitStatus>,
    /// How often each call was made between the marks; only of the calls of the list, unless they were only watched.
    pub calls: BTreeMap<String, usize>,
    /// The arguments of the call that failed; None if it was not made.
    pub failed: Option<[u64; 6]>,
}

impl Plan {
    /// The numbers of the calls that are asked about; empty: all.
    pub fn asked(&self) -> Vec<i64> {
        match self {
            Self::Watch => Vec::new(),
            Self::Fail(..) => numbers()
                .into_iter()
                .chain([libc::SYS_getpriority])
                .collect(),
        }
    }
}

/// Runs the program, whose filter has the numbers of [`Plan::asked`]. If `library` is given, only calls count that are made by
/// the file whose path ends so.
///
/// # Errors
///
/// Those of [`run`].
pub fn trial(
    command: Command,
    plan: &Plan,
    library: Option<&str>,
    limit: Duration,
) -> io::Result<Report> {
    let mut watch = Watch {
        plan,
        library,
        process: None,
        of_the_test: HashSet::new(),
        callers: Callers::default(),
        calls: BTreeMap::new(),
        failed: None,
    };
    let status = run(command, limit, |call| watch.answer(call))?;
    Ok(Report {
        status,
        calls: watch.calls,
        failed: watch.failed,
    })
}

struct Watch<'a> {
    plan: &'a Plan,
    library: Option<&'a str>,
    /// The process between the marks.
    process: Option<i32>,
    of_the_test: HashSet<i32>,
    callers: Callers,
    calls: BTreeMap<String, usize>,
    failed: Option<[u64; 6]>,
}

impl Watch<'_> {
    fn answer(&mut self, call: &Call) -> Answer {
        if call.number == libc::SYS_getpriority {
            return self.mark(call);
        }
        if !self.counts(call) {
            return Answer::Real;
        }
        let name = name(call);
        let count = self.calls.entry(name.clone()).or_default();
        *count += 1;
        match self.plan {
            Plan::Fail(wanted, place, error) if *wanted == name && *place == *count => {
                self.failed = Some(call.arguments);
                Answer::Error(*error)
            }
            _ => Answer::Real,
        }
    }

    fn mark(&mut self, call: &Call) -> Answer {
        match call.arguments[1] {
            marks::BEGIN => self.process = Some(process_of(call.thread)),
            marks::END => self.process = None,
            marks::LIBRARY => _ = self.of_the_test.remove(&call.thread),
            marks::TEST => _ = self.of_the_test.insert(call.thread),
            _ => return Answer::Real,
        }
        Answer::Value(20)
    }

    fn counts(&mut self, call: &Call) -> bool {
        let Some(process) = self.process else {
            return false;
        };
        if self.of_the_test.contains(&call.thread) || process_of(call.thread) != process {
            return false;
        }
        match self.library {
            Some(path) => self.callers.is_library(call, path) == Some(true),
            None => true,
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
