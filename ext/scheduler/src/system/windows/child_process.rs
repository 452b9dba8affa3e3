//! Child processes: handles that are signalled once they have ended. Their status is left to `Process.wait`.
#![allow(unsafe_code)]

use std::{
    os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle},
    ptr,
};

use windows_sys::Win32::System::{
    Diagnostics::ToolHelp::{
        CreateToolhelp32Snapshot, PROCESSENTRY32W, Process32FirstW, Process32NextW,
        TH32CS_SNAPPROCESS,
    },
    Threading::{INFINITE, OpenProcess, PROCESS_SYNCHRONIZE},
};

/// The most that one call waits for, MAXIMUM_WAIT_OBJECTS, without the event by which Ruby interrupts it.
const MOST: usize = 63;

/// Milliseconds after which to look for children that have begun since.
const UNTIL_NEXT_LOOK: u32 = 100;

/// `None`: a process has no descriptor.
pub const fn pidfd(_: i32) -> Option<i32> {
    None
}

/// What `Process.wait` waits for.
#[derive(Debug)]
pub struct Children {
    processes: Vec<OwnedHandle>,
    /// Milliseconds to wait at most.
    pub limit: u32,
}

impl Children {
    /// The child with this number, or all for -1. Empty if there is none.
    pub fn find(pid: i32) -> Self {
        let own = std::process::id();
        let (processes, limit) = match u32::try_from(pid) {
            Ok(pid) => (open(pid).into_iter().collect(), INFINITE),
            Err(_) if pid == -1 => {
                let children = children_of(own).into_iter().filter_map(open);
                (children.take(MOST).collect(), UNTIL_NEXT_LOOK)
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

fn open(pid: u32) -> Option<OwnedHandle> {
    // SAFETY: any number may be asked for.
    let process = unsafe { OpenProcess(PROCESS_SYNCHRONIZE, 0, pid) };
    // SAFETY: fresh, and nobody else's.
    (!process.is_null()).then(|| unsafe { OwnedHandle::from_raw_handle(process) })
}

/// The numbers of the processes that this one has begun, and that have not ended.
fn children_of(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    // SAFETY: the snapshot is fresh, and closed when it is dropped.
    let snapshot = unsafe {
        let snapshot = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
        if snapshot.is_null() || snapshot == ptr::without_provenance_mut(usize::MAX) {
            return found;
        }
        OwnedHandle::from_raw_handle(snapshot)
    };
    let mut entry = PROCESSENTRY32W {
        dwSize: size_of::<PROCESSENTRY32W>() as u32,
        ..Default::default()
    };
    // SAFETY: a snapshot of processes, and an entry that tells its size.
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
    use std::process::Command;

    use windows_sys::Win32::{
        Foundation::WAIT_OBJECT_0,
        System::Threading::{INFINITE, WaitForSingleObject},
    };

    use super::Children;

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
