//! The memory of an IO::Buffer during one system call.

use std::{
    cell::Cell,
    ffi::{c_int, c_void},
    ptr::{self, NonNull},
    slice,
};

use magnus::{Error, Value, prelude::*, rb_sys::AsRawValue};
use rb_sys::VALUE;

use crate::ruby::{call::protected, error, platform};

/// The part of an IO::Buffer that a transfer uses, and the buffer's size.
#[derive(Debug)]
pub struct Extent {
    buffer: Value,
    offset: usize,
    /// The end of the bytes the caller asked for.
    end: usize,
    /// The buffer's size when the transfer last used it; 0 before.
    size: Cell<usize>,
    /// The transfer has found that the VM created the buffer, so it is locked.
    is_of_vm: Cell<bool>,
}

impl Extent {
    pub fn new(buffer: Value, offset: usize, length: usize) -> Self {
        Self {
            buffer,
            offset,
            end: offset.saturating_add(length),
            size: Cell::new(0),
            is_of_vm: Cell::new(false),
        }
    }

    /// Checks the bounds first, in Ruby's order, and then that the memory has not been freed since the transfer began.
    fn check(&self, size: usize) -> Result<(), Error> {
        let before = self.size.replace(size);
        if self.end > size || before > size {
            return Err(self.beyond(before, size));
        }
        Ok(())
    }

    #[cold]
    fn beyond(&self, before: usize, size: usize) -> Error {
        if before > size {
            return error::not_allocated();
        }
        error::argument_error("Specified offset+length is bigger than the buffer size!")
    }

