//! Whose descriptor it is.

/// Which object stands behind a descriptor, as far as the caller can tell: a number never given to another. Only if it is
/// the same as last time is anything remembered trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity(pub u64);

impl Identity {
    /// Another object each time: nothing is ever trusted.
    pub const UNKNOWN: Self = Self(0);
}
