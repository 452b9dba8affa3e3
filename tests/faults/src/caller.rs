//! Whose code makes a system call: the library's, or that of the program around it.

use std::{fs, fs::File, ops::Range, os::unix::fs::FileExt};

use crate::supervisor::Call;

/// As much of the stack as the C library's own frames take.
const DEPTH: usize = 4096;

/// The executable parts of a process.
#[derive(Default)]
pub struct Callers {
    parts: Vec<(Range<u64>, Owner)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Library,
    /// The C library, which makes calls for the others.
    Libc,
    Other,
}

impl Callers {
    /// Is the thread, which waits in a system call, in a function of the file with this end of its path, or in a function of
    /// the C library that one of the file's called? That is what the first return address outside the C library tells. None if it
    /// cannot be found out.
    pub fn is_library(&mut self, call: &Call, path: &str) -> Option<bool> {
        let (thread, place) = (call.thread, call.instruction);
        match self.owner(place) {
            Some(Owner::Libc) => {}
            Some(owner) => return Some(owner == Owner::Library),
            None => {
                self.read(thread, path);
                if self.owner(place)? != Owner::Libc {
                    return Some(self.owner(place) == Some(Owner::Library));
                }
            }
        }
        let memory = File::open(format!("/proc/{thread}/mem")).ok()?;
        let mut bytes = vec![0; DEPTH];
        let count = memory.read_at(&mut bytes, call.stack).ok()?;
        let words = bytes[..count].chunks_exact(8);
        let mut owners = words
            .filter_map(|word| self.owner(u64::from_ne_bytes(word.try_into().ok()?)))
            .filter(|owner| *owner != Owner::Libc);
        Some(owners.next() == Some(Owner::Library))
    }

    fn owner(&self, place: u64) -> Option<Owner> {
        let part = self.parts.iter().find(|(range, _)| range.contains(&place));
        part.map(|(_, owner)| *owner)
    }

    fn read(&mut self, thread: i32, path: &str) {
        let text = fs::read_to_string(format!("/proc/{thread}/maps")).unwrap_or_default();
        self.parts = text.lines().filter_map(|line| part(line, path)).collect();
    }
}

/// A line of /proc/…/maps, if the part is executable.
fn part(line: &str, path: &str) -> Option<(Range<u64>, Owner)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    if !words.next()?.contains('x') {
        return None;
    }
    let file = words.nth(3).unwrap_or_default();
    let number = |text| u64::from_str_radix(text, 16).ok();
    let owner = match file {
        _ if file.ends_with(path) => Owner::Library,
        "[vdso]" => Owner::Libc,
        _ if file.contains("/libc.so") || file.contains("/ld-linux") => Owner::Libc,
        _ => Owner::Other,
    };
    Some((number(start)?..number(end)?, owner))
}
