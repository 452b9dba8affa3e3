//! What Ruby calls without a scheduler: `Reactor::Poller`, child processes, the patches' lock, HTTP request heads. `lib.rs`
//! defines the methods.

pub mod child_process;
pub mod http_request;
pub mod patch_lock;
pub mod poller;
pub mod semaphore;
