//! Memory errors that `bin/check memory` must find. Compiled only with the feature planted-errors.

use std::hint::black_box;

/// `Reactor::PlantedErrors.make(name)`: makes the error once. False if there is none with this name.
pub fn make(name: String) -> bool {
    match name.as_str() {
        "use after free" => _ = black_box(freed(black_box(&[1; 64]).to_vec())),
        "write past the end" => past_the_end(black_box(&[1; 61]).to_vec()),
        "read past a local" => _ = black_box(past_a_local(black_box(17))),
        "leak" => (0..100).for_each(|_| _ = Box::leak(black_box(Box::new([1_u8; 77])))),
        _ => return false,
    }
    true
}

fn freed(bytes: Vec<u8>) -> u8 {
    let place = bytes.as_ptr();
    drop(black_box(bytes));
    // SAFETY: none; that is the purpose.
    unsafe { place.add(7).read_volatile() }
}

fn past_the_end(mut bytes: Vec<u8>) {
    let end = bytes.len();
    // SAFETY: none; that is the purpose. The byte belongs to no other allocation, because blocks have even sizes.
    unsafe { bytes.as_mut_ptr().add(end).write_volatile(2) };
    drop(black_box(bytes));
}

fn past_a_local(index: usize) -> u8 {
    let bytes = [3_u8; 17];
    let place = black_box(&bytes).as_ptr();
    // SAFETY: none; that is the purpose.
    unsafe { place.add(index).read_volatile() }
}
