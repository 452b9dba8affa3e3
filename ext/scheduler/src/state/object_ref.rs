//! A Ruby object as an address.
#![allow(unsafe_code)]

/// The address of a Ruby object: a key, which the extension turns back into the object. Never dereferenced in this crate.
///
/// Whoever keeps one reports it to the garbage collector ([`State::for_each_object`](crate::state::State)); marking pins
/// the object, so the address stays valid. The address of a fiber that may be collected is only compared
/// ([`FiberRecord::collectable`](crate::state::fiber::FiberRecord)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRef(usize);

impl ObjectRef {
    /// An address that no object has: the value of Ruby's `false`.
    pub(super) const NONE: Self = Self(0);

    /// # Safety
    ///
    /// It must be the address of a Ruby object, or a constant such as nil. Whoever keeps it marks the object, or only
    /// compares the address.
    pub const unsafe fn from_address(address: usize) -> Self {
        Self(address)
    }

    pub const fn address(self) -> usize {
        self.0
    }
}

#[cfg(test)]
impl ObjectRef {
    /// Tests never turn it into an object.
    pub const fn new(address: usize) -> Self {
        Self(address)
    }
}
