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

/// Entries of the submission queue: one system call submits at most this number of operations.
const SUBMISSIONS: u32 = 256;

/// Entries of the completion queue. The kernel keeps further completions (`IORING_FEAT_NODROP`, Linux 5.5).
const COMPLETIONS: u32 = 1024;

/// An io_uring(7).
///
/// It sets neither `IORING_SETUP_SINGLE_ISSUER` nor `IORING_SETUP_DEFER_TASKRUN`: these bind a ring to one native thread, and a
/// Ruby thread and a reactor may move to another.
pub(super) struct Ring {
    ring: ManuallyDrop<IoUring>,
    probe: Probe,
    /// The process that has the queues mapped. A child of fork(2) does not have them (`MADV_DONTFORK`).
    owner: u32,
    unsubmitted: usize,
}

impl Ring {
    /// Opens a ring. Its completions add to `event_fd`, an eventfd(2).
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
        // Without it the ring has no advantage over epoll.
        if !probe.is_supported(opcode::Send::CODE) {
            return Err(Unavailable::because("this kernel's io_uring cannot send"));
        }
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            probe,
            owner: process::id(),
            unsubmitted: 0,
        })
    }

    /// Does the kernel support this operation?
    pub(super) fn knows(&self, code: u8) -> bool {
        self.probe.is_supported(code)
    }

    /// Puts an entry into the submission queue. False if it is full.
    ///
    /// # Safety
    ///
    /// The memory that the entry points to must not be moved, accessed or freed before its completion has come.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the caller promises it.
        let pushed = unsafe { self.ring.submission().push(entry) }.is_ok();
        self.unsubmitted += usize::from(pushed);
        pushed
    }

    /// How many entries are in the submission queue.
    pub(super) fn unsubmitted(&self) -> usize {
        self.unsubmitted
    }

    /// Is this the process that opened the ring? It makes a system call, getpid(2).
    pub(super) fn is_ours(&self) -> bool {
        process::id() == self.owner
    }

    /// io_uring_enter(2): submits the submission queue and waits for `wanted` completions. False if the kernel takes nothing
    /// now (`EAGAIN`: no memory; `EBUSY`: completions have to be collected first).
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

    /// The next completion, if there is one. It makes a system call only if the completion queue has overflowed.
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

    /// Sets whether completions add to the eventfd.
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
            // SAFETY: the ring is dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        } else {
            // A child of fork(2) does not have the mappings, and their addresses may be in use. It only closes the descriptor.
            // SAFETY: the descriptor belongs to the ring, which is not used afterwards.
            unsafe { libc::close(self.ring.as_raw_fd()) };
        }
    }
}

/// A ring with the flags that the kernel supports.
fn set_up() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_clamp().setup_cqsize(COMPLETIONS).dontfork();
    // `IORING_SETUP_SUBMIT_ALL` (Linux 5.18): an entry that fails does not keep later entries from being submitted.
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
