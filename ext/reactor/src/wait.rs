//! What a fiber parks for: one file for each kind of wait.

pub mod lookup;
pub mod readiness;
pub mod work;
