//! Windows: there are no signals a thread could get.

/// Runs `start`.
pub(super) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    start()
}
