//! The io numbers of IO objects: of most in a table by descriptor, of the others in a
//! [`hidden_ivar`](super::hidden_ivar).
//!
//! Ruby keeps the instance variables of IOs in a process-wide table, and each garbage collection, even a minor one,
//! looks up each IO that has an instance variable: with ten thousand sockets a minor collection would take more than
//! twice as long. A lookup in Ruby's table is also slower than one in this table, and each read and write needs the
//! number.
//!
//! | object                                 | its entry                                                          |
//! |----------------------------------------|--------------------------------------------------------------------|
//! | without the flag                       | none, even if an earlier object at its address had one             |
//! | with the flag, its address is there    | its own                                                            |
//! | with the flag, another address is there | none: it was moved by compaction, or got another descriptor      |
//!
//! An object takes over another object's entry if the descriptor had another file when the entry was written. Otherwise
//! two objects may share the descriptor, and the second stores its number in a hidden variable.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use magnus::{Value, rb_sys::AsRawValue};
use rb_sys::{RBasic, VALUE};
use reactor_scheduler::system::descriptor::Descriptor;

use crate::ruby::hidden_ivar;

/// The flag of objects that have had an entry. Flags from this one on are for the class's own use, and Ruby's IO uses
/// none of them. New objects do not have the flag, and `dup` and `clone` do not copy it.
const NUMBERED: VALUE = rb_sys::ruby_fl_type::RUBY_FL_USER10 as VALUE;

const PAGE: usize = 1 << 12;
/// Descriptors above this have no entry. Linux allows no more per process unless `fs.nr_open` is raised.
const PAGES: usize = (1 << 20) / PAGE;

/// All zeros if the entry belongs to no object.
#[derive(Default)]
struct Entry {
    object: AtomicU64,
    number: AtomicU64,
    inode: AtomicU64,
}

/// Shared between Ractors.
static TABLE: [OnceLock<Box<[Entry]>>; PAGES] = [const { OnceLock::new() }; PAGES];

fn entry(descriptor: Descriptor) -> Option<&'static Entry> {
    let index = usize::try_from(descriptor.number()).ok()?;
    TABLE.get(index / PAGE)?.get()?.get(index % PAGE)
}

fn entry_or_new(descriptor: Descriptor) -> Option<&'static Entry> {
    let index = usize::try_from(descriptor.number()).ok()?;
    let page = TABLE.get(index / PAGE)?;
    let page = page.get_or_init(|| (0..PAGE).map(|_| Entry::default()).collect());
    page.get(index % PAGE)
}

/// The entry of this IO object. The object has this descriptor.
fn own(io: Value, descriptor: Descriptor) -> Option<&'static Entry> {
    // SAFETY: an IO begins with an RBasic.
    if unsafe { (*basic(io)).flags & NUMBERED == 0 } {
        return None;
    }
    entry(descriptor).filter(|entry| entry.object.load(Ordering::Relaxed) == io.as_raw())
}

/// The number of this IO object. The object has this descriptor.
pub fn known(io: Value, descriptor: Descriptor) -> Option<u64> {
    match own(io, descriptor) {
        Some(entry) => Some(entry.number.load(Ordering::Relaxed)),
        None => hidden_ivar::known(io),
    }
}

/// Sets the number of an object that is not frozen. Its descriptor has this inode (`None`: not asked).
pub fn set(io: Value, descriptor: Descriptor, number: u64, inode: Option<u64>) {
    let entry = match hidden_ivar::known(io) {
        Some(_) => None,
        None => own(io, descriptor).or_else(|| take(io, descriptor, inode)),
    };
    let Some(entry) = entry else {
        return hidden_ivar::set(io, number);
    };
    if let Some(inode) = inode {
        entry.inode.store(inode, Ordering::Relaxed);
    }
    entry.number.store(number, Ordering::Relaxed);
    set_flag(io, true);
}

/// Makes the descriptor's entry that of this object, if it is free.
fn take(io: Value, descriptor: Descriptor, inode: Option<u64>) -> Option<&'static Entry> {
    let (entry, inode) = (entry_or_new(descriptor)?, inode?);
    let owner = entry.object.load(Ordering::Relaxed);
    if owner != 0 && entry.inode.load(Ordering::Relaxed) == inode {
        return None;
    }
    let taken =
        entry
            .object
            .compare_exchange(owner, io.as_raw(), Ordering::Relaxed, Ordering::Relaxed);
    taken.is_ok().then_some(entry)
}

/// Removes the number.
pub fn release(io: Value, descriptor: Descriptor) {
    let Some(entry) = own(io, descriptor) else {
        return hidden_ivar::clear(io);
    };
    set_flag(io, false);
    entry.object.store(0, Ordering::Relaxed);
}

fn set_flag(io: Value, is_numbered: bool) {
    // SAFETY: as above. Only the object's Ractor, holding its lock, writes the flags.
    unsafe {
        let flags = &mut (*basic(io)).flags;
        *flags = *flags & !NUMBERED | if is_numbered { NUMBERED } else { 0 };
    }
}

fn basic(io: Value) -> *mut RBasic {
    io.as_raw() as usize as *mut RBasic
}
