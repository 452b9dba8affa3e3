//! What hooks call to wait: for a name, for readiness, for work.

pub mod child;
pub mod lookup;
pub mod readiness;
pub mod work;
