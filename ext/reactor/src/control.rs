//! Which fiber is running: entering hooks, switching, turning the reactor, starting and ending fibers.
//!
//! There is no loop fiber. A fiber that parks transfers straight to the next ready one. If none is ready it turns the
//! reactor itself, and if its own wait ends meanwhile, it simply returns.
//!
//! The state is never borrowed across a switch, a GVL release or a call into Ruby: each borrow ends within the statement or
//! block that needs it.
//!
//! Each file uses only those above it: `children`, `thread_affinity` and `unpolled_wait`, `scheduler`, `hook_scope`,
//! `collectable_timeout`, `handler_detection` and `watcher_marks`, `pending` and `switch`, `turn` and `watchers`,
//! `yielding`, `park`, `fiber_lifecycle`. `ext/scheduler/tests/layers.rs` checks this, including the methods that the
//! files call.

mod children;
pub mod collectable_timeout;
mod fiber_lifecycle;
mod handler_detection;
pub mod hook_scope;
mod park;
pub mod pending;
pub mod scheduler;
mod switch;
mod thread_affinity;
mod turn;
pub mod unpolled_wait;
pub mod watcher_marks;
mod watchers;
mod yielding;
