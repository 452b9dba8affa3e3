//! The part of the extension that needs no Ruby: a scheduler's state, and its system calls.
//!
//! No type here knows the VM. A Ruby object is an address ([`state::object_ref::ObjectRef`]) that this crate never
//! dereferences, so `cargo test -p reactor-scheduler` tests everything without a VM, on the core's scripted driver.
//!
//! [`state`] and [`system`] do not know each other; this crate's `tests/layers.rs` checks it.
#![deny(unsafe_code)]

pub mod state;
pub mod system;
