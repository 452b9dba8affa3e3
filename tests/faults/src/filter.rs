//! The program that stops for its supervisor, sets a filter of system calls, and becomes the supervised program.

use std::{ffi::OsStr, io, os::unix::process::CommandExt, path::Path, process::Command, ptr};

/// The word behind which the numbers of the calls and the program stand.
pub const STOPPED: &str = "stopped";

/// The command for a program under supervision. Its calls with these numbers are asked about; all of them if there are none.
/// `helper` is the program of this package.
pub fn command(helper: &Path, asked: &[i64], program: &[impl AsRef<OsStr>]) -> Command {
    let numbers: Vec<String> = asked.iter().map(i64::to_string).collect();
    let mut command = Command::new(helper);
    command.args([STOPPED, &numbers.join(",")]).args(program);
    command
}

/// Stops until the supervisor is there, and then runs the program. It returns only an error.
pub fn stop_and_become(words: &[String]) -> io::Error {
    let [numbers, program, arguments @ ..] = words else {
        return io::ErrorKind::InvalidInput.into();
    };
    let asked: Vec<i64> = numbers
        .split(',')
        .filter_map(|number| number.parse().ok())
        .collect();
    // SAFETY: no pointer is passed.
    unsafe { libc::raise(libc::SIGSTOP) };
    match set(&asked) {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    }
}

/// The exit status after [`stop_and_become`].
pub const REFUSED: i32 = 126;

/// seccomp(2): the tracer is asked about each of these calls, or about all of them if there are none.
fn set(asked: &[i64]) -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = vec![step(LOAD, 0, 0, 0)]; // seccomp_data.nr
    for number in asked {
        filter.push(step(JUMP, 0, 1, *number as u32));
        filter.push(step(RETURN, 0, 0, libc::SECCOMP_RET_TRACE));
    }
    let other = match asked {
        [] => libc::SECCOMP_RET_TRACE,
        _ => libc::SECCOMP_RET_ALLOW,
    };
    filter.push(step(RETURN, 0, 0, other));
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    let nothing = ptr::null::<libc::sock_fprog>();
    // SAFETY: no pointer is passed.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, nothing, nothing, nothing) };
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program and its filter outlive the call, which copies them.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
