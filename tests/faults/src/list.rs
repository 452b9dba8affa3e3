//! The names of system calls, and the list of the errors that each is made to fail with.

use std::{
    ffi::{CStr, c_char, c_int},
    fmt::Write,
};

use crate::supervisor::Call;

/// The numbers of the calls that are made to fail: the names before a colon.
pub fn numbers() -> Vec<i64> {
    let rows = include_str!("../calls").lines();
    let listed = rows.filter(|line| !line.starts_with('#') && !line.contains(" - "));
    let names = listed.filter_map(|line| line.split_once(':')?.0.split(' ').next());
    let mut numbers: Vec<i64> = names.filter_map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The name of a call. One that does several things has the name of the thing behind its own.
pub fn name(call: &Call) -> String {
    let mut name = match NAMES.iter().find(|(_, number)| *number == call.number) {
        Some((name, _)) => (*name).to_owned(),
        None => call.number.to_string(),
    };
    if let Some(what) = variant(call) {
        _ = write!(name, " {what}");
    }
    name
}

fn variant(call: &Call) -> Option<String> {
    let second = call.arguments[1] as i32;
    let known: &[(i32, &str)] = match call.number {
        libc::SYS_epoll_ctl => &[
            (libc::EPOLL_CTL_ADD, "ADD"),
            (libc::EPOLL_CTL_MOD, "MOD"),
            (libc::EPOLL_CTL_DEL, "DEL"),
        ],
        libc::SYS_fcntl => &[
            (libc::F_DUPFD_CLOEXEC, "F_DUPFD_CLOEXEC"),
            (libc::F_GETFL, "F_GETFL"),
            (libc::F_SETFL, "F_SETFL"),
            (libc::F_GETFD, "F_GETFD"),
            (libc::F_SETFD, "F_SETFD"),
        ],
        libc::SYS_ioctl => &[
            (libc::TCGETS as i32, "TCGETS"),
            (0x802c_542a_u32 as i32, "TCGETS2"),
            (libc::FIONBIO as i32, "FIONBIO"),
            (libc::FIONREAD as i32, "FIONREAD"),
            (0x8933, "SIOCGIFINDEX"),
        ],
        libc::SYS_futex if [libc::FUTEX_WAKE, libc::FUTEX_WAKE_OP].contains(&(second & 127)) => {
            return Some("WAKE".to_owned());
        }
        libc::SYS_futex => return Some("WAIT".to_owned()),
        libc::SYS_mmap if call.arguments[4] as i32 >= 0 => return Some("file".to_owned()),
        libc::SYS_mmap => return Some("memory".to_owned()),
        libc::SYS_io_uring_enter if call.arguments[2] > 0 => return Some("wait".to_owned()),
        _ => return None,
    };
    let found = known.iter().find(|(value, _)| *value == second);
    Some(found.map_or_else(|| second.to_string(), |(_, name)| (*name).to_owned()))
}

/// The number of an error by its name.
pub fn error(name: &str) -> Option<i32> {
    (1..=libc::EHWPOISON).find(|error| error_name(*error) == Some(name))
}

pub fn error_name(error: i32) -> Option<&'static str> {
    unsafe extern "C" {
        safe fn strerrorname_np(error: c_int) -> *const c_char;
    }
    let known = strerrorname_np(error);
    // SAFETY: a name that is not null is a string of the C library's, which stays.
    let name = (!known.is_null()).then(|| unsafe { CStr::from_ptr(known) });
    name?.to_str().ok()
}

fn number(name: &str) -> Option<i64> {
    NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
}

/// The calls of the list. Another one has its number for a name.
const NAMES: &[(&str, i64)] = &[
    ("access", libc::SYS_access),
    ("bind", libc::SYS_bind),
    ("brk", libc::SYS_brk),
    ("clock_gettime", libc::SYS_clock_gettime),
    ("clock_nanosleep", libc::SYS_clock_nanosleep),
    ("clone3", libc::SYS_clone3),
    ("close", libc::SYS_close),
    ("connect", libc::SYS_connect),
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("epoll_wait", libc::SYS_epoll_wait),
    ("eventfd2", libc::SYS_eventfd2),
    ("exit", libc::SYS_exit),
    ("faccessat2", libc::SYS_faccessat2),
    ("fadvise64", libc::SYS_fadvise64),
    ("fcntl", libc::SYS_fcntl),
    ("fstat", libc::SYS_fstat),
    ("fstatfs", libc::SYS_fstatfs),
    ("futex", libc::SYS_futex),
    ("getdents64", libc::SYS_getdents64),
    ("getpeername", libc::SYS_getpeername),
    ("getpid", libc::SYS_getpid),
    ("getrandom", libc::SYS_getrandom),
    ("getsockname", libc::SYS_getsockname),
    ("getsockopt", libc::SYS_getsockopt),
    ("gettid", libc::SYS_gettid),
    ("inotify_add_watch", libc::SYS_inotify_add_watch),
    ("inotify_init1", libc::SYS_inotify_init1),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("ioctl", libc::SYS_ioctl),
    ("lseek", libc::SYS_lseek),
    ("madvise", libc::SYS_madvise),
    ("mmap", libc::SYS_mmap),
    ("mprotect", libc::SYS_mprotect),
    ("mremap", libc::SYS_mremap),
    ("munmap", libc::SYS_munmap),
    ("newfstatat", libc::SYS_newfstatat),
    ("open", libc::SYS_open),
    ("openat", libc::SYS_openat),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pipe", libc::SYS_pipe),
    ("poll", libc::SYS_poll),
    ("ppoll", libc::SYS_ppoll),
    ("prctl", libc::SYS_prctl),
    ("pread64", libc::SYS_pread64),
    ("preadv2", libc::SYS_preadv2),
    ("prlimit64", libc::SYS_prlimit64),
    ("pwrite64", libc::SYS_pwrite64),
    ("pwritev2", libc::SYS_pwritev2),
    ("read", libc::SYS_read),
    ("recvfrom", libc::SYS_recvfrom),
    ("recvmmsg", libc::SYS_recvmmsg),
    ("recvmsg", libc::SYS_recvmsg),
    ("restart_syscall", libc::SYS_restart_syscall),
    ("rseq", libc::SYS_rseq),
    ("rt_sigaction", libc::SYS_rt_sigaction),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    ("rt_sigreturn", libc::SYS_rt_sigreturn),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("sched_yield", libc::SYS_sched_yield),
    ("sendmmsg", libc::SYS_sendmmsg),
    ("sendmsg", libc::SYS_sendmsg),
    ("sendto", libc::SYS_sendto),
    ("set_robust_list", libc::SYS_set_robust_list),
    ("setsockopt", libc::SYS_setsockopt),
    ("sigaltstack", libc::SYS_sigaltstack),
    ("socket", libc::SYS_socket),
    ("socketpair", libc::SYS_socketpair),
    ("stat", libc::SYS_stat),
    ("statx", libc::SYS_statx),
    ("uname", libc::SYS_uname),
    ("waitid", libc::SYS_waitid),
    ("write", libc::SYS_write),
];
