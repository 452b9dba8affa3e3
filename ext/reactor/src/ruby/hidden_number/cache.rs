//! The hidden numbers that were asked for last, by the addresses of their objects. Ruby's own look-up of an instance variable of an
//! IO searches a table of the whole process, and each read and write needs one.
//!
//! An address belongs to the same object until a collection frees or moves objects. So each collection empties the cache before
//! that, while it marks.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use rb_sys::{VALUE, rb_data_type_t};

/// A power of two. If more objects are in use, some of them are looked up by Ruby.
const ENTRIES: usize = 1 << ENTRY_BITS;
const ENTRY_BITS: u32 = 10;

/// The number of one object. Ractors share the cache without a lock. The address is stored XORed with the mixed number, so halves
/// of two entries match no address. (Unmixed numbers differ in few bits, as addresses do.)
struct Entry {
    check: AtomicU64,
    number: AtomicU64,
}

static CACHE: [Entry; ENTRIES] = [const { Entry::new() }; ENTRIES];

impl Entry {
    const fn new() -> Self {
        Self {
            check: AtomicU64::new(0),
            number: AtomicU64::new(0),
        }
    }

    fn of(object: VALUE) -> &'static Self {
        &CACHE[(mix(object) >> (u64::BITS - ENTRY_BITS)) as usize]
    }

    fn store(&self, check: u64, number: u64) {
        self.check.store(check, Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
    }
}

/// Fibonacci hashing: the high bits of the product depend on all bits of the value.
fn mix(value: u64) -> u64 {
    value.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The object's number, if it is here.
pub fn get(object: VALUE) -> Option<u64> {
    let entry = Entry::of(object);
    let number = entry.number.load(Ordering::Relaxed);
    (entry.check.load(Ordering::Relaxed) ^ mix(number) == object).then_some(number)
}

/// Keeps the number that the object carries now.
pub fn put(object: VALUE, number: u64) {
    Entry::of(object).store(object ^ mix(number), number);
}

/// Forgets the object, whose number is taken away.
pub fn remove(object: VALUE) {
    Entry::of(object).store(0, 0);
}

/// Has each collection empty the cache. It marks every object without write barriers, and one of these calls [`empty`].
pub fn empty_at_each_collection() {
    static TYPE: SyncType = SyncType(data_type());
    // SAFETY: an object without a class is invisible to Ruby. It is registered before the next allocation; the address of the
    // type and of the data is that of a static.
    unsafe {
        let data = ptr::from_ref(&CACHE).cast_mut().cast::<c_void>();
        let object = rb_sys::rb_data_typed_object_wrap(0, data, &TYPE.0);
        rb_sys::rb_gc_register_mark_object(object);
    }
}

/// The mark function, and neither RUBY_TYPED_WB_PROTECTED nor a free function.
const fn data_type() -> rb_data_type_t {
    // SAFETY: a C structure, all of whose fields may be zero.
    let mut data_type: rb_data_type_t = unsafe { std::mem::zeroed() };
    data_type.wrap_struct_name = c"Reactor hidden numbers".as_ptr();
    data_type.function.dmark = Some(empty);
    data_type
}

/// Every thread of Ruby's stands still meanwhile.
unsafe extern "C" fn empty(_: *mut c_void) {
    for entry in &CACHE {
        entry.store(0, 0);
    }
}

/// The structure holds addresses of constants only.
struct SyncType(rb_data_type_t);

// SAFETY: nothing writes it.
unsafe impl Sync for SyncType {}
