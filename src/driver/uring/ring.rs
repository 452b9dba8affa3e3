//! The ring: two queues shared with the kernel, and io_uring_enter(2).

use std::{
    io,
    mem::ManuallyDrop,
    os::fd::{AsRawFd, RawFd},
    process,
};

use io_uring::{Builder, IoUring, Probe, cqueue, opcode, squeue};

use super::refused;
use crate::driver::Unavailable;

/// Submission queue entries: the most operations that one system call submits.
const SUBMISSIONS: u32 = 256;

/// Completion queue entries. The kernel buffers any overflow (`IORING_FEAT_NODROP`, Linux 5.5).
const COMPLETIONS: u32 = 1024;

/// An io_uring(7) instance.
///
/// Sets neither `IORING_SETUP_SINGLE_ISSUER` nor `IORING_SETUP_DEFER_TASKRUN`: these bind a ring to one native thread,
/// but Ruby threads and reactors may move between threads.
pub(super) struct Ring {
    ring: ManuallyDrop<IoUring>,
    probe: Probe,
    /// The process that mapped the queues. A child of fork(2) does not have them (`MADV_DONTFORK`).
    pid: u32,
    unsubmitted: usize,
}

impl Ring {
    /// Opens a ring whose completions add to `event_fd`, an eventfd(2).
    pub(super) fn open(event_fd: RawFd) -> Result<Self, Unavailable> {
        let ring = set_up().map_err(|error| refused("io_uring_setup", &error))?;
        let mut probe = Probe::new();
        let submitter = ring.submitter();
        submitter
            .register_probe(&mut probe)
            .map_err(|error| refused("io_uring_register (probe)", &error))?;
        submitter
            .register_eventfd(event_fd)
            .map_err(|error| refused("io_uring_register (eventfd)", &error))?;
        if !ring.params().is_feature_nodrop() || !ring.params().is_feature_submit_stable() {
            return Err(Unavailable::because("this kernel's io_uring is too old"));
        }
        // Without it, the ring has no advantage over epoll.
        if !probe.is_supported(opcode::Send::CODE) {
            return Err(Unavailable::because(
                "this kernel's io_uring does not support send",
            ));
        }
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            probe,
            pid: process::id(),
            unsubmitted: 0,
        })
    }

    /// Whether the kernel supports this operation.
    pub(super) fn knows(&self, code: u8) -> bool {
        self.probe.is_supported(code)
    }

    /// Pushes an entry to the submission queue. False if it is full.
    ///
    /// # Safety
    ///
    /// The memory that the entry points to must not be moved, accessed or freed before its completion arrives.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: guaranteed by the caller.
        let pushed = unsafe { self.ring.submission().push(entry) }.is_ok();
        self.unsubmitted += usize::from(pushed);
        pushed
    }

    /// The number of entries in the submission queue.
    pub(super) fn unsubmitted(&self) -> usize {
        self.unsubmitted
    }

    /// Whether this is the process that opened the ring. Calls getpid(2).
    pub(super) fn is_ours(&self) -> bool {
        process::id() == self.pid
    }

    /// io_uring_enter(2): submits the submission queue and waits for `wanted` completions. False if the kernel cannot
    /// accept anything now (`EAGAIN`: no memory; `EBUSY`: completions must be collected first).
    pub(super) fn enter(&mut self, wanted: usize) -> io::Result<bool> {
        loop {
            let error = match self.ring.submit_and_wait(wanted) {
                Ok(count) => {
                    self.unsubmitted -= count.min(self.unsubmitted);
                    return Ok(true);
                }
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::EBUSY) => return Ok(false),
                _ => return Err(error),
            }
        }
    }

    /// The next completion, if any. Makes a system call only after the completion queue has overflowed.
    pub(super) fn next_completion(&mut self) -> io::Result<Option<cqueue::Entry>> {
        if let Some(entry) = self.ring.completion().next() {
            return Ok(Some(entry));
        }
        if !self.ring.submission().cq_overflow() {
            return Ok(None);
        }
        self.enter(0)?;
        Ok(self.ring.completion().next())
    }

    /// Sets whether completions signal the eventfd.
    pub(super) fn set_notification(&mut self, on: bool) {
        let queue = self.ring.completion();
        if on {
            queue.enable_eventfd();
        } else {
            queue.disable_eventfd();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: the ring is dropped exactly once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        } else {
            // A child of fork(2) does not have the mappings, and their addresses may be in use, so it only closes the
            // descriptor. SAFETY: the descriptor belongs to the ring, which is not used afterwards.
            unsafe { libc::close(self.ring.as_raw_fd()) };
        }
    }
}

/// A ring with the flags that the kernel supports.
fn set_up() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_clamp().setup_cqsize(COMPLETIONS).dontfork();
    // `IORING_SETUP_SUBMIT_ALL` (Linux 5.18): a failing entry does not stop later entries from being submitted.
    // `IORING_SETUP_COOP_TASKRUN` (Linux 5.19): completions do not interrupt the thread.
    let flags: [fn(&mut Builder) -> &mut Builder; 2] =
        [Builder::setup_submit_all, Builder::setup_coop_taskrun];
    for count in (0..=flags.len()).rev() {
        let mut builder = builder.clone();
        for flag in &flags[..count] {
            flag(&mut builder);
        }
        match builder.build(SUBMISSIONS) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && count > 0 => {}
            result => return result,
        }
    }
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}
