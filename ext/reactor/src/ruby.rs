//! The unsafe module: everything in Ruby's C API that magnus does not offer, behind safe signatures.
//!
//! Two invariants make these signatures safe, and every caller keeps them:
//!
//! * everything runs on a Ruby thread that holds the GVL, because the extension is only entered from Ruby methods. The
//!   exceptions touch no Ruby objects: the sleep of [`thread::without_gvl`], the closure of [`thread::blocking_call`], and
//!   the code on other threads that ends these;
//! * whatever may raise, throw or be killed runs inside `protect` and is returned as a [`magnus::Error`], so no longjmp
//!   crosses a Rust frame. The exception is the NoMemoryError of a small allocation, because each protection costs a frame
//!   and instructions.
#![allow(unsafe_code)]

pub mod buffer;
pub mod call;
pub mod caller;
pub mod convert;
pub mod error;
pub mod fiber;
pub mod hidden_ivar;
pub mod io;
pub mod io_info;
pub mod io_number_table;
pub mod object;
pub mod panics;
#[cfg(feature = "planted-errors")]
pub mod planted_errors;
#[cfg_attr(unix, path = "ruby/unix.rs")]
#[cfg_attr(windows, path = "ruby/windows.rs")]
pub mod platform;
pub mod ractor;
pub mod receiver;
pub mod thread;
pub mod with_block;

use magnus::{Error, Ruby};

/// The version of the scheduler interface in the Ruby that this was built for: 2 in Ruby 3.3 and 3.4, 3 in Ruby 4.0, 4
/// and above in Ruby 4.1.
pub const INTERFACE: u32 = rb_sys::RUBY_FIBER_SCHEDULER_VERSION;

/// Whether this is Ruby 3.3.
pub const IS_3_3: bool = rb_sys::RUBY_API_VERSION_MAJOR == 3 && rb_sys::RUBY_API_VERSION_MINOR < 4;

/// A library that was built for another version of Ruby may load, but the VM's structures differ.
///
/// # Errors
/// LoadError: this Ruby is not the one that the library was built for.
pub fn check_version(ruby: &Ruby) -> Result<(), Error> {
    const MAJOR: u32 = rb_sys::RUBY_API_VERSION_MAJOR;
    const MINOR: u32 = rb_sys::RUBY_API_VERSION_MINOR;
    // SAFETY: a constant of every Ruby.
    let [major, minor, _] = unsafe { rb_sys::ruby_api_version };
    if [u32::try_from(major), u32::try_from(minor)] == [Ok(MAJOR), Ok(MINOR)] {
        return Ok(());
    }
    let text = format!("it was built for Ruby {MAJOR}.{MINOR}");
    Err(Error::new(ruby.exception_load_error(), text))
}

/// Allows any Ractor to load this extension.
pub fn ractor_safe() {
    // SAFETY: called from Init only.
    unsafe { rb_sys::rb_ext_ractor_safe(true) };
}
