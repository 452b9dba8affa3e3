//! `reactor-faults REPORT LIBRARY SECONDS PLANS -- COMMAND…`: runs a program, and writes what it did. Only calls of the file with
//! the end LIBRARY count; `-`: all. PLANS is a file with a line for each trial: `watch`, or `TASK NUMBER ERROR CALL`.

use std::{env, error::Error, fmt::Write, fs, path::Path, process::exit, time::Duration};

use reactor_faults::{
    filter::{REFUSED, STOPPED, command, stop_and_become},
    list::error,
    trial::{Place, Plan, Report, trials},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == STOPPED) {
        eprintln!("{}", stop_and_become(&arguments[1..]));
        exit(REFUSED);
    }
    let place = arguments.iter().position(|word| word == "--");
    let (own, program) = arguments.split_at(place.ok_or("no --")?);
    let [report, library, seconds, plans] = own else {
        return Err("see the beginning of the source".into());
    };
    let plans: Vec<Plan> = fs::read_to_string(plans)?
        .lines()
        .map(plan)
        .collect::<Result<_, _>>()?;
    let helper = env::current_exe()?;
    let program = command(&helper, &Plan::asked(&plans), &program[1..]);
    let library = Some(&**library).filter(|library| *library != "-");
    let limit = Duration::from_secs(seconds.parse()?);
    let done = trials(program, &plans, library, limit)?;
    write(Path::new(report), &done)
}

fn plan(line: &str) -> Result<Plan, Box<dyn Error>> {
    if line == "watch" {
        return Ok(Plan::Watch);
    }
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    let [task, number, failure, call] = words[..] else {
        return Err("TASK NUMBER ERROR CALL".into());
    };
    let place = Place {
        call: call.to_owned(),
        task: task.parse()?,
    };
    let failure = error(failure).ok_or("no error has this name")?;
    Ok(Plan::Fail(place, number.parse()?, failure))
}

/// `trial NUMBER STATUS`, `made` and `call COUNT TASK CALL` for each trial that has begun.
fn write(path: &Path, reports: &[Option<Report>]) -> Result<(), Box<dyn Error>> {
    let mut text = String::new();
    for (number, report) in reports.iter().enumerate() {
        let Some(report) = report else { continue };
        let status = report.status.map(|status| status.to_string());
        writeln!(
            text,
            "trial {number} {}",
            status.as_deref().unwrap_or("hung")
        )?;
        if report.is_made {
            text.push_str("made\n");
        }
        for (Place { call, task }, count) in &report.calls {
            writeln!(text, "call {count} {task} {call}")?;
        }
    }
    Ok(fs::write(path, text)?)
}
