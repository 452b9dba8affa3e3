//! Source files as text, and what their `use` items and paths name.

use std::{fs, path::Path};

/// All source files below a directory: path without the ending, and text.
pub fn sources(root: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    visit(root, "", &mut found);
    found.sort();
    found
}

fn visit(directory: &Path, prefix: &str, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() {
            visit(&path, &format!("{prefix}{name}/"), found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.push((format!("{prefix}{name}"), text));
        }
    }
}

/// The lines that are code, up to the unit tests.
pub fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .filter(|line| !line.trim_start().starts_with("//"))
}

/// The paths that a file's `use` items and expressions name below a crate, for example `a::b::C` for `crate::a::b::C`.
pub fn paths(text: &str, krate: &str) -> Vec<String> {
    let code: String = code(text).collect::<Vec<_>>().join(" ");
    let mut paths = Vec::new();
    let marker = format!("{krate}::");
    for (place, marker) in code.match_indices(&marker) {
        let before = &code[..place];
        if before.ends_with(|sign: char| sign.is_alphanumeric() || "_:".contains(sign)) {
            continue; // the end of a longer name
        }
        let rest = &code[place + marker.len()..];
        let end = if before.ends_with("use ") {
            rest.find(';')
        } else {
            rest.find([';', '(', ',', ' ', ')', '>'])
        };
        paths.extend(flatten(&rest[..end.unwrap_or(rest.len())], ""));
    }
    paths
}

/// `{a::{b, c}, d}` as `a::b`, `a::c`, `d`.
pub fn flatten(tree: &str, prefix: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        return vec![format!("{prefix}{tree}")];
    };
    let prefix = format!("{prefix}{}", &tree[..open]);
    let close = tree.rfind('}').unwrap();
    let (mut depth, mut start, mut paths) = (0, open + 1, Vec::new());
    for (place, sign) in tree.char_indices() {
        match sign {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if place == close || (sign == ',' && depth == 1) {
            let part = tree[start..place].trim();
            if !part.is_empty() {
                paths.extend(flatten(part, &prefix));
            }
            start = place + 1;
        }
    }
    paths
}

/// The lines `name: below below  # what it is` of a file in tests/layering.
pub fn parse_layers(text: &'static str) -> Vec<(&'static str, Vec<&'static str>)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, rest) = line.split_once(": ").expect("name: below  # what it is");
            let (below, _) = rest.split_once("# ").expect("what it is");
            (name, below.split_whitespace().collect())
        })
        .collect()
}
