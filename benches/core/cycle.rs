//! The cost of waiting, compared with other loops doing the same work.

use criterion::{BenchmarkId, Criterion, Throughput};

use crate::loops::{LOOPS, SIZES, Sources};

/// The number of registered sources that receive bytes. The others are idle.
const ACTIVE: usize = 100;

/// A byte arrives at one of 100 active sources, is reported and read. The number of registered sources varies.
pub fn cycles(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cycle");
    for size in SIZES {
        let active = size.min(ACTIVE);
        let mut sources = Sources::new(active, size);
        let descriptors = sources.descriptors();
        for (name, open) in LOOPS {
            let Some(mut candidate) = open(&descriptors) else {
                continue;
            };
            let mut next = (0..active).cycle();
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| {
                    let index = next.next().unwrap_or(0);
                    sources.cycle(candidate.as_mut(), index..=index);
                });
            });
        }
    }
    group.finish();
}

/// Bytes arrive at 1 to 1,000 of 1,000 sources before a poll.
pub fn ready_sets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ready");
    let mut sources = Sources::new(1000, 1000);
    let descriptors = sources.descriptors();
    for size in [1, 10, 100, 1000] {
        group.throughput(Throughput::Elements(size as u64));
        for (name, open) in LOOPS {
            let Some(mut candidate) = open(&descriptors) else {
                continue;
            };
            group.bench_function(BenchmarkId::new(name, size), |bencher| {
                bencher.iter(|| sources.cycle(candidate.as_mut(), 0..size));
            });
        }
    }
    group.finish();
}
