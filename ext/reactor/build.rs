//! On Windows: makes the linker take Windows' functions from Windows.
//!
//! Ruby's DLL exports some of its own under the same names (include/ruby/win32.h), and comes before the system's libraries on
//! the command line of the linker. Its `Sleep` and `recv` need the GVL; the standard library's threads have none.

/// What ws2_32 and kernel32 have, and Ruby's DLL as well.
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
    // The libraries of this crate come before those of its dependencies, and a name that is undefined from the start is
    // resolved by the first library that has it.
    for library in ["kernel32", "ws2_32"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
    for name in SOCKETS.iter().chain(&["Sleep"]) {
        println!("cargo:rustc-link-arg-cdylib=-Wl,--undefined={name}");
    }
}
