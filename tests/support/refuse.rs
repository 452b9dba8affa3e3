//! System calls that the kernel refuses, as the seccomp filters of containers do.

use std::{io, ptr};

/// Makes the call with this number fail in the calling thread from now on, by a seccomp(2) filter.
pub fn refuse(call: libc::c_long, error: i32) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        step(LOAD, 0, 0, 0), // seccomp_data.nr
        step(JUMP, 0, 1, call as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let nothing = ptr::null::<libc::sock_fprog>();
    // SAFETY: no pointer is passed.
    let promised = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, nothing, nothing, nothing) };
    assert_eq!(promised, 0, "{}", io::Error::last_os_error());
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its filter outlive the call, which copies them.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}
