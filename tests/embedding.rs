//! The examples work: an executor on the reactor, the reactor inside other loops, and another loop inside it.

#[allow(dead_code, reason = "its main is not called here")]
#[path = "../examples/executor/main.rs"]
mod asynchronous;

#[cfg(unix)]
#[allow(dead_code, reason = "its main is not called here")]
#[path = "../examples/loops/main.rs"]
mod loops;

#[test]
fn an_executor_serves_its_own_clients() {
    let mut answers = asynchronous::serve_ourselves(25).unwrap();
    answers.sort();
    let mut expected: Vec<_> = (0..25).map(|number| format!("client {number}")).collect();
    expected.sort();
    assert_eq!(answers, expected);
}

#[cfg(target_os = "linux")]
#[test]
fn the_reactor_is_a_source_of_a_raw_epoll_loop() {
    let found = loops::in_epoll::run().unwrap();
    let reactors =
        ["1 READABLE", "2 ELAPSED", "3 NOTIFIED"].map(|event| format!("reactor: {event}"));
    assert_eq!(
        (found[0].as_str(), &found[1..]),
        ("host: socket", &reactors[..])
    );
}

#[cfg(unix)]
#[test]
fn the_reactor_is_a_source_of_tokio() {
    let mut found = loops::in_tokio::run().unwrap();
    found.sort(); // The order depends on the speed of the machine.
    assert_eq!(found, ["1 READABLE", "2 NOTIFIED", "3 ELAPSED"]);
}

#[cfg(unix)]
#[test]
fn another_loop_is_a_source_of_the_reactor() {
    assert_eq!(loops::inside::run().unwrap(), [1, 2, 3]);
}
