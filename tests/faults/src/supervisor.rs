//! A program under supervision: ptrace(2) stops it at the system calls of its filter, and they are answered here.
//!
//! A listener of seccomp(2) would not do: a signal that comes while a call waits for its answer makes the call fail with EINTR,
//! also one that the kernel never ends so.

use std::{
    collections::HashSet,
    io,
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, ExitStatus},
    ptr,
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
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
    /// The frame register.
    pub frame: u64,
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

/// What happens to the supervised program.
pub trait Supervised {
    /// A call of the filter is about to be made.
    fn answer(&mut self, call: &Call) -> Answer;

    /// A process of the program has ended, or one of its threads.
    fn ended(&mut self, thread: i32, status: ExitStatus, watchdog: &Watchdog);

    /// The process that has `limit` from now on.
    fn begun(&mut self) -> Option<i32>;
}

/// Runs a command of [`crate::filter::command`]. `supervised` is asked about the system calls of its filter, made by it and by its
/// children. None if it has not ended within `limit`: it is killed then.
///
/// # Errors
///
/// Those of the start and of ptrace(2), which a system may refuse.
pub fn run(
    mut command: Command,
    limit: Duration,
    supervised: &mut impl Supervised,
) -> io::Result<Option<ExitStatus>> {
    let child = command.process_group(0).spawn()?;
    let process = child.id() as i32;
    attach(process)?;
    let watchdog = Watchdog::start(limit, process);
    let mut result = None;
    while let Some((thread, status)) = wait() {
        if libc::WIFSTOPPED(status) {
            go_on(thread, status, supervised);
            if let Some(begun) = supervised.begun() {
                watchdog.watch(begun);
            }
            continue;
        }
        let status = ExitStatus::from_raw(status);
        if thread == process {
            result = Some(status);
            kill(process); // Children that it has left.
        }
        supervised.ended(thread, status, &watchdog);
    }
    Ok(result.filter(|_| !watchdog.has_killed(process)))
}

/// Kills the process that takes too long, and the other processes of its group.
pub struct Watchdog {
    limit: Duration,
    watched: Arc<Mutex<Watched>>,
    /// Dropped at the end of the watch.
    _end: mpsc::Sender<()>,
}

struct Watched {
    process: i32,
    until: Instant,
    killed: HashSet<i32>,
}

impl Watchdog {
    fn start(limit: Duration, process: i32) -> Self {
        let watched = Arc::new(Mutex::new(Watched {
            process,
            until: Instant::now() + limit,
            killed: HashSet::new(),
        }));
        let (end, ended) = mpsc::channel::<()>();
        let shared = Arc::clone(&watched);
        thread::spawn(move || {
            let interval = Duration::from_millis(100);
            while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                let mut watched = shared.lock().unwrap();
                if Instant::now() > watched.until {
                    let process = watched.process;
                    watched.killed.insert(process);
                    kill(process);
                }
            }
        });
        Self {
            limit,
            watched,
            _end: end,
        }
    }

    /// This process has the whole limit from now on.
    pub fn watch(&self, process: i32) {
        let mut watched = self.watched.lock().unwrap();
        watched.process = process;
        watched.until = Instant::now() + self.limit;
    }

    pub fn has_killed(&self, process: i32) -> bool {
        self.watched.lock().unwrap().killed.contains(&process)
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
fn go_on(thread: i32, status: i32, supervised: &mut impl Supervised) {
    let signal = libc::WSTOPSIG(status);
    let stopping = [libc::SIGSTOP, libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
    let (kind, passed_on) = match status >> 16 {
        libc::PTRACE_EVENT_SECCOMP => {
            answer_call(thread, supervised);
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
fn answer_call(thread: i32, supervised: &mut impl Supervised) {
    // SAFETY: the struct has only integers, for which zero is a value.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let place = ptr::from_mut(&mut registers).cast();
    if request(libc::PTRACE_GETREGS, thread, place).is_err() {
        return;
    }
    let r = &registers;
    let value = match supervised.answer(&Call {
        thread,
        number: r.orig_rax as i64,
        arguments: [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9],
        instruction: r.rip,
        stack: r.rsp,
        frame: r.rbp,
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
fn answer_call(_: i32, _: &mut impl Supervised) {}

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

/// Kills the processes of a group.
pub(crate) fn kill(process: i32) {
    // SAFETY: no pointer is passed.
    unsafe { libc::kill(-process, libc::SIGKILL) };
}
