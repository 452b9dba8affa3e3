//! Runs a program and makes one of its system calls fail.

pub mod caller;
pub mod descriptors;
pub mod filter;
pub mod list;
pub mod marks;
pub mod supervisor;
pub mod trial;
