//! On Windows: makes the linker resolve Windows functions to Windows' own.
//!
//! Ruby's DLL exports replacements under the same names (include/ruby/win32.h), and comes before the system libraries
//! on the linker's command line. The DLL's `Sleep` and `recv` need the GVL, but the standard library's threads do not
//! hold it.

/// Symbols that both Ruby's DLL and ws2_32 or kernel32 export.
const SOCKETS: [&str; 17] = [
    "accept",
    "bind",
    "connect",
    "getpeername",
    "getsockname",
    "getsockopt",
    "gethostname",
    "ioctlsocket",
    "listen",
    "recv",
    "recvfrom",
    "select",
    "send",
    "sendto",
    "setsockopt",
    "shutdown",
    "socket",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("windows") {
        return;
    }
    // This crate's libraries come before those of its dependencies, and a name undefined from the start is resolved by the
    // first library that has it.
    for library in ["kernel32", "ws2_32"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    for name in SOCKETS.iter().chain(&["Sleep"]) {
        println!("cargo:rustc-link-arg-cdylib=-Wl,--undefined={name}");
    }
}
