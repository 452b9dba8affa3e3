//! The ring itself: two queues shared with the kernel, and the one system call.

use std::{
    io,
    mem::ManuallyDrop,
    os::fd::{AsRawFd, RawFd},
    process,
};

use io_uring::{Builder, IoUring, Probe, cqueue, opcode, squeue};

use super::refused;
use crate::driver::Unavailable;

/// Room for operations that are handed over with one system call. More of them take more calls.
const SUBMISSIONS: u32 = 256;

/// Room for outcomes. What does not fit the kernel keeps (`IORING_FEAT_NODROP`).
const COMPLETIONS: u32 = 1024;

/// Without these there is nothing to gain, and the driver is not to be had.
const REQUIRED: [u8; 2] = [opcode::Send::CODE, opcode::Recv::CODE];

/// An io_uring(7).
///
/// No `SINGLE_ISSUER` and no `DEFER_TASKRUN`: a ring would be bound to one native thread, and both a Ruby thread and a
/// reactor may move to another.
pub(super) struct Ring {
    ring: ManuallyDrop<IoUring>,
    known: Probe,
    /// The process whose memory the queues are mapped into: a child of fork(2) has not got them (`MADV_DONTFORK`).
    owner: u32,
    unsubmitted: usize,
}

impl Ring {
    /// Opens a ring that adds to the counter of `event_fd`, an eventfd(2), when an outcome comes that was not there right
    /// after its submission.
    pub(super) fn open(event_fd: RawFd) -> Result<Self, Unavailable> {
        let ring = set_up().map_err(|error| refused("io_uring_setup", &error))?;
        let mut known = Probe::new();
        let submitter = ring.submitter();
        submitter
            .register_probe(&mut known)
            .map_err(|error| refused("io_uring_register (probe)", &error))?;
        submitter
            .register_eventfd(event_fd)
            .map_err(|error| refused("io_uring_register (eventfd)", &error))?;
        if !ring.params().is_feature_nodrop() || !ring.params().is_feature_submit_stable() {
            return Err(Unavailable::because("this kernel's io_uring is too old"));
        }
        if !REQUIRED.iter().all(|code| known.is_supported(*code)) {
            let reason = "this kernel's io_uring cannot send and receive";
            return Err(Unavailable::because(reason));
        }
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            known,
            owner: process::id(),
            unsubmitted: 0,
        })
    }

    /// Does the kernel know this operation?
    pub(super) fn knows(&self, code: u8) -> bool {
        self.known.is_supported(code)
    }

    /// Can files be read and written at their current position (`IORING_FEAT_RW_CUR_POS`)?
    pub(super) fn knows_positions(&self) -> bool {
        self.ring.params().is_feature_rw_cur_pos()
    }

    /// Puts an entry into the submission queue. False if it is full.
    ///
    /// # Safety
    ///
    /// What the entry points to stays where it is and is touched by nobody until its completion has come.
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: handed on to the caller.
        let pushed = unsafe { self.ring.submission().push(entry) }.is_ok();
        self.unsubmitted += usize::from(pushed);
        pushed
    }

    /// How many entries the kernel has not taken yet.
    pub(super) fn unsubmitted(&self) -> usize {
        self.unsubmitted
    }

    /// Is this the process that opened it? A system call.
    pub(super) fn is_ours(&self) -> bool {
        process::id() == self.owner
    }

    /// io_uring_enter(2): hands over what is in the submission queue and waits for `wanted` completions. False if the
    /// kernel cannot take more now (`EAGAIN`: no memory; `EBUSY`: completions to be collected first).
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

    /// The next completion that is there: no system call, unless the kernel had to keep some back.
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

    /// Whether completions ring the bell.
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
            // SAFETY: dropped once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        } else {
            // The mappings are not in this process, and something else may have taken their place: only the descriptor is
            // ours to close.
            // SAFETY: the descriptor is the ring's, and the ring is never used again.
            unsafe { libc::close(self.ring.as_raw_fd()) };
        }
    }
}

/// With as many of the flags as the kernel knows.
fn set_up() -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_clamp().setup_cqsize(COMPLETIONS).dontfork();
    // Linux 5.18 and 5.19: an error of one operation does not stop the others, no interrupt to say that there is work.
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
