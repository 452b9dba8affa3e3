//! Each system call of the core fails once with each error of its row in the list, at each place where the scenarios make it.
//! The core reports the error once, or not at all, where it goes on by itself. The same call again then does what it would have
//! done, and at the end nothing is lost: the scenario prints what it would print without a failure.

mod scenarios;

use std::{
    collections::BTreeSet,
    env,
    fs::File,
    io::{self, Read, Write},
    path::Path,
    time::Duration,
};

use reactor_faults::{
    filter::command,
    list::{Row, error, rows},
    trial::{Place, Plan, Report, trials},
};

const SCENARIO: &str = "REACTOR_SCENARIO";

/// The programs that the tests below run under supervision.
#[test]
fn scenario() {
    if let Ok(name) = env::var(SCENARIO) {
        scenarios::run(&name);
    }
}

#[test]
fn every_call_of_the_core_is_in_the_list_and_may_fail() {
    let mut counts = Counts::default();
    let mut problems = Vec::new();
    for name in scenarios::names() {
        match start(&name, &Plan::Watch) {
            Ok((report, expected)) => {
                problems.extend(scenario_with_failures(
                    &name,
                    &report,
                    &expected,
                    &mut counts,
                ));
            }
            Err(error) => {
                println!("no ptrace(2) here: {error}");
                return;
            }
        }
    }
    counts.write().unwrap();
    let (pairs, faults, runs) = (counts.pairs.len(), counts.faults, counts.runs);
    println!("core: {pairs} pairs of a call and an error, {runs} of {faults} faults made");
    let list = problems.join("\n");
    assert!(problems.is_empty(), "{} problems\n{list}", problems.len());
}

#[derive(Default)]
struct Counts {
    pairs: BTreeSet<(String, &'static str)>,
    /// Those of the faults that were made.
    made: BTreeSet<(String, &'static str)>,
    faults: usize,
    runs: usize,
}

impl Counts {
    /// A line for each pair that was made, for the comparison with the whole list.
    fn write(&self) -> io::Result<()> {
        let Some(path) = env::var_os("REACTOR_PAIRS") else {
            return Ok(());
        };
        let lines: String = self
            .made
            .iter()
            .map(|(call, failure)| format!("{call}: {failure}\n"))
            .collect();
        File::options()
            .append(true)
            .create(true)
            .open(path)?
            .write_all(lines.as_bytes())
    }
}

/// Runs a scenario once for each call, error and place. `usual` and `expected` are those of its run without a failure.
fn scenario_with_failures(
    name: &str,
    usual: &Report,
    expected: &Printed,
    counts: &mut Counts,
) -> Vec<String> {
    let succeeded = usual.status.is_some_and(|status| status.success());
    if !succeeded || !expected.errors.is_empty() {
        return vec![format!("{name}: {usual:?} {expected:?}")];
    }
    let mut problems = Vec::new();
    for (place, count) in &usual.calls {
        let Place { call, task } = place;
        let Some(row) = rows().remove(call.as_str()) else {
            problems.push(format!("{name}: {call} is not in the list"));
            continue;
        };
        let Row::Fails(errors) = row else { continue };
        for failure in errors {
            counts.pairs.insert((call.clone(), failure));
            for occurrence in 1..=*count {
                counts.faults += 1;
                if !counts.faults.is_multiple_of(sample()) {
                    continue;
                }
                let plan = Plan::Fail(place.clone(), occurrence, error(failure).unwrap());
                let (done, found) = start(name, &plan).unwrap();
                // Threads do not make the same number of calls each time.
                if done.is_made {
                    counts.runs += 1;
                    counts.made.insert((call.clone(), failure));
                }
                let found = compare(call, failure, usual, expected, &done, &found);
                let told = found.iter().map(|text| {
                    format!("{name}: {call} of {task} #{occurrence} {failure}: {text}")
                });
                problems.extend(told);
            }
        }
    }
    problems
}

/// Every n-th fault is made. bin/check faults makes all of them.
fn sample() -> usize {
    env::var("REACTOR_SAMPLE").map_or(20, |number| number.parse().unwrap())
}

/// How long a scenario may take. It takes a tenth of a second.
const LIMIT: Duration = Duration::from_secs(60);

/// What a scenario printed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Printed {
    errors: Vec<String>,
    /// The other lines.
    rest: String,
}

fn compare(
    call: &str,
    failure: &str,
    usual: &Report,
    expected: &Printed,
    done: &Report,
    found: &Printed,
) -> Vec<String> {
    let mut problems = Vec::new();
    match done.status {
        None => problems.push("hangs".to_owned()),
        Some(status) if !status.success() => problems.push(format!("ends with {status}")),
        Some(_) => {}
    }
    // A close that fails is not made here; the kernel would close the descriptor nevertheless.
    let left = |rest: &str| rest.replace("descriptors left 1", "descriptors left 0");
    let is_same = if call == "close" {
        left(&found.rest) == expected.rest
    } else {
        found.rest == expected.rest
    };
    if !is_same {
        problems.push(format!(
            "is left with\n{}instead of\n{}",
            found.rest, expected.rest
        ));
    }
    let number = error(failure).unwrap().to_string();
    match &found.errors[..] {
        [] => {}
        [_] if failure == "EINTR" => problems.push("EINTR is reported".to_owned()),
        [reported] if *reported == number => {}
        // pthread_create(3) reports each failure of clone3(2) so.
        [reported] if call == "clone3" && *reported == libc::EAGAIN.to_string() => {}
        others => problems.push(format!("reports {others:?}")),
    }
    let all = |report: &Report| report.calls.values().sum::<usize>();
    if all(done) > all(usual) + 100 {
        problems.push(format!("makes {} calls", all(done)));
    }
    problems
}

fn start(name: &str, plan: &Plan) -> io::Result<(Report, Printed)> {
    let (mut reader, writer) = io::pipe()?;
    let me = env::current_exe()?.into_os_string();
    let words = ["--exact", "scenario", "--nocapture", "--test-threads=1"];
    let program: Vec<_> = [me].into_iter().chain(words.map(Into::into)).collect();
    let helper = Path::new(env!("CARGO_BIN_EXE_reactor-faults"));
    let plans = [plan.clone()];
    let mut command = command(helper, &Plan::asked(&plans), &program);
    command.env(SCENARIO, name).stdout(writer);
    if env::var_os("REACTOR_LOUD").is_none() {
        command.stderr(File::create("/dev/null")?);
    }
    let report = trials(command, &plans, None, LIMIT)?.remove(0);
    let report = report.expect("the scenario has not begun");
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    let mut printed = Printed::default();
    for line in text.lines() {
        if let Some(error) = line.strip_prefix("error ") {
            printed.errors.push(error.to_owned());
        } else if let Some(line) = line.strip_prefix("| ") {
            printed.rest.push_str(line);
            printed.rest.push('\n');
        }
    }
    Ok((report, printed))
}
