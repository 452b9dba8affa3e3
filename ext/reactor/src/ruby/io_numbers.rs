//! The io numbers of most IO objects, in a table by descriptor. The other IO objects store their numbers in a
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
    if !may_have(io) {
        return None;
    }
    entry(descriptor).filter(|entry| entry.object.load(Ordering::Relaxed) == io.as_raw())
}

/// The number of this IO object. The object has this descriptor.
pub fn known(io: Value, descriptor: Descriptor) -> Option<u64> {
    own(io, descriptor).map(|entry| entry.number.load(Ordering::Relaxed))
}

/// Assigns a number to an object that has none and whose descriptor has this inode. False if the object cannot have the
/// entry.
pub fn give(io: Value, descriptor: Descriptor, number: u64, inode: Option<u64>) -> bool {
    let (Some(entry), Some(inode)) = (entry_or_new(descriptor), inode) else {
        return false;
    };
    let owner = entry.object.load(Ordering::Relaxed);
    if owner != 0 && entry.inode.load(Ordering::Relaxed) == inode {
        return false;
    }
    let object = io.as_raw();
    let taken = entry
        .object
        .compare_exchange(owner, object, Ordering::Relaxed, Ordering::Relaxed);
    if taken.is_err() {
        return false;
    }
    entry.inode.store(inode, Ordering::Relaxed);
    entry.number.store(number, Ordering::Relaxed);
    set_flag(io, true);
    true
}

/// Changes the number of an object, and updates the inode of its descriptor, because the file may be another one. False
/// if the object has no entry.
pub fn replace(io: Value, descriptor: Descriptor, number: u64, inode: Option<u64>) -> bool {
    own(io, descriptor).is_some_and(|entry| {
        if let Some(inode) = inode {
            entry.inode.store(inode, Ordering::Relaxed);
        }
        entry.number.store(number, Ordering::Relaxed);
        true
    })
}

/// Removes the number. False if the object has no entry.
pub fn release(io: Value, descriptor: Descriptor) -> bool {
    own(io, descriptor).is_some_and(|entry| {
        set_flag(io, false);
        entry.object.store(0, Ordering::Relaxed);
        true
    })
}

/// False if the object certainly has no number here.
pub fn may_have(io: Value) -> bool {
    // SAFETY: an IO begins with an RBasic.
    unsafe { (*basic(io)).flags & NUMBERED != 0 }
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
