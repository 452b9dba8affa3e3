//! The memory of an IO::Buffer, for the length of one system call.

use std::{
    cell::Cell,
    ffi::{c_int, c_void},
    ptr, slice,
};

use magnus::{
    Error, Value,
    prelude::*,
    rb_sys::{AsRawValue, protect},
};
use rb_sys::VALUE;

use crate::ruby::error;

/// The part of an IO::Buffer that a transfer is for, and the size of the buffer.
#[derive(Debug)]
pub struct Extent {
    offset: usize,
    /// The end of the bytes that the caller asked for.
    end: usize,
    /// The size of the buffer when the transfer last used it; 0 before.
    size: Cell<usize>,
    /// The transfer has seen that the buffer is one of the VM's, which are locked.
    is_of_vm: Cell<bool>,
}

impl Extent {
    pub fn new(offset: usize, length: usize) -> Self {
        Self {
            offset,
            end: offset.saturating_add(length),
            size: Cell::new(0),
            is_of_vm: Cell::new(false),
        }
    }

    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Checks the bounds, as Ruby does first, and that the memory has not been freed since the transfer began.
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
}

/// The memory of an IO::Buffer from the extent's offset and `done` bytes on, to write to.
///
/// The closure makes one system call and must not call Ruby. If it gives the GVL away, the buffer has to be locked ([`lock`]).
pub fn with_writable<T>(
    buffer: Value,
    extent: &Extent,
    done: usize,
    fill: impl FnOnce(&mut [u8]) -> T,
) -> Result<T, Error> {
    let (base, size) = match plain(buffer, LOCKED) {
        Some(memory) => {
            extent.is_of_vm.set(true);
            memory
        }
        None => checked(buffer, extent, true)?,
    };
    extent.check(size)?;
    let offset = extent.offset + done;
    if offset >= size {
        return Ok(fill(&mut []));
    }
    // SAFETY: base..base+size is memory of the buffer, which only Ruby code could free. None runs before the closure has ended: the
    // closure does not call Ruby, and if it gives the GVL away, the buffer is locked, by the VM or by `lock`.
    let bytes = unsafe { slice::from_raw_parts_mut(base, size) };
    Ok(fill(&mut bytes[offset..]))
}

/// Whether it is a buffer that the VM itself hands to a hook. It has room.
pub fn is_of_vm(buffer: Value, extent: &Extent) -> bool {
    let flags = any(buffer).map_or(0, |(_, _, flags)| flags);
    extent.is_of_vm.set(flags & !READONLY == LOCKED);
    extent.is_of_vm.get()
}

/// How many bytes the buffer has from the extent's offset on.
pub fn room(buffer: Value, extent: &Extent) -> Result<usize, Error> {
    let size = match any(buffer).filter(|(base, _, _)| !base.is_null()) {
        Some((_, size, _)) => size,
        None => buffer.funcall("size", ())?,
    };
    extent.check(size)?;
    Ok(size - extent.offset)
}

/// Locks a buffer, as Ruby does while it reads or writes, so that no other fiber frees the memory. False if it is locked:
/// the VM's own buffers are, and a buffer that another transfer uses. To be called before another fiber runs.
///
/// A buffer that cannot be written to stays unlocked, so that [`with_writable`] refuses it: a locked slice of a frozen buffer cannot
/// be told from a buffer of the VM's.
pub fn lock(buffer: Value, extent: &Extent, writing: bool) -> Result<bool, Error> {
    if extent.is_of_vm.get() {
        return Ok(false);
    }
    lock_unless_locked(buffer, writing)
}

fn lock_unless_locked(buffer: Value, writing: bool) -> Result<bool, Error> {
    match any(buffer) {
        Some((base, _, flags)) if !base.is_null() && flags & LOCKED == 0 => {
            lock_unlocked(buffer, writing)
        }
        _ => Ok(false),
    }
}

#[cold]
fn lock_unlocked(buffer: Value, writing: bool) -> Result<bool, Error> {
    if writing && memory(buffer, true).is_err() {
        return Ok(false);
    }
    protect(|| {
        // SAFETY: raises for a buffer that is locked.
        unsafe { rb_sys::rb_io_buffer_lock(buffer.as_raw()) };
        rb_sys::Qnil as VALUE
    })?;
    Ok(true)
}

/// Unlocks a buffer that [`lock`] has locked.
#[cold]
pub fn unlock(buffer: Value) {
    // It raises for a buffer that is not locked, which needs no unlocking.
    _ = protect(|| {
        // SAFETY: an IO::Buffer, because it could be locked.
        unsafe { rb_sys::rb_io_buffer_unlock(buffer.as_raw()) };
        rb_sys::Qnil as VALUE
    });
}

/// Memory of an IO::Buffer that a worker may write to without the GVL.
#[derive(Debug)]
pub struct SendableBuffer {
    base: *mut u8,
    size: usize,
}

// SAFETY: the worker that has it is the only user of the memory, because the fiber it belongs to is parked meanwhile.
unsafe impl Send for SendableBuffer {}

