//! Unix system calls.

pub mod child_process;
pub mod descriptor;
pub mod file;
pub mod getaddrinfo;
pub mod kind;
pub mod nowait;
mod os_error;
pub mod terminal_timeout;
pub mod transfer;
pub mod unpolled;
