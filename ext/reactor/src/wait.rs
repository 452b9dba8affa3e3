//! What a fiber parks for: one file for each kind of wait.

pub mod block;
pub mod driver_operation;
pub mod lookup;
pub mod readiness;
pub mod work;
