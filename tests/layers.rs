//! The modules form a strict DAG: each one uses only modules below it.

#[path = "support/imports.rs"]
mod imports;

use std::path::Path;

use imports::{code, flatten, parse_layers, paths};

/// Each module, and the modules that it may use.
const LAYERS: &str = include_str!("layering/core");

fn layers() -> Vec<(&'static str, Vec<&'static str>)> {
    parse_layers(LAYERS)
}

#[test]
fn each_module_uses_only_modules_below_it() {
    let mut found = 0;
    for (path, text) in sources() {
        if path == "lib" {
            continue;
        }
        let module = module_of(&path);
        let allowed = layers().into_iter().find(|(name, _)| *name == module);
        let Some((_, allowed)) = allowed else {
            panic!("src/{path}.rs is in no layer");
        };
        for used in uses(&text) {
            let own = used == module;
            assert!(
                own || allowed.contains(&used.as_str()),
                "src/{path}.rs must not use {used}"
            );
            found += usize::from(!own);
        }
    }
    assert!(found > 30, "only {found} uses found: is this test blind?");
}

#[test]
fn the_layers_are_in_order() {
    for (place, (name, allowed)) in layers().into_iter().enumerate() {
        for used in &allowed {
            let below = layers()[..place].iter().any(|(lower, _)| lower == used);
            assert!(below, "{used} is not below {name}");
        }
    }
}

#[test]
fn every_use_is_by_full_name() {
    for (path, text) in sources() {
        for line in code(&text) {
            let line = line.trim();
            assert!(
                !line.starts_with("use ") || !line.contains('*'),
                "src/{path}.rs: {line}"
            );
            assert!(!line.contains("macro_rules!"), "src/{path}.rs: {line}");
        }
    }
}

/// The lines that a source file may have.
const LONGEST: usize = 400;

#[test]
fn no_file_is_too_long() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= LONGEST, "src/{path}.rs has {lines} lines");
    }
}

#[test]
fn each_library_is_named_by_one_module() {
    for (path, text) in sources() {
        let code = without_own_imports(&text);
        for (library, home) in [("mio::", "driver/mio"), ("io_uring::", "driver/uring")] {
            let foreign = code.contains(library) && !path.starts_with(home);
            assert!(!foreign, "src/{path}.rs names {library}");
        }
    }
}

/// The code without its `use crate::` items: a module may have the name of a library.
fn without_own_imports(text: &str) -> String {
    let mut code: String = code(text).collect::<Vec<_>>().join(" ");
    while let Some(start) = code.find("use crate::") {
        let end = code[start..]
            .find(';')
            .map_or(code.len(), |end| start + end);
        code.replace_range(start..end, "");
    }
    code
}

/// All source files: the path below `src` without the extension, and the text.
fn sources() -> Vec<(String, String)> {
    imports::sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

/// `driver/mio/unix` belongs to `driver/mio`, `registry/entries` to `registry`.
fn module_of(path: &str) -> &str {
    let known = layers().into_iter().map(|(name, _)| name);
    let mut owners = known.filter(|name| path == *name || path.starts_with(&format!("{name}/")));
    match (owners.next(), owners.next()) {
        (_, Some(narrower)) => narrower,
        (Some(owner), None) => owner,
        (None, None) => path,
    }
}

/// The modules that the `use crate::` items and the `crate::` paths of a file name.
fn uses(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for path in paths(text, "crate") {
        let mut parts = path.split("::");
        let head = parts.next().unwrap().to_owned();
        let nested = format!("{head}/{}", parts.next().unwrap_or_default());
        let is_module = layers().iter().any(|(name, _)| *name == nested);
        names.push(if is_module { nested } else { head });
    }
    names
}

#[test]
fn trees_are_flattened() {
    let tree = "{a::B, c::{self, d::{E, F}}, g::H}";
    let paths = ["a::B", "c::self", "c::d::E", "c::d::F", "g::H"];
    assert_eq!(flatten(tree, ""), paths);
}
