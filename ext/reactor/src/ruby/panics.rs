//! A panic that leaves Rust for C would end the process. It is caught at that border, and goes on in the Rust code that called C.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread::Result,
};

/// Runs the work of a function that C calls. Its caller in Rust, if it has one, goes on with the panic. `name` is the [`point`] at its
/// end, so that what waits for the work goes on.
pub fn catch<T>(name: &str, work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| {
        let result = work();
        point(name);
        result
    }))
}

/// Panics here if a test has asked for it. Without the feature it is nothing. Each name stands in tests/panics/test_panics.rs.
#[cfg(not(feature = "forced-panics"))]
pub fn point(_name: &str) {}

#[cfg(feature = "forced-panics")]
pub use forced::{force, point};

#[cfg(feature = "forced-panics")]
mod forced {
    use std::sync::{Mutex, PoisonError};

    static NEXT: Mutex<Option<String>> = Mutex::new(None);

    /// `Reactor::Internal.force_panic(name)`: the next one that comes to this point panics; nil takes it back. True if one was left.
    pub fn force(name: Option<String>) -> bool {
        point("function");
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *next, name).is_some()
    }

    pub fn point(name: &str) {
        if name == "init" && std::env::var_os("REACTOR_PANIC_IN_INIT").is_some() {
            panic!("forced at {name}");
        }
        let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
        if next.as_deref() == Some(name) {
            *next = None;
            drop(next);
            panic!("forced at {name}");
        }
    }
}
