//! A panic that left Rust for C would end the process. So it is caught at the border, and resumed in the Rust code that
//! called C.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread::Result,
};

/// Runs the work of a function called from C. If Rust code called that C code, a panic resumes there. `name` is the
/// [`point`] at the end of the work, so that whatever waits for the work continues.
pub fn catch<T>(name: &str, work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| {
        let result = work();
        point(name);
        result
    }))
}

/// Panics here if a test requested that; does nothing without the feature. Every name is listed in
/// tests/panics/test_panics.rb.
#[cfg(not(feature = "forced-panics"))]
pub fn point(_name: &str) {}

#[cfg(feature = "forced-panics")]
pub use forced::{force, point};

#[cfg(feature = "forced-panics")]
mod forced {
    use std::sync::{Mutex, PoisonError};

    static NEXT: Mutex<Option<String>> = Mutex::new(None);

    /// `Reactor::Internal.force_panic(name)`: makes the next arrival at this point panic; nil withdraws the request.
    /// Returns whether one was outstanding.
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
