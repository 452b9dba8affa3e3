//! The hooks of Fiber::Scheduler and the other methods of `Reactor::NativeScheduler`. Each parses its arguments, enters the
//! scheduler, and calls the modules below. `lib.rs` defines them.

pub mod block;
pub mod blocking_operation;
pub mod closing;
pub mod fibers;
pub mod for_patches;
pub mod io_transfer;
pub mod io_wait;
pub mod observe;
pub mod timeout;
pub mod watching;
