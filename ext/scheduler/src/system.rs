//! System calls, each made at most once and without blocking where the kernel offers a way.

pub mod descriptor;
pub mod file;
pub mod getaddrinfo;
pub mod kind;
mod nowait;
pub mod terminal_timeout;
pub mod transfer;
