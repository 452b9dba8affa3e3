//! Linux: how long a thread may go on before others have their turn.

use std::mem;

/// Lets a thread that wakes up for an event take the processor from this one at once: its time slice, 1.4 to 3 ms, becomes
/// a quarter longer, and whoever wakes up with a shorter one comes first (EEVDF). For threads that work on behalf of a loop;
/// those of a [`Pool`](crate::Pool) do it themselves.
///
/// A wish: of effect on Linux 6.12 and later (sched_setattr(2)), and none for a thread with another policy than the usual
/// SCHED_OTHER and SCHED_BATCH.
pub fn lengthen_time_slice() {
    if let Some(mut attributes) = attributes() {
        attributes.sched_runtime += attributes.sched_runtime / 4;
        // SAFETY: reads a struct of that size, for the calling thread.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// Those of this thread, if it has one of the usual policies: sched_getattr(2).
fn attributes() -> Option<libc::sched_attr> {
    const SIZE: u32 = size_of::<libc::sched_attr>() as u32;
    // SAFETY: a struct of integers, for all of which 0 is a value.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    // SAFETY: writes so many bytes to it.
    let failed = unsafe {
        let attributes = &raw mut attributes;
        libc::syscall(libc::SYS_sched_getattr, 0, attributes, SIZE, 0) != 0
    };
    let usual = [libc::SCHED_OTHER as u32, libc::SCHED_BATCH as u32];
    (!failed && usual.contains(&attributes.sched_policy)).then_some(attributes)
}

#[cfg(test)]
mod tests {
    use super::{attributes, lengthen_time_slice};

    #[test]
    fn a_thread_that_stands_back_says_so() {
        let Some(before) = attributes() else {
            return; // under a policy of its own
        };
        lengthen_time_slice();
        let after = attributes().expect("the policy is as it was");
        assert_eq!(
            (before.sched_policy, before.sched_nice),
            (after.sched_policy, after.sched_nice)
        );
        let slices = (before.sched_runtime, after.sched_runtime);
        assert!(slices.0 < slices.1 || slices == (0, 0)); // kernels before 6.12 say 0
    }
}
