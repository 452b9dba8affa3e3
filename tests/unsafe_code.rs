//! All unsafe code of the crate, counted per file, with the reason for it.

use std::{collections::BTreeMap, fs, path::Path};

/// Each file with unsafe code, the number of its unsafe items, and the reason why safe code is not enough.
const ALLOWED: [(&str, usize, &str); 7] = [
    (
        "descriptor/unix.rs",
        6,
        "poll(2), ppoll(2), fcntl(2) and fstat(2), which the standard library does not offer for a borrowed number; a stat of zeroes; the ownership of a fresh descriptor",
    ),
    ("descriptor/windows.rs", 2, "WSAPoll, and its declaration"),
    (
        "driver/mio/sources_windows.rs",
        2,
        "a socket of the caller, wrapped as a type of mio and unwrapped before it could be closed",
    ),
    (
        "driver/uring/operation_table.rs",
        2,
        "entries for the submission queue, with buffers that are kept until their completions have come",
    ),
    (
        "driver/uring/linux.rs",
        2,
        "eventfd(2) for the ring's completions, and the ownership of its descriptor",
    ),
    (
        "driver/uring/ring.rs",
        4,
        "the submission queue, with entries that point to memory; the order in which ring and descriptor end, in a child too",
    ),
    (
        "pool/signal_mask/unix.rs",
        1,
        "pthread_sigmask(3): a worker starts with its signals blocked",
    ),
];

#[test]
fn every_unsafe_item_is_counted_and_says_why_it_is_sound() {
    let mut found = BTreeMap::new();
    visit(Path::new("src"), &mut found);
    let expected: BTreeMap<String, usize> = ALLOWED
        .iter()
        .map(|(file, count, why)| {
            assert!(why.len() > 20, "{file}: why?");
            ((*file).to_owned(), *count)
        })
        .collect();
    assert_eq!(found, expected);
}

fn visit(directory: &Path, found: &mut BTreeMap<String, usize>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in fs::read_dir(root.join(directory)).unwrap() {
        let path = directory.join(entry.unwrap().file_name());
        if root.join(&path).is_dir() {
            visit(&path, found);
            continue;
        }
        let text = fs::read_to_string(root.join(&path)).unwrap();
        let count = unsafe_items(&path, &text);
        if count > 0 {
            let name = path.strip_prefix("src").unwrap().to_str().unwrap();
            found.insert(name.replace('\\', "/"), count);
        }
    }
}

/// The number of unsafe items. Each must have a SAFETY comment above it. An unsafe function has a `# Safety` section instead,
/// and an extern block needs neither.
fn unsafe_items(path: &Path, text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let mut count = 0;
    for (place, line) in lines.iter().enumerate() {
        if !is_unsafe(line) {
            continue;
        }
        count += 1;
        let mut above = lines[..place].iter().rev().take(8);
        let explained = line.contains("unsafe extern")
            || above.any(|line| line.contains("SAFETY:") || line.contains("# Safety"));
        assert!(explained, "{}:{}: {line}", path.display(), place + 1);
    }
    count
}

fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap();
    let items = [
        "unsafe {",
        "unsafe fn",
        "unsafe impl",
        "unsafe extern",
        "unsafe trait",
    ];
    items.iter().any(|item| code.contains(item))
}

#[test]
fn unsafe_items_are_recognised() {
    assert!(is_unsafe("    let size = unsafe { call() };"));
    assert!(is_unsafe("unsafe impl Send for Ring {}"));
    assert!(!is_unsafe("// unsafe { call() }"));
    assert!(!is_unsafe("#![allow(unsafe_code)]"));
}
