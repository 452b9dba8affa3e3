//! Linux: a thread's time slice, see sched(7).

use std::mem;

/// Makes the calling thread's time slice a quarter longer; the default is 1.4 to 3 ms. A thread with a shorter slice
/// that wakes up then preempts it (EEVDF). Call it in threads that work for a loop; the workers of a
/// [`Pool`](crate::Pool) do so themselves.
///
/// Works on Linux 6.12 and later (sched_setattr(2)), for threads with the policies SCHED_OTHER and SCHED_BATCH.
/// Failures are ignored.
pub fn lengthen_time_slice() {
    if let Some(mut attributes) = attributes() {
        attributes.sched_runtime += attributes.sched_runtime / 4;
        // SAFETY: the call reads the struct, which contains its own size, for the calling thread.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// The attributes of the calling thread, if its policy is SCHED_OTHER or SCHED_BATCH: sched_getattr(2).
fn attributes() -> Option<libc::sched_attr> {
    const SIZE: u32 = size_of::<libc::sched_attr>() as u32;
    // SAFETY: the struct has only integers, for which zero is a value.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    // SAFETY: the call writes at most SIZE bytes to the struct.
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
    fn a_longer_time_slice_is_reported() {
        let Some(before) = attributes() else {
            return; // another policy
        };
        lengthen_time_slice();
        let after = attributes().expect("the policy is as it was");
        assert_eq!(
            (before.sched_policy, before.sched_nice),
            (after.sched_policy, after.sched_nice)
        );
        let slices = (before.sched_runtime, after.sched_runtime);
        assert!(slices.0 < slices.1 || slices == (0, 0)); // kernels before 6.12 report 0
    }
}
