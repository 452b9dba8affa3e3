//! System calls, each made at most once and without blocking where the kernel offers a way.
//!
//! Each platform has a folder, and each folder the same files:
//!
//! | file               | what it has                                                                            |
//! |--------------------|----------------------------------------------------------------------------------------|
//! | `child_process`    | how to learn that a child has ended, without taking its status                          |
//! | `descriptor`       | a descriptor by Ruby's number of it: asked whether it is ready, how large, closed       |
//! | `file`             | regular files: transfers at an offset, and what they may wait for                       |
//! | `getaddrinfo`      | names and addresses                                                                     |
//! | `kind`             | what is behind a descriptor, as far as it decides how to read and write                 |
//! | `nowait`           | calls that promise not to block                                                         |
//! | `os_error`         | errors of system calls as numbers of C ([`errno::Errno`])                                |
//! | `terminal_timeout` | terminals whose reads end without as many bytes as they wait for                        |
//! | `transfer`         | one attempt to read or write that does not block                                        |
//! | `unpolled`         | waits of a worker for what the core does not poll                                       |

mod address;
mod descriptor_kind;
pub mod errno;
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
