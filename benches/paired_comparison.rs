//! The cycle of `benches/core/cycle.rs`, interleaved: in each round, each loop runs the same number of cycles at each size.
//! Measures processor time, so other work on the machine affects all loops equally.
//!
//! ```text
//! cargo bench --bench paired_comparison                     a table: nanoseconds a cycle, the median of the rounds
//! cargo bench --bench paired_comparison -- --json           the same as JSON, with the ratios to raw epoll within a round
//! cargo bench --bench paired_comparison -- NAME SIZE COUNT  COUNT cycles of one loop, for an instruction counter
//! ```
//!
//! "payload" writes and reads the byte without a wait. The rest of a cycle's cost is the cost of waiting.

#[cfg(target_os = "linux")]
#[path = "core/loops/mod.rs"]
mod loops;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [name, size, count] if !name.starts_with('-') => {
            let number = |text: &str| text.parse().expect("a number");
            comparison::alone(name, number(size), number(count));
        }
        options => comparison::run(options.iter().any(|option| option == "--json")),
    }
}

#[cfg(target_os = "linux")]
mod comparison {
    use std::collections::BTreeMap;

    use rustix::time::{ClockId, clock_gettime};

    use crate::loops::{LOOPS, Loop, Open, SIZES, Sources};

    const ROUNDS: usize = 61;
    const WARM_UP: usize = 200;
    const CYCLES: usize = 1000;
    /// The number of registered sources that receive bytes. The others are idle.
    const ACTIVE: usize = 100;

    /// A loop without system calls: every byte written can be read.
    struct Payload(Vec<usize>);

    impl Loop for Payload {
        fn begin(&mut self, index: usize) {
            self.0.push(index);
        }

        fn collect(&mut self, ready: &mut Vec<usize>) {
            ready.append(&mut self.0);
        }

        fn drained(&mut self, _index: usize) {}
    }

    fn payload(_descriptors: &[i32]) -> Option<Box<dyn Loop>> {
        Some(Box::new(Payload(Vec::new())))
    }

    fn loops() -> impl Iterator<Item = (&'static str, Open)> {
        let all = LOOPS.into_iter();
        std::iter::once(("payload", payload as Open)).chain(all)
    }

    pub fn alone(name: &str, size: usize, count: usize) {
        let found = loops().find(|(other, _)| *other == name);
        let (_, open) = found.expect("a candidate's name");
        let mut sources = Sources::new(size.min(ACTIVE), size);
        let mut candidate = open(&sources.descriptors()).expect("it can be had here");
        cycles(&mut sources, candidate.as_mut(), size, count);
    }

    pub fn run(is_json: bool) {
        let mut results: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
        for round in 0..ROUNDS {
            for size in SIZES {
                let mut sources = Sources::new(size.min(ACTIVE), size);
                let descriptors = sources.descriptors();
                let mut all: Vec<_> = loops().enumerate().collect();
                let count = all.len();
                all.rotate_left(round % count); // the order changes from round to round
                for (number, (_, open)) in all {
                    let Some(mut candidate) = open(&descriptors) else {
                        continue;
                    };
                    cycles(&mut sources, candidate.as_mut(), size, WARM_UP);
                    let started = processor_time();
                    cycles(&mut sources, candidate.as_mut(), size, CYCLES);
                    let spent = processor_time() - started;
                    let figures = results.entry((number, size)).or_default();
                    figures.push(spent / CYCLES as f64);
                }
            }
        }
        match is_json {
            true => print_json(&results),
            false => print_table(&results),
        }
    }

    fn cycles(sources: &mut Sources, candidate: &mut dyn Loop, size: usize, count: usize) {
        for index in (0..size.min(ACTIVE)).cycle().take(count) {
            sources.cycle(candidate, index..=index);
        }
    }

    /// This thread's processor time, in nanoseconds.
    fn processor_time() -> f64 {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    }

    fn print_table(results: &BTreeMap<(usize, usize), Vec<f64>>) {
        println!("Nanoseconds of processor time a cycle, among so many descriptors:");
        let head: String = SIZES.iter().map(|size| format!("{size:>9}")).collect();
        println!("{:<30}{head}", "");
        for (number, (name, _)) in loops().enumerate() {
            let cell = |size: &usize| match results.get(&(number, *size)) {
                Some(figures) => format!("{:>9.0}", median(figures.clone())),
                None => format!("{:>9}", "-"),
            };
            println!("{name:<30}{}", SIZES.iter().map(cell).collect::<String>());
        }
    }

    fn print_json(results: &BTreeMap<(usize, usize), Vec<f64>>) {
        let names: Vec<_> = loops().map(|(name, _)| name).collect();
        let raw = names.iter().position(|name| *name == "raw epoll");
        let raw = raw.expect("it is one of them");
        let mut separator = "[";
        for ((number, size), figures) in results {
            // Ratios within a round: other work on the machine slows down both sides.
            let pairs = figures.iter().zip(&results[&(raw, *size)]);
            let ratio = median(pairs.map(|(figure, raw)| figure / raw).collect());
            print!(
                "{separator}\n{{\"name\":\"{}\",\"size\":{size},\"median\":{:.1},\"ratio\":{ratio:.4}}}",
                names[*number],
                median(figures.clone())
            );
            separator = ",";
        }
        println!("\n]");
    }

    fn median(mut figures: Vec<f64>) -> f64 {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    }
}
