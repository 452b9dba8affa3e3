//! Arguments and results of getaddrinfo(3).

use std::ffi::c_int;

/// The hints of getaddrinfo(3).
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    pub family: c_int,
    pub socktype: c_int,
    pub protocol: c_int,
    pub flags: c_int,
}

/// One result; `bytes` is a struct sockaddr.
#[derive(Clone, Debug)]
pub struct Address {
    pub family: c_int,
    pub socktype: c_int,
    pub protocol: c_int,
    pub bytes: Vec<u8>,
}

/// Why the lookup failed: EAI_*, and for EAI_SYSTEM also errno (otherwise 0).
#[derive(Clone, Copy, Debug)]
pub struct Unresolved {
    pub code: c_int,
    pub errno: c_int,
}
