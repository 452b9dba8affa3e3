//! The resources that a run has used, in the format of bench/harness/usage.rb.

use std::{
    io,
    time::{Duration, Instant},
};

use rustix::time::{ClockId, clock_gettime};

pub struct Usage {
    started: Instant,
    cpu: Duration,
    switches: u64,
}

impl Usage {
    pub fn now() -> Self {
        Self {
            started: Instant::now(),
            cpu: time(ClockId::ProcessCPUTime),
            switches: switches(),
        }
    }

    fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Prints the account. `extra` is further JSON that begins with a comma.
    pub fn print(&self, operations: usize, extra: &str) -> io::Result<()> {
        let seconds = self.seconds();
        let cpu = (time(ClockId::ProcessCPUTime) - self.cpu).as_secs_f64();
        let switches = switches() - self.switches;
        println!(
            "{{\"operations\":{operations},\"seconds\":{seconds:.9},\"cpu\":{cpu:.9},\"switches\":{switches}{extra}}}"
        );
        Ok(())
    }
}

/// Runs once to warm up, then once measured. Prints the account with the result of `extra`, which gets the seconds.
pub fn measure(
    operations: usize,
    mut run: impl FnMut(usize) -> io::Result<()>,
    extra: impl Fn(f64) -> String,
) -> io::Result<()> {
    run(warm_up(operations))?;
    let usage = Usage::now();
    run(operations)?;
    let extra = extra(usage.seconds());
    usage.print(operations, &extra)
}

/// An `extra` for [`measure`] that adds nothing.
pub fn plainly(_: f64) -> String {
    String::new()
}

/// An `extra` for [`measure`]: MiB per second.
pub fn mebibytes(bytes: usize) -> impl Fn(f64) -> String {
    move |seconds| {
        let rate = bytes as f64 / seconds / f64::from(1 << 20);
        format!(",\"mebibytes\":{rate}")
    }
}

/// The operations of the warm-up: a tenth, as in the Ruby harness.
pub fn warm_up(operations: usize) -> usize {
    (operations / 10).max(1)
}

/// Fails if the two values differ.
pub fn check<T: PartialEq + std::fmt::Debug>(got: T, expected: T, what: &str) -> io::Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "wrong result: {what}: {got:?} instead of {expected:?}"
    )))
}

pub fn time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The voluntary context switches of all threads of this process.
fn switches() -> u64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return 0;
    };
    let of_task = |path: std::path::PathBuf| -> Option<u64> {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let line = status
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        line.split_whitespace().last()?.parse().ok()
    };
    tasks
        .flatten()
        .filter_map(|task| of_task(task.path()))
        .sum()
}
