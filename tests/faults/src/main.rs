//! `reactor-faults REPORT LIBRARY SECONDS watch|NAME NUMBER ERROR -- COMMAND…`: runs a program, and writes what it did.

use std::{env, fs, process::exit, time::Duration};

use reactor_faults::{
    filter::{REFUSED, STOPPED, command, stop_and_become},
    list::error,
    trial::{Plan, trial},
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == STOPPED) {
        eprintln!("{}", stop_and_become(&arguments[1..]));
        exit(REFUSED);
    }
    let place = arguments.iter().position(|word| word == "--");
    let (own, program) = arguments.split_at(place.ok_or("no --")?);
    let (report, library, seconds, plan) = match own {
        [report, library, seconds, watch] if watch == "watch" => {
            (report, library, seconds, Plan::Watch)
        }
        [report, library, seconds, name, number, failure] => {
            let failure = error(failure).ok_or("no error has this name")?;
            let plan = Plan::Fail(name.clone(), number.parse()?, failure);
            (report, library, seconds, plan)
        }
        _ => return Err("see the beginning of the source".into()),
    };
    let program = command(&env::current_exe()?, &plan.asked(), &program[1..]);
    let limit = Duration::from_secs(seconds.parse()?);
    let done = trial(program, &plan, Some(library), limit)?;
    let status = done
        .status
        .map_or("hung".to_owned(), |status| status.to_string());
    let mut text = format!("status {status}\n");
    if let Some(arguments) = done.failed {
        text.push_str(&format!("failed {} {}\n", arguments[0], arguments[2]));
    }
    for (name, count) in done.calls {
        text.push_str(&format!("call {count} {name}\n"));
    }
    fs::write(report, text)?;
    Ok(())
}
