//! Checks the layers of the extension and of this crate: each module uses only modules in lower layers, and no file is
//! too long. The core's layers are checked by `tests/layers.rs` in the repository root.

#[path = "../../../tests/support/imports.rs"]
mod imports;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use imports::{code, flatten, parse_layers, paths};

/// The maximum number of lines per file.
const MAX_LINES: usize = 400;

/// The folders that this applies to.
const CAPPED: [&str; 1] = ["ext"];

/// The extension's modules, and which modules and parts of this crate each may use. The files inside a module are checked
/// by [`INSIDE`] and [`no_file_imports_itself_in_a_circle`].
const MODULES: &str = include_str!("../../../tests/layering/extension");

fn modules() -> Vec<(&'static str, Vec<&'static str>)> {
    parse_layers(MODULES)
}

/// The order of the files inside a module: each uses only earlier ones. Files in the same group do not use each other.
const INSIDE: [(&str, &[&[&str]]); 3] = [
    (
        "control",
        &[
            &["children", "thread_affinity", "unpolled_wait"],
            &["scheduler"],
            &[
                "hook_scope",
                "collectable_timeout",
                "handler_detection",
                "watcher_marks",
            ],
            &["pending", "switch"],
            &["turn", "watchers"],
            &["yielding"],
            &["park"],
            &["fiber_lifecycle"],
        ],
    ),
    ("wait", &[&["child", "readiness", "work"], &["lookup"]]),
    (
        "transfer",
        &[
            &["request"],
            &["attempt"],
            &["batched_send", "file", "worker_write"],
            &["stream"],
        ],
    ),
];

/// Only these files name a platform's crate or module, or are compiled differently per platform.
const PLATFORM: [&str; 5] = [
    "scheduler/src/system", // its folders, and which one is compiled
    "scheduler/src/system/errno",
    "reactor/src/ruby", // its two files, and which one is compiled
    "reactor/src/ruby/unix",
    "reactor/src/ruby/windows",
];

/// Only these files contain unsafe code.
const UNSAFE: [&str; 5] = [
    "reactor/src/ruby",
    "scheduler/src/state/object_ref",
    "scheduler/src/system/unix/descriptor",
    "scheduler/src/system/unix/getaddrinfo",
    "scheduler/src/system/windows/", // every Windows call is unsafe
];

#[test]
fn every_room_of_the_extension_uses_those_below_it() {
    let mut found = 0;
    for (file, text) in sources("reactor/src") {
        let module = module_of(&file);
        let (_, allowed) = modules()
            .into_iter()
            .find(|(name, _)| *name == module)
            .unwrap_or_else(|| panic!("{file} belongs to no module"));
        let own = paths(&text, "crate");
        let relative = match file.as_str() {
            "lib" => flatten_uses(&text),
            _ => Vec::new(),
        };
        let scheduler = paths(&text, "reactor_scheduler");
        for path in own.iter().chain(&relative).chain(&scheduler) {
            let is_own = module_of(&path.replace("::", "/")) == module;
            let is_below = allowed.iter().any(|below| is_within(path, below));
            assert!(is_own || is_below, "{file} must not use {path}");
            found += usize::from(!is_own);
        }
    }
    assert!(found > 150, "only {found} uses found: is this test blind?");
}

#[test]
fn the_layers_are_in_order() {
    for (place, (name, allowed)) in modules().into_iter().enumerate() {
        for used in &allowed {
            let module = module_of(&used.replace("::", "/")).to_owned();
            let is_crate = ["state", "system"].contains(&module.as_str());
            let is_below = modules()[..place].iter().any(|(lower, _)| *lower == module);
            assert!(is_crate || is_below, "{used} is not below {name}");
        }
    }
}

#[test]
fn the_state_and_the_system_calls_do_not_know_each_other() {
    for (file, text) in sources("scheduler/src") {
        let module = module_of(&file);
        for path in paths(&text, "crate") {
            let used = path.split("::").next().unwrap();
            assert_eq!(used, module, "scheduler/src/{file}.rs must not use {path}");
        }
        assert!(!text.contains("magnus"), "{file} knows Ruby");
    }
}

/// The files of the extension with a static whose first use makes its value under a lock. `make_statics` in `lib.rs` makes
/// those that Ruby makes.
const LAZY: [&str; 5] = [
    "fiber", // set without a call to Ruby
    "hidden_ivar",
    "io_info",         // set without a call to Ruby
    "io_number_table", // Ruby has no part in it
    "ractor",
];

