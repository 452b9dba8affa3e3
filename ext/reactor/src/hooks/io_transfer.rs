//! `io_read`, `io_write`, `io_pread`, `io_pwrite`, once for each order of arguments that the interface has had.

use magnus::{Error, Ruby, Value, typed_data::Obj};

use crate::{
    control::scheduler::Scheduler,
    ruby::convert::{byte_count, to_i64},
    transfer::{
        request::{Direction, Transfer},
        stream::transfer,
    },
};

/// `io_read(io, buffer, length, offset)` and `io_write`; from version 4 of the interface on `(io, buffer, offset, length)`.
pub fn transfer_next<const WRITES: bool, const VERSION: u8>(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    [io, buffer, first, second]: [Value; 4],
) -> Result<Value, Error> {
    let numbers = [byte_count(first)?, byte_count(second)?];
    let given = Transfer::new(direction(WRITES), VERSION, [io, buffer], numbers)?;
    transfer(ruby, this, &given)
}

/// `io_pread(io, buffer, from, length, offset)` and `io_pwrite`; from version 4 on `(io, buffer, from, offset, length)`.
pub fn transfer_at<const WRITES: bool, const VERSION: u8>(
    ruby: &Ruby,
    this: Obj<Scheduler>,
    [io, buffer, from, first, second]: [Value; 5],
) -> Result<Value, Error> {
    let file_offset = to_i64(from)? as u64;
    let numbers = [byte_count(first)?, byte_count(second)?];
    let mut given = Transfer::new(direction(WRITES), VERSION, [io, buffer], numbers)?;
    given.file_offset = Some(file_offset);
    transfer(ruby, this, &given)
}

const fn direction(writes: bool) -> Direction {
    match writes {
        true => Direction::Write,
        false => Direction::Read,
    }
}
