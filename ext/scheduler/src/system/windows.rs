//! Windows: functions of the C run-time for what Ruby uses them for, of Winsock, and of the kernel.

pub mod child_process;
mod console;
pub mod descriptor;
pub mod file;
pub mod getaddrinfo;
pub mod kind;
pub mod nowait;
mod os_error;
#[cfg(test)]
mod pipe;
mod stop;
pub mod terminal_timeout;
pub mod transfer;
pub mod unpolled;
mod worker_write;
