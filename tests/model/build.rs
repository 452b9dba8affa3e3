//! Sets the cfg by which `src/lib.rs` takes the locks and threads of `sync.rs` beside this file.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cfg=reactor_model");
}