#[test]
fn init_makes_what_ruby_makes_once() {
    const KINDS: [&str; 4] = ["OnceLock<", "Lazy<", "LazyId", "LazyLock<"];
    let lazy = |text: &str| {
        let statics = text.split("static ").skip(1);
        let mut types = statics.filter_map(|item| item.split(['=', ';']).next());
        types.any(|kind| KINDS.iter().any(|name| kind.contains(name)))
    };
    let mut found = Vec::new();
    let mut classes = BTreeSet::new();
    let mut init = String::new();
    for (file, text) in sources("reactor/src") {
        if lazy(&text) {
            found.push(file.replace("ruby/", ""));
        }
        let derived = text.split("#[magnus(").skip(1);
        let names = derived.filter_map(|item| item.split("pub struct ").nth(1)?.split(' ').next());
        classes.extend(names.map(str::to_owned));
        if file == "lib" {
            init = text;
        }
    }
    found.sort();
    assert_eq!(found, LAZY);
    assert_eq!(classes.len(), 6, "{classes:?}");
    for class in classes {
        let call = format!("{class}::class(ruby);");
        assert!(
            init.contains(&call),
            "init does not find the class of {class}"
        );
    }
}

#[test]
fn only_the_listed_files_know_the_platform() {
    const NAMES: [&str; 6] = [
        "rustix",
        "libc::",
        "windows_sys",
        "os::fd",
        "os::unix",
        "os::windows",
    ];
    const CONDITIONS: [&str; 3] = ["unix", "windows", "target_"];
    for root in ["reactor/src", "scheduler/src"] {
        for (file, text) in sources(root) {
            let file = format!("{root}/{file}");
            let folders = ["scheduler/src/system/unix", "scheduler/src/system/windows"];
            let is_of_platform = folders.iter().any(|folder| file.starts_with(folder));
            if is_of_platform || PLATFORM.contains(&file.as_str()) {
                continue;
            }
            for line in code(&text) {
                let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
                let is_condition = line.contains("cfg") && has(&CONDITIONS);
                assert!(!has(&NAMES) && !is_condition, "{file}.rs: {line}");
            }
        }
    }
}

#[test]
fn no_file_imports_itself_in_a_circle() {
    for (root, platform) in [
        ("reactor/src", ""),
        ("scheduler/src", "unix"),
        ("scheduler/src", "windows"),
    ] {
        let sources = of_platform(sources(root), platform);
        let files: BTreeSet<&str> = sources.iter().map(|(file, _)| file.as_str()).collect();
        let mut uses: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (file, text) in &sources {
            let named = paths(text, "crate").into_iter();
            let targets = named.filter_map(|path| file_of(&path, &files));
            uses.insert(file, targets.filter(|target| target != file).collect());
        }
        let mut left = uses;
        // A file that uses none of the remaining files, or is used by none of them, is in no circle.
        while let Some(outside) = left.keys().copied().find(|file| {
            let uses_none = left[file]
                .iter()
                .all(|used| !left.contains_key(used.as_str()));
            uses_none || !left.values().any(|used| used.contains(*file))
        }) {
            left.remove(outside);
        }
        assert!(left.is_empty(), "{root}: a circle among {left:?}");
    }
}

#[test]
fn the_files_of_a_room_are_in_order() {
    let sources = sources("reactor/src");
    for (module, groups) in INSIDE {
        let layer = |name: &str| groups.iter().position(|group| group.contains(&name));
        for (file, text) in sources.iter().filter(|(file, _)| module_of(file) == module) {
            let Some(own) = file.strip_prefix(&format!("{module}/")) else {
                continue;
            };
            let own_layer = layer(own).unwrap_or_else(|| panic!("{file} is in no group"));
            for path in paths(text, "crate") {
                let Some(used) = path.strip_prefix(&format!("{module}::")) else {
                    continue;
                };
                let used = used.split("::").next().unwrap();
                let is_below = layer(used).is_some_and(|used| used < own_layer);
                assert!(is_below || used == own, "{file} must not use {path}");
            }
        }
    }
}

