//! Ruby's IO objects: descriptor, modes, timeout, whether closed.

use std::ffi::{CStr, c_char, c_int, c_void};

use magnus::{
    Error, Value,
    rb_sys::{AsRawValue, FromRawValue, protect},
};
use rb_sys::VALUE;
use reactor_scheduler::system::descriptor::{Descriptor, close_unless_blocking};

use crate::ruby::call::protected;

/// The IO itself, or the IO to which an object converts with `to_io`. TypeError if that is no IO, IOError if the IO was
/// never opened.
///
/// Reading the fields of the returned IO never raises, so it needs no protection. A protection would cost more than the
/// read.
pub fn real_io(object: Value) -> Result<RealIo, Error> {
    if is_initialized(object) {
        return Ok(RealIo(object));
    }
    let io = protect(|| {
        // SAFETY: raises if it is no IO or was never opened.
        unsafe {
            let io = rb_sys::rb_io_get_io(object.as_raw());
            rb_sys::rb_io_closed_p(io);
            io
        }
    })?;
    // SAFETY: a return value of Ruby.
    Ok(RealIo(unsafe { Value::from_raw(io) }))
}

/// An IO that has been opened.
#[derive(Clone, Copy)]
pub struct RealIo(Value);

impl RealIo {
    pub fn value(self) -> Value {
        self.0
    }

    pub fn is_closed(self) -> bool {
        // SAFETY: reads a field that the IO has.
        self.open_descriptor().is_none()
            && unsafe { rb_sys::rb_io_closed_p(self.0.as_raw()) == rb_sys::Qtrue as VALUE }
    }

    /// IOError if it is closed.
    pub fn descriptor(self) -> Result<Descriptor, Error> {
        let number = match self.open_descriptor() {
            Some(number) => number,
            None => self.descriptor_by_ruby()?,
        };
        // SAFETY: the descriptor of an open IO.
        Ok(unsafe { Descriptor::new(number) })
    }

    /// Reads the field itself where it is public: the two functions for it take 72 instructions before each transfer.
    /// `None` if the IO is closed or the field is not public.
    fn open_descriptor(self) -> Option<c_int> {
        if !HAS_PUBLIC_FIELDS {
            return None;
        }
        // SAFETY: an IO that has been opened has this field, at the place ruby/io.h declares.
        let descriptor = unsafe {
            let file = self.0.as_raw() as *const rb_sys::RFile;
            (*(*file).fptr.cast::<PublicFields>()).descriptor
        };
        (descriptor >= 0).then_some(descriptor)
    }

    fn descriptor_by_ruby(self) -> Result<c_int, Error> {
        let mut descriptor = -1;
        if !self.is_closed() {
            // SAFETY: does not raise for an open IO.
            descriptor = unsafe { rb_sys::rb_io_descriptor(self.0.as_raw()) };
            return Ok(descriptor);
        }
        // SAFETY: exceptions are caught.
        protected(|| descriptor = unsafe { rb_sys::rb_io_descriptor(self.0.as_raw()) })?;
        Ok(descriptor)
    }

    /// The IO that writes for this one: another object if reading and writing have separate descriptors (IO.popen),
    /// otherwise itself.
    pub fn writer(self) -> Self {
        // SAFETY: reads a field that the IO has, and returns a Ruby value.
        Self(unsafe { Value::from_raw(rb_sys::rb_io_get_write_io(self.0.as_raw())) })
    }

    /// Whether its read buffer holds bytes.
    pub fn has_read_ahead(self) -> bool {
        // SAFETY: an IO that has been opened has this field; the function reads a length.
        unsafe {
            let file = self.0.as_raw() as *const rb_sys::RFile;
            rb_sys::rb_io_read_pending((*file).fptr) != 0
        }
    }

    /// The directions in which it is open. An error if it is closed or frozen.
    pub fn mode(self) -> Result<Mode, Error> {
        let mut bits = 0;
        // SAFETY: the exception raised for a closed or frozen IO is caught.
        protected(|| bits = unsafe { rb_sys::rb_io_mode(self.0.as_raw()) })?;
        let has = |flag: u32| bits & flag as i32 != 0;
        Ok(Mode {
            is_readable: has(rb_sys::FMODE_READABLE),
            is_writable: has(rb_sys::FMODE_WRITABLE),
            is_duplex: has(rb_sys::FMODE_DUPLEX),
        })
    }

    /// `IO#timeout`, or nil.
    pub fn timeout(self) -> Value {
        // SAFETY: reads a field that the IO has, and returns a Ruby value.
        unsafe { Value::from_raw(rb_sys::rb_io_timeout(self.0.as_raw())) }
    }
}

/// A descriptor named by Ruby code or the VM. `None` for a negative number.
pub fn named(number: c_int) -> Option<Descriptor> {
    // SAFETY: not negative. As with IO.for_fd, whoever names a number is responsible for it.
    (number >= 0).then(|| unsafe { Descriptor::new(number) })
}

/// Closes a descriptor that [`named`] returned; see [`close_unless_blocking`].
pub fn close_number(number: c_int) -> bool {
    // SAFETY: as above; its owner has given it up.
    named(number).is_some_and(|descriptor| unsafe { close_unless_blocking(descriptor) })
}

/// The first fields of an IO (`struct rb_io` in ruby/io.h of Ruby 3.3 to 4.0).
#[repr(C)]
struct PublicFields {
    _object: VALUE,
    _stdio: *mut c_void,
    descriptor: c_int,
}

/// Whether the Ruby this is compiled for declares the fields: up to 4.0, where they are deprecated.
const HAS_PUBLIC_FIELDS: bool = {
    let (major, minor) = (
        rb_sys::RUBY_API_VERSION_MAJOR,
        rb_sys::RUBY_API_VERSION_MINOR,
    );
    major < 4 || major == 4 && minor == 0
};

/// The directions in which an IO is open.
pub struct Mode {
    pub is_readable: bool,
    pub is_writable: bool,
    /// Whether one direction can be closed alone.
    pub is_duplex: bool,
}

fn is_initialized(object: Value) -> bool {
    // SAFETY: an object of this type has this layout (ruby/internal/core/rfile.h); the pointer is only compared.
    unsafe {
        rb_sys::RB_TYPE_P(object.as_raw(), rb_sys::ruby_value_type::RUBY_T_FILE)
            && !(*(object.as_raw() as *const rb_sys::RFile)).fptr.is_null()
    }
}

/// Sets an instance variable whose name has no @, as Ruby's own extensions do for variables that only they read.
pub fn set_hidden(object: Value, name: &CStr, value: Value) -> Result<(), Error> {
    // SAFETY: a valid C string and live objects; a frozen one raises.
    protect(|| unsafe {
        let name = rb_sys::rb_intern(name.as_ptr().cast::<c_char>());
        rb_sys::rb_ivar_set(object.as_raw(), name, value.as_raw())
    })
    .map(drop)
}
