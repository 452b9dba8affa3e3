//! What waiting costs: the selector beside epoll by hand, mio, polling and io_uring by hand, on the same work.
//!
//! ```text
//! cargo bench --bench cycle
//! ```
//!
//! `cycle`: a byte comes to one of 100 active sources, among so many registered ones. `ready`: bytes come to so many of
//! 1,000 sources before anybody looks.

#[cfg(target_os = "linux")]
mod contest;

#[cfg(target_os = "linux")]
fn main() {
    let mut criterion = criterion::Criterion::default().configure_from_args();
    cycles(&mut criterion);
    ready_sets(&mut criterion);
    criterion.final_summary();
}

#[cfg(not(target_os = "linux"))]
fn main() {}

/// How many of the registered sources ever have something: the rest is idle.
#[cfg(target_os = "linux")]
const ACTIVE: usize = 100;

#[cfg(target_os = "linux")]
fn cycles(criterion: &mut criterion::Criterion) {
    use criterion::BenchmarkId;

    let mut group = criterion.benchmark_group("cycle");
    for size in contest::SIZES {
        let active = size.min(ACTIVE);
        let mut sources = contest::Sources::new(active, size);
        let descriptors = sources.descriptors();
        for (name, open) in contest::CONTESTANTS {
            let Some(mut contestant) = open(&descriptors) else {
                continue;
            };
            let mut next = (0..active).cycle();
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| {
                    let index = next.next().unwrap_or(0);
                    sources.cycle(contestant.as_mut(), index..=index);
                });
            });
        }
    }
    group.finish();
}

#[cfg(target_os = "linux")]
fn ready_sets(criterion: &mut criterion::Criterion) {
    use criterion::{BenchmarkId, Throughput};

    let mut group = criterion.benchmark_group("ready");
    let mut sources = contest::Sources::new(1000, 1000);
    let descriptors = sources.descriptors();
    for size in [1, 10, 100, 1000] {
        group.throughput(Throughput::Elements(size as u64));
        for (name, open) in contest::CONTESTANTS {
            let Some(mut contestant) = open(&descriptors) else {
                continue;
            };
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| sources.cycle(contestant.as_mut(), 0..size));
            });
        }
    }
    group.finish();
}
