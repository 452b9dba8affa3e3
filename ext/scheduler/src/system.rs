//! System calls, each made at most once, and without blocking where the kernel allows it.
//!
//! Each platform has a folder with the same files:
//!
//! | file               | contents                                                                               |
//! |--------------------|----------------------------------------------------------------------------------------|
//! | `child_process`    | learning that a child has ended, without reaping it                                     |
//! | `descriptor`       | a descriptor by Ruby's number: whether it is ready, its size, closing it                |
//! | `file`             | regular files: transfers at an offset, and what may block                               |
//! | `getaddrinfo`      | names and addresses                                                                     |
//! | `kind`             | what a descriptor refers to, as far as it decides how to read and write                 |
//! | `nowait`           | calls that promise not to block                                                         |
//! | `os_error`         | system call errors as C's numbers ([`errno::Errno`])                                    |
//! | `terminal_timeout` | terminals whose reads may return fewer bytes than requested                             |
//! | `transfer`         | one non-blocking attempt to read or write                                               |
//! | `unpolled`         | worker waits for descriptors that the core cannot poll                                  |

mod address;
mod descriptor_kind;
pub mod errno;
pub mod seconds;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use unix as platform;
#[cfg(windows)]
use windows as platform;

use platform::nowait;
pub use platform::{
    child_process, descriptor, file, getaddrinfo, kind, terminal_timeout, transfer, unpolled,
};
