//! Child processes: handles that are signalled when a child has ended. Their status is left to `Process.wait`.
#![allow(unsafe_code)]

use std::{
    ffi::c_void,
    fmt,
    os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle},
    ptr,
};

use windows_sys::Win32::{
    Foundation::{HANDLE, INVALID_HANDLE_VALUE},
    System::{
        Diagnostics::ToolHelp::{
            CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW,
            TH32CS_SNAPPROCESS,
        },
        Threading::{
            INFINITE, OpenProcess, PROCESS_SYNCHRONIZE, RegisterWaitForSingleObject,
            UnregisterWaitEx, WT_EXECUTEONLYONCE,
        },
    },
};

/// The most handles that one call can wait for: MAXIMUM_WAIT_OBJECTS, minus one for the event by which Ruby interrupts
/// the call.
const MOST: usize = 63;

/// Milliseconds after which to check for children started since.
const RECHECK_INTERVAL: u32 = 100;

/// `None`: a process has no descriptor.
pub const fn pidfd(_: i32) -> Option<i32> {
    None
}

/// `None`: there are no trap handlers for the end of a child, so nothing reaps it meanwhile.
pub const fn status(_: i32) -> Option<i32> {
    None
}

/// What `Process.wait` waits for.
#[derive(Debug)]
pub struct Children {
    processes: Vec<OwnedHandle>,
    /// The maximum wait in milliseconds.
    pub limit: u32,
}

impl Children {
    /// The child with this number, or all children for -1. Empty if there is no such child.
    pub fn find(pid: i32) -> Self {
        let own = std::process::id();
        let (processes, limit) = match u32::try_from(pid) {
            Ok(pid) => (open(pid).into_iter().collect(), INFINITE),
            Err(_) if pid == -1 => {
                let children = children_of(own).into_iter().filter_map(open);
                (children.take(MOST).collect(), RECHECK_INTERVAL)
            }
            Err(_) => (Vec::new(), 0),
        };
        Self { processes, limit }
    }

    pub fn handles(&self) -> Vec<RawHandle> {
        self.processes
            .iter()
            .map(OwnedHandle::as_raw_handle)
            .collect()
    }
}

/// A callback for when a child ends, run by a Windows thread that waits for many children. Dropping it cancels the
/// callback.
pub struct Exit {
    wait: HANDLE,
    /// Kept open until the wait ends.
    _process: OwnedHandle,
    _ended: Box<Ended>,
}

type Ended = Box<dyn Fn() + Send + Sync>;

impl Exit {
    /// `None` if there is no such child.
    pub fn then(pid: i32, ended: impl Fn() + Send + Sync + 'static) -> Option<Self> {
        unsafe extern "system" fn call(ended: *mut c_void, _: bool) {
            // SAFETY: it lives until the wait ends.
            let ended = unsafe { &*ended.cast::<Ended>() };
            ended();
        }
        let process = open(u32::try_from(pid).ok()?)?;
        let (mut wait, ended): (_, Box<Ended>) = (ptr::null_mut(), Box::new(Box::new(ended)));
        let (handle, place) = (process.as_raw_handle(), ptr::from_ref(&*ended).cast());
        // SAFETY: an open process and a callback with its data, which both stay valid until the wait ends.
        let code = unsafe {
            RegisterWaitForSingleObject(
                &mut wait,
                handle,
                Some(call),
                place,
                INFINITE,
                WT_EXECUTEONLYONCE,
            )
        };
        (code != 0).then_some(Self {
            wait,
            _process: process,
            _ended: ended,
        })
    }
}

impl Drop for Exit {
    fn drop(&mut self) {
        // SAFETY: one of our waits. It returns only when no callback is running.
        unsafe { UnregisterWaitEx(self.wait, INVALID_HANDLE_VALUE) };
    }
}

// SAFETY: any thread may use the handle of a wait.
unsafe impl Send for Exit {}

impl fmt::Debug for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Exit").finish_non_exhaustive()
    }
}

fn open(pid: u32) -> Option<OwnedHandle> {
    // SAFETY: any process number may be passed.
    let process = unsafe { OpenProcess(PROCESS_SYNCHRONIZE, 0, pid) };
    // SAFETY: newly opened, and owned by nobody else.
    (!process.is_null()).then(|| unsafe { OwnedHandle::from_raw_handle(process) })
}

/// The numbers of the processes that this process has started and that have not ended.
fn children_of(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    // SAFETY: the snapshot is new, and closed when dropped.
    let snapshot = unsafe {
        let snapshot = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
        if snapshot.is_null() || snapshot == INVALID_HANDLE_VALUE {
            return found;
        }
        OwnedHandle::from_raw_handle(snapshot)
    };
    let mut entry = PROCESSENTRY32W {
        dwSize: size_of::<PROCESSENTRY32W>() as u32,
        ..Default::default()
    };
    // SAFETY: a process snapshot, and an entry that states its size.
    let mut has_entry = unsafe { Process32FirstW(snapshot.as_raw_handle(), &mut entry) };
    while has_entry != 0 {
        if entry.th32ParentProcessID == parent {
            found.push(entry.th32ProcessID);
        }
        // SAFETY: as above.
        has_entry = unsafe { Process32NextW(snapshot.as_raw_handle(), &mut entry) };
    }
    found
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Command, Stdio},
        sync::mpsc,
    };

    use windows_sys::Win32::{
        Foundation::WAIT_OBJECT_0,
        System::Threading::{INFINITE, WaitForSingleObject},
    };

    use super::{Children, Exit};

    #[test]
    fn the_end_of_a_child_is_told_once_or_taken_back() {
        for is_taken_back in [false, true] {
            let mut child = Command::new("cmd")
                .args(["/c", "pause"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let (tell, told) = mpsc::channel();
            let exit = Exit::then(child.id() as i32, move || _ = tell.send(()));
            if is_taken_back {
                drop(exit);
            }
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(told.recv().is_err(), is_taken_back);
        }
        assert!(Exit::then(i32::MAX, || ()).is_none());
    }

    #[test]
    fn a_child_is_found_by_its_number_and_among_all() {
        let mut child = Command::new("cmd").args(["/c", "exit 3"]).spawn().unwrap();
        let pid = child.id() as i32;
        let children = Children::find(pid);
        assert_eq!((children.handles().len(), children.limit), (1, INFINITE));
        // SAFETY: an open process.
        let ended = unsafe { WaitForSingleObject(children.handles()[0], INFINITE) };
        assert_eq!(ended, WAIT_OBJECT_0);
        assert_eq!(child.wait().unwrap().code(), Some(3), "nothing was taken");
        for pid in [0, -2, i32::MAX] {
            assert!(Children::find(pid).handles().is_empty(), "{pid}");
        }
    }
}