/// The files of `control` extend the same types, so their imports do not show which file uses which.
#[test]
fn the_methods_of_control_call_down() {
    let sources = sources("reactor/src");
    let (_, groups) = INSIDE[0];
    let layer = |file: &str| {
        let name = file.strip_prefix("control/")?;
        groups.iter().position(|group| group.contains(&name))
    };
    let mut defined = BTreeMap::new();
    for (file, text) in &sources {
        let Some(layer) = layer(file) else { continue };
        for line in code(text) {
            if let Some((_, rest)) = line.split_once("fn ") {
                let name = rest.split(['(', '<']).next().unwrap().trim();
                defined.insert(name.to_owned(), (layer, file));
            }
        }
    }
    let mut calls = 0;
    for (file, text) in &sources {
        let Some(layer) = layer(file) else { continue };
        let text: String = code(text).map(str::trim).collect::<Vec<_>>().concat();
        for receiver in ["self.", "scheduler.", "self.scheduler."] {
            for (place, receiver) in text.match_indices(receiver) {
                let rest = &text[place + receiver.len()..];
                let name = rest.split(|sign: char| !sign.is_alphanumeric() && sign != '_');
                let Some((used, defined_in)) = name.take(1).find_map(|name| defined.get(name))
                else {
                    continue;
                };
                assert!(
                    *used < layer || *defined_in == file,
                    "{file} calls up to {defined_in}"
                );
                calls += 1;
            }
        }
    }
    assert!(calls > 60, "only {calls} calls found: is this test blind?");
}

#[test]
fn no_file_is_too_long() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    for directory in CAPPED {
        for (file, text) in imports::sources(&root.join(directory)) {
            let lines = text.lines().count();
            assert!(lines <= MAX_LINES, "{directory}/{file}.rs: {lines} lines");
        }
    }
}

#[test]
fn unsafe_code_stays_in_its_rooms_and_says_why_it_is_sound() {
    for root in ["reactor/src", "scheduler/src"] {
        for (file, text) in sources(root) {
            let file = format!("{root}/{file}");
            let lines: Vec<&str> = text.lines().collect();
            for (place, line) in lines.iter().enumerate() {
                let code = line.split("//").next().unwrap();
                let items = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
                if !items.iter().any(|item| code.contains(item)) {
                    continue;
                }
                assert!(
                    UNSAFE.iter().any(|module| file.starts_with(module)),
                    "{file}.rs:{}: {line}",
                    place + 1
                );
                let mut above = lines[..=place].iter().rev().take(9);
                let is_explained = line.contains("unsafe extern")
                    || above.any(|line| line.contains("SAFETY:") || line.contains("# Safety"));
                assert!(is_explained, "{file}.rs:{}: {line}", place + 1);
            }
        }
    }
}

/// The source files of a crate in `ext/`.
fn sources(root: &str) -> Vec<(String, String)> {
    imports::sources(
        &PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(root),
    )
}

/// Maps files to modules: `system/unix/kind` is `system::kind` on Unix.
fn of_platform(sources: Vec<(String, String)>, platform: &str) -> Vec<(String, String)> {
    let (own, path) = (
        format!("system/{platform}/"),
        format!("system::{platform}::"),
    );
    let named = sources.into_iter().map(|(file, text)| {
        (
            file.replace(&own, "system/"),
            text.replace(&path, "system::"),
        )
    });
    named.collect()
}

/// `hooks/fiber` and `hooks` belong to `hooks`.
fn module_of(file: &str) -> &str {
    file.split('/').next().unwrap()
}

/// `state::fiber::Slot` is within `state` and within `state::fiber`.
fn is_within(path: &str, below: &str) -> bool {
    path.strip_prefix(below)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The file that defines a path's name; `None` for a module's own file, which only lists its files.
fn file_of(path: &str, files: &BTreeSet<&str>) -> Option<String> {
    let mut path = path.replace("::", "/");
    while !files.contains(path.as_str()) {
        path.truncate(path.rfind('/')?);
    }
    let is_module = files
        .iter()
        .any(|file| file.starts_with(&format!("{path}/")));
    let has_tests = files.contains(format!("{path}/tests").as_str());
    (!is_module || has_tests).then_some(path)
}

/// The relative paths named by `use` items in a crate's root.
fn flatten_uses(text: &str) -> Vec<String> {
    let code: String = code(text).collect::<Vec<_>>().join(" ");
    let items = code.match_indices("use ").filter_map(|(place, marker)| {
        let rest = &code[place + marker.len()..];
        rest.find(';').map(|end| flatten(&rest[..end], ""))
    });
    let is_module = |path: &String| modules().iter().any(|(module, _)| is_within(path, module));
    items.flatten().filter(is_module).collect()
}
