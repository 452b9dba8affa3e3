//! A Ruby object as its address.
#![allow(unsafe_code)]

/// The address of a Ruby object: a key, and what the extension turns back into the object. Never followed in this crate.
///
/// The part that keeps one names it to the garbage collector ([`State::for_each_object`](crate::state::State)); marking
/// pins the object, so the address stays valid. The address of a fiber that may be collected is only compared
/// ([`FiberRecord::collectable`](crate::state::fiber::FiberRecord)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRef(usize);

impl ObjectRef {
    /// The address of no object: Ruby's `false`.
    pub(super) const NONE: Self = Self(0);

    /// # Safety
    ///
    /// It is the address of a Ruby object, or one of Ruby's constants like nil. Who keeps it marks the object, or only compares the
    /// address.
    pub const unsafe fn from_address(address: usize) -> Self {
        Self(address)
    }

    pub const fn address(self) -> usize {
        self.0
    }
}

#[cfg(test)]
impl ObjectRef {
    /// No test makes an object of it.
    pub const fn new(address: usize) -> Self {
        Self(address)
    }
}
