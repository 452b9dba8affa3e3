//! The baseline of bin/bench: its traffic without Ruby and without the crate, in one thread on raw, level-triggered epoll.
//!
//! ```text
//! baseline WORKLOAD OPERATIONS [N]                   one run of a workload; prints a line of JSON
//! baseline ping PORT CONNECTIONS MESSAGES INTERVAL   the writing process of wakeup, fairness and parked
//! ```

#[cfg(target_os = "linux")]
mod http;
#[cfg(target_os = "linux")]
mod latency;
#[cfg(target_os = "linux")]
mod messages;
#[cfg(target_os = "linux")]
mod poll;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod streams;
#[cfg(target_os = "linux")]
mod waits;

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| -> usize {
        arguments
            .get(index)
            .and_then(|word| word.parse().ok())
            .unwrap_or(0)
    };
    let (count, point) = (number(1), number(2));
    match arguments.first().map_or("", String::as_str) {
        "ping" => latency::ping(number(1) as u16, number(2), number(3), number(4) as u64),
        "tcp_echo" => messages::tcp(20, 512, 0, count),
        "unix_ping" => messages::unix(count),
        "pipe_ping" => messages::pipe(count),
        "racket" => messages::tcp(1, 1, point, count),
        "udp" => messages::udp(20, 64, count),
        "lines" => messages::tcp(20, 32, 0, count),
        "transfer" => streams::transfer(8, point, count * ((1 << 20) / point.max(1))),
        "mixed" => streams::mixed(4096, count),
        "accept_storm" => streams::accept_storm(200, count),
        "http_close" => http::serve(count, 64, "close", 0),
        "http_keep" => http::serve(count, 64, "keep-alive", 0),
        "http_1000" => http::serve(count, 1000, "keep-alive", 0),
        "syscalls" => http::serve(count, 200, "keep-alive", 4096),
        "queue_thread" => waits::queue(count),
        "sleeps" => waits::sleeps(count),
        "wakeup" => latency::wakeup(point, count),
        name => {
            eprintln!("baseline: no workload {name:?}");
            std::process::exit(2);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("baseline: epoll is needed");
    std::process::exit(1);
}