    /// Passes the closure at most `most` bytes of the buffer to write to, starting `done` bytes after the offset.
    ///
    /// The closure makes one system call and must not call Ruby. If it releases the GVL, the buffer must be locked
    /// ([`Extent::lock`]).
    pub fn with_writable<T>(
        &self,
        done: usize,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, Error> {
        let (base, size) = self.rest(done, most, true)?;
        // SAFETY: base..base+size is memory of the buffer, which only Ruby code could free. No such code runs before the
        // closure returns: the closure does not call Ruby, and if it releases the GVL, the buffer is locked, by the VM or
        // by `lock`.
        Ok(fill(unsafe { slice::from_raw_parts_mut(base, size) }))
    }

    /// Like [`Extent::with_writable`], but to read from.
    pub fn with_readable<T>(
        &self,
        done: usize,
        most: usize,
        drain: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Error> {
        let (base, size) = self.rest(done, most, false)?;
        // SAFETY: as in with_writable.
        Ok(drain(unsafe { slice::from_raw_parts(base, size) }))
    }

    #[inline(always)] // both callers pass a constant `writing`
    fn rest(&self, done: usize, most: usize, writing: bool) -> Result<(*mut u8, usize), Error> {
        let flags = if writing { LOCKED } else { LOCKED | READONLY };
        let (base, size) = match plain(self.buffer, flags) {
            Some(memory) => {
                self.is_of_vm.set(true);
                memory
            }
            None => self.checked(writing)?,
        };
        self.check(size)?;
        let offset = self.offset + done;
        Ok(match size.checked_sub(offset) {
            None | Some(0) => (NonNull::dangling().as_ptr(), 0),
            Some(left) => (base.wrapping_add(offset), left.min(most)),
        })
    }

    /// The memory of a buffer that the VM did not create, or the exception for one without memory.
    #[cold]
    fn checked(&self, writing: bool) -> Result<(*mut u8, usize), Error> {
        // Ruby checks the numbers first.
        let (base, size) =
            memory(self.buffer, writing).map_err(|error| self.room().err().unwrap_or(error))?;
        if size > MAX_SIZE {
            return Err(error::errno(platform::TOO_LARGE.number(), None));
        }
        Ok((base, size))
    }

    /// Whether the VM itself created the buffer to pass it to a hook. Such a buffer has enough room.
    pub fn is_of_vm(&self) -> bool {
        let is_of_vm = any(self.buffer).is_some_and(|(_, _, flags)| flags & !READONLY == LOCKED);
        self.is_of_vm.set(is_of_vm);
        is_of_vm
    }

    /// The number of bytes in the buffer from the offset on.
    pub fn room(&self) -> Result<usize, Error> {
        let size = match any(self.buffer) {
            Some((_, size, _)) => size,
            None => self.buffer.funcall("size", ())?,
        };
        self.check(size)?;
        Ok(size - self.offset)
    }

    /// Locks the buffer, as Ruby does while it reads or writes, so that no other fiber frees the memory. False if it is
    /// already locked: the VM's own buffers are locked, and so is a buffer that another transfer uses. Call this before
    /// another fiber runs.
    ///
    /// A read-only buffer is not locked, so that [`Extent::with_writable`] refuses it: a locked slice of a frozen buffer
    /// cannot be told from a buffer of the VM.
    pub fn lock(&self, writing: bool) -> Result<bool, Error> {
        if self.is_of_vm.get()
            || any(self.buffer).is_none_or(|(_, _, flags)| flags & LOCKED != 0)
            || (writing && memory(self.buffer, true).is_err())
        {
            return Ok(false);
        }
        // SAFETY: the exception raised for a locked buffer is caught.
        protected(|| _ = unsafe { rb_sys::rb_io_buffer_lock(self.buffer.as_raw()) })?;
        Ok(true)
    }

    /// Unlocks a buffer that [`Extent::lock`] locked.
    #[cold]
    pub fn unlock(&self) {
        // It raises if the buffer is not locked, which is harmless. SAFETY: an IO::Buffer, because it could be locked.
        _ = protected(|| _ = unsafe { rb_sys::rb_io_buffer_unlock(self.buffer.as_raw()) });
    }

    /// Like [`Extent::with_writable`], for a worker. `None` if no bytes are left, or the VM did not create the buffer: Ruby
    /// code may then free it, or the buffer it is a slice of, at any time.
    ///
    /// The caller must not return to the VM before the worker is done.
    pub fn sendable(&self, done: usize, most: usize) -> Result<Option<SendableBuffer>, Error> {
        let Some((base, whole)) = plain(self.buffer, LOCKED) else {
            return Ok(None);
        };
        let offset = self.offset + done;
        let size = most.min(whole.saturating_sub(offset));
        if size == 0 || is_slice(self.buffer)? {
            return Ok(None);
        }
        let base = base.wrapping_add(offset);
        Ok(Some(SendableBuffer { base, size }))
    }
}

/// Memory of an IO::Buffer that a worker may write to without the GVL.
#[derive(Debug)]
pub struct SendableBuffer {
    base: *mut u8,
    size: usize,
}

// SAFETY: the memory does not move until the worker is done (see `with_writable`), and Ruby lets nobody change a locked
// String. Other fibers may read that String meanwhile, as they may while Ruby itself reads without the GVL: what they see
// of the new bytes is undefined, but no Rust code has a reference to them.
unsafe impl Send for SendableBuffer {}

impl SendableBuffer {
    /// Writes to the memory.
    pub fn with_writable<T>(&mut self, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        // SAFETY: base..base+size lies in a buffer that the VM created and locked, around memory that the waiting method
        // call keeps alive (a string is locked as well). The fiber is parked, and its frames stay there, until the job has
        // ended.
        fill(unsafe { slice::from_raw_parts_mut(self.base, self.size) })
    }
}

/// Whether the buffer is a slice of another one.
///
/// A locked slice has the same flags as a buffer of the VM, and neither the C API nor IO::Buffer's methods can
/// distinguish the two; only the description can. Getting the description takes 0.7 us, so this is checked only before
/// a transfer is given to a worker.
fn is_slice(buffer: Value) -> Result<bool, Error> {
    let description: String = buffer.funcall("to_s", ())?;
    Ok(description.contains("SLICE"))
}

// As in io/buffer.h. The flags are bits, and combinations of them are not valid values of the type bindgen generates.
const LOCKED: c_int = 32;
const READONLY: c_int = 128;
/// The size of the largest possible object. `IO#sysread(-1)` passes a buffer that claims to be larger; the system
/// refuses such a size.
const MAX_SIZE: usize = isize::MAX as usize;

/// The memory of a buffer that the VM itself passes to a hook, recognised by its flags: a locked buffer over memory it
/// does not own. Querying such a buffer cannot raise, so it needs no protection. A protection would cost more than
/// everything else.
fn plain(buffer: Value, expected: c_int) -> Option<(*mut u8, usize)> {
    let (base, size, flags) = any(buffer)?;
    (flags == expected && size <= MAX_SIZE).then_some((base, size))
}

/// The memory and flags of an object of exactly the class IO::Buffer, if the memory is there.
fn any(buffer: Value) -> Option<(*mut u8, usize, c_int)> {
    unsafe extern "C" {
        fn rb_io_buffer_get_bytes(buffer: VALUE, base: *mut *mut c_void, size: *mut usize)
        -> c_int;
    }
    let buffer = buffer.as_raw();
    let (mut base, mut size) = (ptr::null_mut(), 0);
    // SAFETY: an object of exactly this class has this layout: the call does not raise, and the base is null unless the
    // memory is there.
    let flags = unsafe {
        if rb_sys::SPECIAL_CONST_P(buffer)
            || (*(buffer as *const rb_sys::RBasic)).klass != rb_sys::rb_cIOBuffer
        {
            return None;
        }
        rb_io_buffer_get_bytes(buffer, &mut base, &mut size)
    };
    (!base.is_null()).then_some((base.cast(), size, flags))
}

fn memory(buffer: Value, writing: bool) -> Result<(*mut u8, usize), Error> {
    let (mut base, mut size) = (ptr::null_mut(), 0);
    protected(|| {
        // SAFETY: raises if it is no IO::Buffer, has been freed, or is read-only and to be written.
        unsafe {
            let buffer = buffer.as_raw();
            match writing {
                true => rb_sys::rb_io_buffer_get_bytes_for_writing(buffer, &mut base, &mut size),
                false => {
                    let base = (&raw mut base).cast();
                    rb_sys::rb_io_buffer_get_bytes_for_reading(buffer, base, &mut size);
                }
            }
        }
    })?;
    Ok((base.cast(), size as usize))
}
