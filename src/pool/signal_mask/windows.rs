//! Windows: there are no signals.

/// Runs `start`.
pub(super) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    start()
}
