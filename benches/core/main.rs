//! The cost of the core, compared with plain epoll and io_uring, mio and polling doing the same work.
//!
//! ```text
//! cargo bench --bench core             all of it; the report is target/criterion/report/index.html
//! cargo bench --bench core -- cycle    one group: cycle, ready, wait, wake, turn, timer, pool
//! ```

#[cfg(target_os = "linux")]
mod cycle;
#[cfg(target_os = "linux")]
mod loops;
#[cfg(target_os = "linux")]
mod parts;

#[cfg(target_os = "linux")]
fn main() {
    let mut criterion = criterion::Criterion::default().configure_from_args();
    cycle::cycles(&mut criterion);
    cycle::ready_sets(&mut criterion);
    parts::all(&mut criterion);
    criterion.final_summary();
}

#[cfg(not(target_os = "linux"))]
fn main() {}
