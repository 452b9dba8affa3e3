//! The part of the Ruby extension that needs no Ruby: the state of a scheduler, and system calls.
//!
//! No type here knows the VM. An object of Ruby's is an address ([`state::object_ref::ObjectRef`]) that this crate never follows. So
//! `cargo test -p reactor-scheduler` tests all of it without a VM, on the core's scripted driver.
//!
//! [`state`] and [`system`] do not know each other. `tests/layers.rs` of this crate holds that.
#![deny(unsafe_code)]

pub mod state;
pub mod system;
