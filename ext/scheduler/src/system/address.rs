//! What getaddrinfo(3) is asked, and what it answers.

use std::ffi::c_int;

/// The hints of getaddrinfo(3).
#[derive(Clone, Copy, Debug)]
pub struct Hints {
    pub family: c_int,
    pub socktype: c_int,
    pub protocol: c_int,
    pub flags: c_int,
}

/// One of its answers; `bytes` is a struct sockaddr.
#[derive(Clone, Debug)]
pub struct Address {
    pub family: c_int,
    pub socktype: c_int,
    pub protocol: c_int,
    pub bytes: Vec<u8>,
}

/// Why there is no answer: EAI_*, and errno for EAI_SYSTEM, else 0.
#[derive(Clone, Copy, Debug)]
pub struct Unresolved {
    pub code: c_int,
    pub errno: c_int,
}
