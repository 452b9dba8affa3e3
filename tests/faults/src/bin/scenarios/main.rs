//! Programs that use the core, and run under supervision. A step that fails is reported and done again.
//!
//!     scenarios                       prints their names
//!     scenarios NAME FOLDER TRIALS    runs one as often, each time in another process, which writes to FOLDER/n.out and FOLDER/n.err
//!     scenarios NAME NUMBER           runs it once

mod operations;
mod readiness;
mod threads;

use std::{
    env,
    fs::{self, File},
    io,
    os::{
        fd::AsRawFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::Command,
    thread,
};

use reactor::Backend;
use reactor_faults::{
    list::error_name,
    marks::{BEGIN, END, TEST, library, mark},
};

type Scenario = fn(&World);

const OF_EACH_DRIVER: [(&str, Scenario); 8] = [
    ("open", readiness::open),
    ("events", readiness::events),
    ("waits", readiness::waits),
    ("closes", readiness::closes),
    ("timers", readiness::timers),
    ("notifications", threads::notifications),
    ("jobs", threads::jobs),
    ("workers", threads::workers),
];

const OF_THE_RING: [(&str, Scenario); 5] = [
    ("operations", operations::transfers),
    ("operations-and-events", operations::with_events),
    ("operations-of-files", operations::files),
    ("operations-abandoned", operations::abandoned),
    ("operations-overflow", operations::overflow),
];

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    match &words[..] {
        [] => names().iter().for_each(|name| println!("{name}")),
        [name, number] => run(name, number.parse().unwrap()),
        [name, folder, trials] => {
            for number in 0..trials.parse().unwrap() {
                start(name, folder, number);
            }
        }
        _ => panic!("see the beginning of the source"),
    }
}

/// The supervisor kills all processes of a trial that hangs, so it has a group of its own.
fn start(name: &str, folder: &str, number: u64) {
    let output = |ending| File::create(format!("{folder}/{number}.{ending}")).unwrap();
    Command::new(env::current_exe().unwrap())
        .args([name, &number.to_string()])
        .process_group(0)
        .stdout(output("out"))
        .stderr(output("err"))
        .status()
        .unwrap();
}

/// As `epoll/open`.
fn names() -> Vec<String> {
    let mut names = Vec::new();
    for backend in [Backend::Epoll, Backend::Uring, Backend::Poll] {
        if backend.availability().is_err() {
            continue;
        }
        let of_the_ring = if backend == Backend::Uring {
            &OF_THE_RING[..]
        } else {
            &[]
        };
        for (name, _) in OF_EACH_DRIVER.iter().chain(of_the_ring) {
            names.push(format!("{backend}/{name}"));
        }
    }
    names
}

fn run(name: &str, number: u64) {
    let (backend, name) = name.split_once('/').unwrap();
    let world = World {
        backend: backend.parse().unwrap(),
    };
    let mut all = OF_EACH_DRIVER.iter().chain(&OF_THE_RING);
    let (_, scenario) = all.find(|(known, _)| *known == name).unwrap();
    let before = descriptors();
    mark(BEGIN + number);
    mark(TEST);
    scenario(&world);
    mark(END);
    until_alone();
    print(&format!("descriptors left {}", descriptors() - before));
}

/// What a scenario works with.
pub struct World {
    pub backend: Backend,
}

/// Runs code of the library until it succeeds. It reports each failure.
pub fn retry<T>(mut run: impl FnMut() -> io::Result<T>) -> T {
    for _ in 0..5 {
        match library(&mut run) {
            Ok(value) => return value,
            Err(error) => report(&error),
        }
    }
    panic!("it fails again and again");
}

pub fn report(error: &io::Error) {
    match error.raw_os_error().and_then(error_name) {
        Some(name) => println!("error core Errno::{name}"),
        None => println!("error core {error}"),
    }
}

/// Prints what must be the same in each run.
pub fn print(line: &str) {
    println!("| {line}");
}

pub fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

pub fn number(source: &impl AsRawFd) -> i32 {
    source.as_raw_fd()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns when the workers of a pool that was dropped have ended.
fn until_alone() {
    // The ring's own threads end with the ring.
    let threads = || {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| !name.starts_with("iou-")).count()
    };
    for _ in 0..1_000_000 {
        if threads() == 1 {
            return;
        }
        thread::yield_now();
    }
    panic!("a worker does not end");
}
