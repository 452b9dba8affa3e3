//! The C program of `tests/program.c` compiles with the header, links with the library and runs.

#![cfg(unix)]

use std::{
    env, fs,
    path::Path,
    process::{self, Command},
};

#[test]
fn a_c_program_runs() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = env::current_exe().unwrap();
    let built = test.parent().unwrap(); // The library is in the same directory as the tests.
    // A name of its own: another run of the same test may be executing its program.
    let program = built.join(format!("reactor-c-program-{}", process::id()));
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(compiler)
        .args([
            "-std=c11",
            "-D_GNU_SOURCE",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I",
        ])
        .arg(package.join("include"))
        .arg(package.join("tests/program.c"))
        .arg(built.join("libreactor_c.a"))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .expect("a C compiler");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    let output = Command::new(&program).output().unwrap();
    fs::remove_file(&program).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.ends_with(": fine\n"), "{said}");
}

/// The header and the library must be changed together.
#[test]
fn header_and_library_name_the_same_functions() {
    let names = |text: &'static str, before: &str| {
        let mut names: Vec<_> = text
            .lines()
            .filter(|line| {
                line.contains(before)
                    && line.contains('(')
                    && !line.trim_start().starts_with(['*', '/'])
            })
            .filter_map(|line| line.split('(').next())
            .filter_map(|start| start.rsplit([' ', '*']).next())
            .filter(|name| name.starts_with("reactor_"))
            .collect();
        names.sort_unstable();
        names
    };
    let header = names(include_str!("../include/reactor.h"), "reactor_");
    let library = names(include_str!("../src/lib.rs"), "extern \"C\" fn");
    assert_eq!(header, library);
    assert_eq!(library.len(), 15);
}
