//! Counts the allocations of a thread, and the bytes that it holds, while its counting is on.
#![allow(dead_code, reason = "each test file uses a part")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

thread_local! {
    // The test harness allocates in its own thread.
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
    static HELD: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

// On Windows nothing is counted: thread-locals of windows-gnu allocate when they are first used.
#[cfg_attr(not(windows), global_allocator)]
static ALLOCATOR: Counting = Counting;

// SAFETY: all calls are passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if IS_ON.get() {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
            HELD.set(HELD.get() + layout.size() as isize);
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if IS_ON.get() {
            HELD.set(HELD.get() - layout.size() as isize);
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Runs `body` with the counting on or off.
pub fn counted<T>(is_on: bool, body: impl FnOnce() -> T) -> T {
    let before = IS_ON.replace(is_on);
    let result = body();
    IS_ON.set(before);
    result
}

pub fn start() {
    IS_ON.set(true);
}

pub fn allocations() -> usize {
    ALLOCATIONS.get()
}

/// The bytes that are held of what was counted.
pub fn held() -> isize {
    HELD.get()
}
