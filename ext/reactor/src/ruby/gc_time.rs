//! How long the garbage collector has run.

use std::sync::OnceLock;

use rb_sys::VALUE;

/// How long the garbage collector has run so far, as `GC.stat(:time)`.
pub fn gc_milliseconds() -> usize {
    static TIME: OnceLock<VALUE> = OnceLock::new();
    // SAFETY: a name; a symbol that is made from it is never collected.
    let time =
        TIME.get_or_init(|| unsafe { rb_sys::rb_id2sym(rb_sys::rb_intern(c"time".as_ptr())) });
    // SAFETY: Ruby raises only for an unknown key.
    unsafe { rb_sys::rb_gc_stat(*time) as usize }
}
