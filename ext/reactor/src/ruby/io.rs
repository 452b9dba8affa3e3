//! IO objects of Ruby's: descriptor, modes, timeout, whether one is closed.

use std::ffi::{CStr, c_char, c_int, c_void};

use magnus::{
    Error, Value,
    rb_sys::{AsRawValue, FromRawValue, protect},
};
use rb_sys::VALUE;
use reactor_scheduler::system::descriptor::{Descriptor, close_unless_blocking};

use crate::ruby::call::protected;

/// The IO itself, or what an object converts to by `to_io`. TypeError if it is no IO, IOError if it was never opened.
///
/// For the IO that comes back, looking at its fields never raises, and so needs no protection, which costs more than the
/// look.
pub fn real_io(object: Value) -> Result<RealIo, Error> {
    if is_initialized(object) {
        return Ok(RealIo(object));
    }
    let io = protect(|| {
        // SAFETY: raises for anything that is no IO, and for one that was never opened.
        unsafe {
            let io = rb_sys::rb_io_get_io(object.as_raw());
            rb_sys::rb_io_closed_p(io);
            io
        }
    })?;
    // SAFETY: a return value of Ruby.
    Ok(RealIo(unsafe { Value::from_raw(io) }))
}

/// An IO that has been opened once.
#[derive(Clone, Copy)]
pub struct RealIo(Value);

impl RealIo {
    pub fn value(self) -> Value {
        self.0
    }

    pub fn is_closed(self) -> bool {
        // SAFETY: looks at a field of an IO that has it.
        self.open_descriptor().is_none()
            && unsafe { rb_sys::rb_io_closed_p(self.0.as_raw()) == rb_sys::Qtrue as VALUE }
    }

    /// IOError if it is closed.
    pub fn descriptor(self) -> Result<Descriptor, Error> {
        let number = match self.open_descriptor() {
            Some(number) => number,
            None => self.descriptor_by_ruby()?,
        };
        // SAFETY: that of an open IO.
        Ok(unsafe { Descriptor::new(number) })
    }

    /// The field itself, where it is public: the two functions that tell it take 72 instructions, before each transfer. None if
    /// it is closed, or if the field is not public.
    fn open_descriptor(self) -> Option<c_int> {
        if !HAS_PUBLIC_FIELDS {
            return None;
        }
        // SAFETY: an IO that has been opened once has this field, and ruby/io.h declares where.
        let descriptor = unsafe {
            let file = self.0.as_raw() as *const rb_sys::RFile;
            (*(*file).fptr.cast::<PublicFields>()).descriptor
        };
        (descriptor >= 0).then_some(descriptor)
    }

    fn descriptor_by_ruby(self) -> Result<c_int, Error> {
        let mut descriptor = -1;
        if !self.is_closed() {
            // SAFETY: an open IO: it does not raise.
            descriptor = unsafe { rb_sys::rb_io_descriptor(self.0.as_raw()) };
            return Ok(descriptor);
        }
        // SAFETY: what is raised is caught.
        protected(|| descriptor = unsafe { rb_sys::rb_io_descriptor(self.0.as_raw()) })?;
        Ok(descriptor)
    }

    /// The IO that writes for this one: another object if reading and writing have descriptors of their own (IO.popen), else
    /// itself.
    pub fn writer(self) -> Self {
        // SAFETY: reads a field of an IO that has it, and returns a value of Ruby.
        Self(unsafe { Value::from_raw(rb_sys::rb_io_get_write_io(self.0.as_raw())) })
    }

    /// Whether bytes lie in its read buffer.
    pub fn has_read_ahead(self) -> bool {
        // SAFETY: an IO that has been opened once has this field; the function looks at a length.
        unsafe {
            let file = self.0.as_raw() as *const rb_sys::RFile;
            rb_sys::rb_io_read_pending((*file).fptr) != 0
        }
    }

    /// The directions in which it is open. An error if it is closed or frozen.
    pub fn mode(self) -> Result<Mode, Error> {
        let mut bits = 0;
        // SAFETY: what is raised for an IO that is closed or frozen is caught.
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
        // SAFETY: reads a field of an IO that has it, and returns a value of Ruby.
        unsafe { Value::from_raw(rb_sys::rb_io_timeout(self.0.as_raw())) }
    }
}

/// A descriptor that Ruby code has named, or the VM. `None` for a number that is no descriptor.
pub fn named(number: c_int) -> Option<Descriptor> {
    // SAFETY: not negative. As with IO.for_fd, who names a number answers for it.
    (number >= 0).then(|| unsafe { Descriptor::new(number) })
}

/// Closes what is [`named`], as [`close_unless_blocking`].
pub fn close_number(number: c_int) -> bool {
    // SAFETY: as above: its owner has given it up.
    named(number).is_some_and(|descriptor| unsafe { close_unless_blocking(descriptor) })
}

/// How the fields of an IO begin (`struct rb_io` in ruby/io.h of Ruby 3.3 to 4.0).
#[repr(C)]
struct PublicFields {
    _object: VALUE,
    _stdio: *mut c_void,
    descriptor: c_int,
}

/// Whether the Ruby that this is compiled for declares the fields: up to 4.0, where they are deprecated.
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
    /// One of the directions may be closed alone.
    pub is_duplex: bool,
}

fn is_initialized(object: Value) -> bool {
    // SAFETY: what is of this type has this layout (ruby/internal/core/rfile.h); the pointer is only compared.
    unsafe {
        rb_sys::RB_TYPE_P(object.as_raw(), rb_sys::ruby_value_type::RUBY_T_FILE)
            && !(*(object.as_raw() as *const rb_sys::RFile)).fptr.is_null()
    }
}

/// Sets an instance variable without an @ in its name. Ruby's own extensions do so for variables that only they read.
pub fn set_hidden(object: Value, name: &CStr, value: Value) -> Result<(), Error> {
    // SAFETY: a valid C string and live objects; a frozen one raises.
    protect(|| unsafe {
        let name = rb_sys::rb_intern(name.as_ptr().cast::<c_char>());
        rb_sys::rb_ivar_set(object.as_raw(), name, value.as_raw())
    })
    .map(drop)
}
