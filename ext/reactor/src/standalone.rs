//! What Ruby calls without a scheduler: `Reactor::Poller`, child processes, the lock of the patches, heads of HTTP requests. `lib.rs`
//! defines it.

pub mod child_process;
pub mod http_request;
pub mod patch_lock;
pub mod poller;
