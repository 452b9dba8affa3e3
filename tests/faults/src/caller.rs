//! Whose code makes a system call: the library's, or that of the program around it.

use std::{
    fs::{self, File},
    ops::Range,
    os::unix::fs::FileExt,
};

use framehop::{
    ExplicitModuleSectionInfo, Module, Unwinder,
    x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64},
};

use object::{Object, ObjectSection};

use crate::supervisor::Call;

/// The executable parts of a process, and how to unwind the C library's frames.
#[derive(Default)]
pub struct Callers {
    parts: Vec<(Range<u64>, Owner)>,
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Library,
    /// The C library, which makes calls for the others.
    Libc,
    Other,
}

impl Callers {
    /// Is the thread, which waits in a system call, in a function of the file with this end of its path, or in a function of
    /// the C library that one of the file's called?
    pub fn is_library(&mut self, call: &Call, path: &str) -> bool {
        if self.owner(call.instruction).is_none() {
            self.read(call.thread, path);
        }
        self.caller(call) == Some(Owner::Library)
    }

    /// Whose function is the innermost one outside the C library. None if it cannot be found out.
    fn caller(&mut self, call: &Call) -> Option<Owner> {
        let memory = File::open(format!("/proc/{}/mem", call.thread)).ok()?;
        let mut read = |address| {
            let mut word = [0; 8];
            memory
                .read_exact_at(&mut word, address)
                .map(|()| u64::from_ne_bytes(word))
                .map_err(drop)
        };
        let registers = UnwindRegsX86_64::new(call.instruction, call.stack, call.frame);
        let parts = &self.parts;
        let mut frames =
            self.unwinder
                .iter_frames(call.instruction, registers, &mut self.cache, &mut read);
        while let Ok(Some(frame)) = frames.next() {
            let owner = owner(parts, frame.address_for_lookup())?;
            if owner != Owner::Libc {
                return Some(owner);
            }
        }
        None
    }

    fn owner(&self, place: u64) -> Option<Owner> {
        owner(&self.parts, place)
    }

    fn read(&mut self, thread: i32, path: &str) {
        let text = fs::read_to_string(format!("/proc/{thread}/maps")).unwrap_or_default();
        let mappings: Vec<Mapping> = text.lines().filter_map(mapping).collect();
        let executable = mappings.iter().filter(|mapping| mapping.is_executable);
        self.parts = executable
            .map(|mapping| (mapping.range.clone(), mapping.owner(path)))
            .collect();
        self.unwinder = UnwinderX86_64::new();
        self.cache = CacheX86_64::new();
        for first in mappings.iter().filter(|mapping| mapping.is_first_of_libc()) {
            let of_file = mappings.iter().filter(|part| part.file == first.file);
            let end = of_file.map(|part| part.range.end).max();
            let range = first.range.start..end.unwrap_or_default();
            let Ok(bytes) = fs::read(first.file) else {
                continue;
            };
            let Ok(object) = object::File::parse(&*bytes) else {
                continue;
            };
            let name = first.file.to_owned();
            let module = Module::new(name, range.clone(), range.start, sections(&object));
            self.unwinder.add_module(module);
        }
    }
}

/// What the unwinder needs of a file.
fn sections(object: &object::File<'_>) -> ExplicitModuleSectionInfo<Vec<u8>> {
    let section = |name| {
        let section = object.section_by_name(name)?;
        let range = section.address()..section.address() + section.size();
        Some((range, section.data().ok()?.to_vec()))
    };
    let (text_svma, text) = section(".text").unzip();
    let (eh_frame_svma, eh_frame) = section(".eh_frame").unzip();
    let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr").unzip();
    ExplicitModuleSectionInfo {
        text_svma,
        text,
        eh_frame_svma,
        eh_frame,
        eh_frame_hdr_svma,
        eh_frame_hdr,
        ..Default::default()
    }
}

fn owner(parts: &[(Range<u64>, Owner)], place: u64) -> Option<Owner> {
    let part = parts.iter().find(|(range, _)| range.contains(&place));
    part.map(|(_, owner)| *owner)
}

/// A line of /proc/…/maps.
struct Mapping<'a> {
    range: Range<u64>,
    is_executable: bool,
    offset: u64,
    file: &'a str,
}

impl Mapping<'_> {
    fn owner(&self, path: &str) -> Owner {
        match self.file {
            file if file.ends_with(path) => Owner::Library,
            "[vdso]" => Owner::Libc,
            file if is_libc(file) => Owner::Libc,
            _ => Owner::Other,
        }
    }

    fn is_first_of_libc(&self) -> bool {
        self.offset == 0 && is_libc(self.file)
    }
}

fn is_libc(file: &str) -> bool {
    file.contains("/libc.so") || file.contains("/ld-linux")
}

fn mapping(line: &str) -> Option<Mapping<'_>> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = words.next()?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        range: number(start)?..number(end)?,
        is_executable: rights.contains('x'),
        offset: number(words.next()?)?,
        file: words.nth(2).unwrap_or_default(),
    })
}