impl SendableBuffer {
    /// At most `size` bytes of the buffer from `offset` on. `None` if there are none, or if the buffer is not the VM's own:
    /// then Ruby code may free it, or the buffer it is a slice of, at any time.
    ///
    /// The caller returns to the VM only when the worker is done.
    pub fn of(buffer: Value, offset: usize, size: usize) -> Result<Option<Self>, Error> {
        let Some((base, whole)) = plain(buffer, LOCKED) else {
            return Ok(None);
        };
        let size = size.min(whole.saturating_sub(offset));
        if size == 0 || is_slice(buffer)? {
            return Ok(None);
        }
        let base = base.wrapping_add(offset);
        Ok(Some(Self { base, size }))
    }

    /// Writes to it.
    pub fn with_writable<T>(&mut self, fill: impl FnOnce(&mut [u8]) -> T) -> T {
        // SAFETY: base..base+size lies in a buffer that the VM has made and locked, around memory that the waiting method
        // call keeps (a string is locked as well). The fiber is parked, and its frames there, until the job has ended.
        fill(unsafe { slice::from_raw_parts_mut(self.base, self.size) })
    }
}

/// Whether the buffer is a slice of another one.
///
/// A locked slice has the same flags as a buffer of the VM's, and neither the C API nor a method of IO::Buffer tells them
/// apart: only the description does. It takes 0.7 us, and is asked only before a transfer is handed to a worker.
fn is_slice(buffer: Value) -> Result<bool, Error> {
    let description: String = buffer.funcall("to_s", ())?;
    Ok(description.contains("SLICE"))
}

/// The memory of an IO::Buffer likewise, to read from. As [`with_writable`].
pub fn with_readable<T>(
    buffer: Value,
    extent: &Extent,
    done: usize,
    drain: impl FnOnce(&[u8]) -> T,
) -> Result<T, Error> {
    let (base, size) = match plain(buffer, LOCKED | READONLY) {
        Some(memory) => {
            extent.is_of_vm.set(true);
            memory
        }
        None => checked(buffer, extent, false)?,
    };
    extent.check(size)?;
    let offset = extent.offset + done;
    if offset >= size {
        return Ok(drain(&[]));
    }
    // SAFETY: as in with_writable.
    let bytes = unsafe { slice::from_raw_parts(base, size) };
    Ok(drain(&bytes[offset..]))
}

// As in io/buffer.h. The flags are bits: a sum of them is no member of the type that bindgen makes of them.
const LOCKED: c_int = 32;
const READONLY: c_int = 128;
/// The size of the largest object. `IO#sysread(-1)` passes a buffer that claims to be larger: read(2) refuses it with EFAULT.
const MAX_SIZE: usize = isize::MAX as usize;

/// The memory of a buffer that the VM itself hands to a hook, known by its flags: a locked buffer over memory that it does
/// not own. Asking it raises nothing, so it needs no protection, which costs more than all the rest.
fn plain(buffer: Value, expected: c_int) -> Option<(*mut u8, usize)> {
    let (base, size, flags) = any(buffer)?;
    (flags == expected && !base.is_null() && size <= MAX_SIZE).then_some((base, size))
}

/// The memory and the flags of an object of the class IO::Buffer. The address is null if the memory is not there.
fn any(buffer: Value) -> Option<(*mut u8, usize, c_int)> {
    unsafe extern "C" {
        fn rb_io_buffer_get_bytes(buffer: VALUE, base: *mut *mut c_void, size: *mut usize)
        -> c_int;
    }
    let buffer = buffer.as_raw();
    let (mut base, mut size) = (ptr::null_mut(), 0);
    // SAFETY: an object of this very class has this layout: then the call does not raise, and the base is null unless the
    // memory is there.
    let flags = unsafe {
        if rb_sys::SPECIAL_CONST_P(buffer)
            || (*(buffer as *const rb_sys::RBasic)).klass != rb_sys::rb_cIOBuffer
        {
            return None;
        }
        rb_io_buffer_get_bytes(buffer, &mut base, &mut size)
    };
    Some((base.cast(), size, flags))
}

/// The memory of any other buffer, or the exception for what has none.
#[cold]
fn checked(buffer: Value, extent: &Extent, writing: bool) -> Result<(*mut u8, usize), Error> {
    // Ruby looks at the numbers first.
    let (base, size) =
        memory(buffer, writing).map_err(|error| room(buffer, extent).err().unwrap_or(error))?;
    if size > MAX_SIZE {
        return Err(error::errno(libc::EFAULT, None));
    }
    Ok((base, size))
}

fn memory(buffer: Value, writing: bool) -> Result<(*mut u8, usize), Error> {
    let (mut base, mut size) = (ptr::null_mut(), 0);
    protect(|| {
        // SAFETY: raises for what is no IO::Buffer, has been freed, or is read-only and to be written.
        unsafe {
            if writing {
                rb_sys::rb_io_buffer_get_bytes_for_writing(buffer.as_raw(), &mut base, &mut size);
            } else {
                let mut readable = ptr::null();
                rb_sys::rb_io_buffer_get_bytes_for_reading(
                    buffer.as_raw(),
                    &mut readable,
                    &mut size,
                );
                base = readable.cast_mut();
            }
        }
        rb_sys::Qnil as VALUE
    })?;
    Ok((base.cast(), size as usize))
}
