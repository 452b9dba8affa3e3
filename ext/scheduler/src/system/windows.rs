//! Windows system calls: through the C run-time where Ruby uses it, otherwise through Winsock and the kernel.

pub mod child_process;
mod console;
pub mod descriptor;
pub mod file;
pub mod getaddrinfo;
pub mod kind;
pub mod nowait;
mod os_error;
mod stop;
pub mod terminal_timeout;
#[cfg(test)]
mod test_pipe;
pub mod transfer;
pub mod unpolled;
mod worker_write;
