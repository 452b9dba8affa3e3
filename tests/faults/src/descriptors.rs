//! To which task of the program the descriptor of a call belongs. The program tells it by marks.

use std::collections::HashMap;

use crate::supervisor::Call;

#[derive(Default)]
pub struct Owners {
    tasks: HashMap<i32, u64>,
}

impl Owners {
    pub fn own(&mut self, descriptor: i32, task: u64) {
        self.tasks.insert(descriptor, task);
    }

    /// The number of the call's descriptor is free after the call, and also if it fails.
    pub fn close(&mut self, call: &Call) {
        self.tasks.remove(&(call.arguments[0] as i32));
    }

    /// The task of the descriptor that the call is about.
    pub fn owner(&self, call: &Call) -> Option<u64> {
        self.tasks.get(&descriptor(call)?).copied()
    }
}

/// The descriptor that a call is about. None if it has none, or only in memory.
fn descriptor(call: &Call) -> Option<i32> {
    let argument = match call.number {
        libc::SYS_epoll_ctl => 2,
        libc::SYS_mmap => 4,
        libc::SYS_close
        | libc::SYS_fadvise64
        | libc::SYS_fcntl
        | libc::SYS_fdatasync
        | libc::SYS_flock
        | libc::SYS_fstat
        | libc::SYS_fstatfs
        | libc::SYS_fsync
        | libc::SYS_getsockopt
        | libc::SYS_ioctl
        | libc::SYS_lseek
        | libc::SYS_pread64
        | libc::SYS_preadv2
        | libc::SYS_pwrite64
        | libc::SYS_pwritev2
        | libc::SYS_read
        | libc::SYS_recvfrom
        | libc::SYS_sendto
        | libc::SYS_statx
        | libc::SYS_write => 0,
        _ => return None,
    };
    Some(call.arguments[argument] as i32)
}
