//! A program under supervision: ptrace(2) stops it at the system calls of its filter, and they are answered here.
//!
//! A listener of seccomp(2) would not do: a signal that comes while a call waits for its answer makes the call fail with EINTR,
//! also one that the kernel never ends so.

use std::{
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitStatus},
    ptr,
    sync::mpsc,
    thread,
    time::Duration,
};

/// A system call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub thread: i32,
    pub number: i64,
    pub arguments: [u64; 6],
    /// Where it was made: the address of the instruction, and of the top of the stack.
    pub instruction: u64,
    pub stack: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call is made.
    Real,
    /// The call is not made, and fails.
    Error(i32),
    /// The call is not made, and returns this.
    Value(i64),
}

/// Runs a command of [`crate::filter::command`], and asks `answer` about the system calls of its filter, made by it and by its
/// children. None if the program has not ended within `limit`: it is killed then.
///
/// # Errors
///
/// Those of the start and of ptrace(2), which a system may refuse.
pub fn run(
    mut command: Command,
    limit: Duration,
    mut answer: impl FnMut(&Call) -> Answer,
) -> io::Result<Option<ExitStatus>> {
    let child = command.process_group(0).spawn()?;
    let process = child.id() as i32;
    attach(process)?;
    let (ended, end) = mpsc::channel();
    let watchdog = thread::spawn(move || {
        let is_over = end.recv_timeout(limit).is_err();
        if is_over {
            kill(process);
        }
        is_over
    });
    let mut result = None;
    while let Some((thread, status)) = wait() {
        if !libc::WIFSTOPPED(status) {
            if thread == process {
                result = Some(ExitStatus::from_raw(status));
                kill(process); // Children that it has left.
            }
            continue;
        }
        go_on(thread, status, &mut answer);
    }
    _ = ended.send(());
    match watchdog.join() {
        Ok(false) => Ok(result),
        _ => Ok(None),
    }
}

/// Waits until the child has stopped itself, becomes its tracer, and lets it go on.
fn attach(process: i32) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: the call writes one number.
    unsafe { libc::waitpid(process, &mut status, libc::WUNTRACED) };
    let options = libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SEIZE, process, number(options)).inspect_err(|_| kill(process))?;
    // SAFETY: no pointer is passed.
    unsafe { libc::kill(process, libc::SIGCONT) };
    Ok(())
}

/// Answers a stop of a thread.
fn go_on(thread: i32, status: i32, answer: &mut impl FnMut(&Call) -> Answer) {
    let signal = libc::WSTOPSIG(status);
    let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let (kind, passed_on) = match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP => {
            answer_call(thread, answer);
            (libc::PTRACE_CONT, 0)
        }
        libc::PTRACE_EVENT_STOP if stopping.contains(&signal) => (libc::PTRACE_LISTEN, 0),
        0 => (libc::PTRACE_CONT, signal),
        _ => (libc::PTRACE_CONT, 0),
    };
    // It fails if the thread was killed meanwhile, which a later wait reports.
    _ = request(kind, thread, number(passed_on));
}

#[cfg(target_arch = "x86_64")]
fn answer_call(thread: i32, answer: &mut impl FnMut(&Call) -> Answer) {
    // SAFETY: the struct has only integers, for which zero is a value.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let place = ptr::from_mut(&mut registers).cast();
    if request(libc::PTRACE_GETREGS, thread, place).is_err() {
        return;
    }
    let r = &registers;
    let value = match answer(&Call {
        thread,
        number: r.orig_rax as i64,
        arguments: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9],
        instruction: r.rip,
        stack: r.rsp,
    }) {
        Answer::Real => return,
        Answer::Error(number) => -i64::from(number),
        Answer::Value(value) => value,
    };
    registers.orig_rax = u64::MAX; // No call has this number: none is made.
    registers.rax = value as u64;
    let place = ptr::from_mut(&mut registers).cast();
    _ = request(libc::PTRACE_SETREGS, thread, place);
}

/// Elsewhere no call is answered; [`run`] is not used there.
#[cfg(not(target_arch = "x86_64"))]
fn answer_call(_: i32, _: &mut impl FnMut(&Call) -> Answer) {}

/// A number in the place of an address.
fn number(value: i32) -> *mut libc::c_void {
    ptr::without_provenance_mut(value as usize)
}

fn request(kind: libc::c_uint, thread: i32, data: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: where `data` is an address, it is that of a struct that outlives the call.
    match unsafe { libc::ptrace(kind, thread, ptr::null_mut::<libc::c_void>(), data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The next change of a child or of a traced thread; None if there is none left.
fn wait() -> Option<(i32, i32)> {
    let mut status = 0;
    // SAFETY: the call writes one number.
    let thread = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
    (thread > 0).then_some((thread, status))
}

/// Kills the program and its children.
fn kill(process: i32) {
    // SAFETY: no pointer is passed.
    unsafe { libc::kill(-process, libc::SIGKILL) };
}
